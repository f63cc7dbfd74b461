#pragma once
#include <cstdint>

#include "model/order/pipeline_order.hpp"

namespace stretto {

// Assigns a slot and a buffer to every unit and message of the order, and sets how many of each there are. Numbers are
// handed out in the order of the items, so that any order gets a valid rotation.
void assign_buffers(const PipelineShape& shape, std::int64_t stage, PipelineOrder& order);

}  // namespace stretto
