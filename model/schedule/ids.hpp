#pragma once
#include <cstdint>

namespace stretto {

// Indices into the arrays of a Schedule.
using TensorId = std::uint32_t;
using StorageId = std::uint32_t;
using OpId = std::uint32_t;
using BlockId = std::uint32_t;
using LaneId = std::uint16_t;

}  // namespace stretto
