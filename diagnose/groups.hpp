#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "model/schedule/bind.hpp"
#include "trace/trace.hpp"

namespace stretto::diagnose {

// Kernels of one kind in one process group on one stream.
struct KernelKind {
  std::uint32_t stream = 0;
  std::string group;
  trace::KernelClass cls = trace::KernelClass::other;
  std::vector<std::uint32_t> kernels;  // indices into RankTrace::kernels
  double bytes = 0;                    // of all; 0: not known
  std::int64_t members = 0;            // 0: not known
};

// Collectives of one kind of one communicator on one lane; or all messages of a communicator, on several lanes.
struct OperationKind {
  std::vector<LaneId> lanes;
  std::uint32_t communicator = 0;
  std::string name;                      // of the communicator
  const Operation* operation = nullptr;  // one of them
  double count = 0, bytes = 0;           // of all
  std::int64_t members = 0;
};

// Returns the bytes of the whole buffer of a communication; 0 for other operations.
double communicated_bytes(const Schedule& schedule, const Operation& operation);
// Returns the bytes as operations count them; 0 where the trace does not say them.
double communicated_bytes(const trace::RankTrace& trace, const trace::Kernel& kernel);

std::vector<OperationKind> operation_kinds(const Schedule& schedule, const BoundProgram& program);
// Returns the kinds of those kernels that communicate.
std::vector<KernelKind> kernel_kinds(const trace::RankTrace& trace, const std::vector<std::uint32_t>& kernels);

constexpr std::size_t kNoKind = ~std::size_t{0};
// Returns for each kind of kernels the kind of operations that is most like it by number and bytes, in groups of equal
// size. Each gets one of its own while there are any. kNoKind: none is like it.
std::vector<std::size_t> match_kinds(const std::vector<KernelKind>& kernels,
                                     const std::vector<OperationKind>& operations);

}  // namespace stretto::diagnose
