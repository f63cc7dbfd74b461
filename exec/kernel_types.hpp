#pragma once
#include <cstdint>
#include <string>

#include "model/schedule/schedule.hpp"

namespace stretto::exec {

// Executors, by where their kernels run.
enum class KernelPlace : std::uint8_t { host, gpu };

// Returns why an executor has no kernel for an operation of the schedule: the operation, its work and the element
// types, or "" where it has one for each. The schedule is verified, so each operand has a type that its work may have
// (model/schedule/operands.hpp); this is the table of the combinations of types that have kernels. Executors ask it
// before anything runs, so that no kernel meets types that it does not have.
std::string missing_kernel(const Schedule& schedule, KernelPlace place);

}  // namespace stretto::exec
