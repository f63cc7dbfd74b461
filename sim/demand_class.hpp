#pragma once
#include <cstdint>

namespace stretto::sim {

// Classes of work for interference between concurrent operations of a device; slowdowns between them are measured
// numbers of a platform.
//   vector  passes over activations, which mostly are in cache
//   memory  passes over parameters, gradients and optimizer state, which are not; data movement of collectives
enum class DemandClass : std::uint8_t { gemm, attention, vector, memory };
constexpr int kDemandClasses = 4;
const char* name_of(DemandClass cls);

}  // namespace stretto::sim
