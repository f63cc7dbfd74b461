#pragma once
#include <cstdint>

#include "model/lower/pipeline_order.hpp"

namespace stretto {

// Gives every unit and message of the order its slot and its buffer, and says how many of each there are. They are
// handed out as the order is read, so that rotation follows from it whatever it is.
void assign_buffers(const PipelineShape& shape, std::int64_t stage, PipelineOrder& order);

}  // namespace stretto
