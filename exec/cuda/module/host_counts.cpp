#include "exec/cuda/module/host_counts.hpp"

#include <cassert>

namespace stretto::cuda {
namespace {

std::int64_t bytes_of_counts(const exec::Operand& counts) {
  return counts.rows * counts.cols * static_cast<std::int64_t>(sizeof(std::int32_t));
}

}  // namespace

HostCounts::HostCounts(const std::vector<BoundProgram>& programs, const LaunchPlan& launches,
                       const OperandsOf& operands) {
  for (const LaunchAction& action : launches.actions) {
    if (action.kind != LaunchAction::Kind::copy) continue;
    const exec::Operand& made =
        operands(action.rank, action.op)[*made_counts_of(programs[action.rank].work_of(action.op))];
    assert(made.dtype == Dtype::i32 && (made.rows == 1 || made.ld == made.cols));
    std::unique_ptr<PinnedMemory>& place = places_[made.data];
    if (!place) place = std::make_unique<PinnedMemory>(bytes_of_counts(made));
  }
}

void HostCounts::copy(const exec::Operand& made, const Stream& stream) const {
  check(cudaMemcpyAsync(places_.at(made.data)->data, made.data, static_cast<std::size_t>(bytes_of_counts(made)),
                        cudaMemcpyDeviceToHost, static_cast<cudaStream_t>(stream.stream)),
        "copying numbers of rows to the host");
}

const std::int32_t* HostCounts::of(const exec::Operand& counts) const {
  return reinterpret_cast<const std::int32_t*>(places_.at(counts.data)->data);
}

}  // namespace stretto::cuda
