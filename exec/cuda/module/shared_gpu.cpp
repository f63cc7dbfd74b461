#include <cuda_runtime.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "exec/cuda/kernels/share.hpp"
#include "exec/cuda/module/check.hpp"
#include "exec/cuda/module/communication.hpp"
#include "model/ring.hpp"

namespace stretto::cuda {
namespace {

class SharedGpu final : public Communication {
 public:
  SharedGpu(const Schedule& schedule, const std::vector<BoundProgram>& programs, const LaunchPlan& launches,
            OperandsOf operands, CountsOf counts, const CudaOptions& options)
      : schedule_(schedule),
        programs_(programs),
        launches_(launches),
        operands_(std::move(operands)),
        counts_(std::move(counts)),
        options_(options) {}

  void launch(const LaunchAction& action, const Stream& stream) override {
    const Work& work = programs_[action.rank].work_of(action.op);
    if (const auto* collective = std::get_if<Collective>(&work)) return share(action, *collective, stream);
    const auto& message = std::get<PointToPoint>(work);
    const exec::Operand& to = operands_(action.rank, action.op)[0];
    const LaunchPlan::Participant sender = launches_.rendezvous[action.rendezvous].front();
    const void* from = operands_(sender.rank, sender.op)[0].data;
    const std::int64_t bytes = message.elements * bytes_of(to.dtype);
    const Communicator& communicator = schedule_.communicators[message.communicator];
    const Pace link = pace(communicator, 1, bytes, 1);
    if (communicator.engine != CommEngine::copy_engine) return run_message(from, to.data, bytes, link, stream);
    if (link.least_ns > 0) start_clock(stream);
    cuda::check(cudaMemcpyAsync(to.data, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                                static_cast<cudaStream_t>(stream.stream)),
                "copying a message");
    if (link.least_ns > 0) await_clock(link.least_ns, stream);
  }

 private:
  // Returns as many blocks as the communicator has channels, and the time of its link.
  Pace pace(const Communicator& communicator, std::int64_t steps, std::int64_t bytes, int phases) const {
    Pace pace;
    pace.ctas = communicator.engine == CommEngine::sm ? communicator.channels : options_.ctas;
    if (options_.link_GBps > 0)
      pace.least_ns = static_cast<std::int64_t>((static_cast<double>(steps) * options_.link_latency_us * 1e3 +
                                                 static_cast<double>(bytes) / options_.link_GBps) /
                                                phases);
    return pace;
  }

  void share(const LaunchAction& action, const Collective& collective, const Stream& stream) {
    const Communicator& communicator = schedule_.communicators[collective.communicator];
    std::vector<local::Buffers> buffers;
    int self = 0;
    for (const auto& [rank, op] : launches_.rendezvous[action.rendezvous]) {
      if (rank == action.rank) self = static_cast<int>(buffers.size());
      const std::span<const exec::Operand> theirs = operands_(rank, op);
      buffers.push_back({theirs.front().data, theirs.back().data});
    }
    if (collective.by_rows()) {
      // Kernels copy what the host's copy of the numbers says.
      const std::span<const exec::Operand> own = operands_(action.rank, action.op);
      buffers[static_cast<std::size_t>(self)].offsets = counts_(own[*counts_of(Work(collective))]);
    }
    const Dtype dtype = operands_(action.rank, action.op).front().dtype;
    const RingCost ring = ring_cost(collective.kind, dtype, collective.elements, communicator.size);
    run_share(collective, dtype, self, buffers, action.phase,
              pace(communicator, ring.steps, ring.edge_bytes, local::phases(collective.kind)), stream);
  }

  const Schedule& schedule_;
  const std::vector<BoundProgram>& programs_;
  const LaunchPlan& launches_;
  const OperandsOf operands_;
  const CountsOf counts_;
  const CudaOptions options_;
};

}  // namespace

std::unique_ptr<Communication> share_gpu(const Schedule& schedule, const std::vector<BoundProgram>& programs,
                                         const LaunchPlan& launches, OperandsOf operands, CountsOf counts,
                                         const CudaOptions& options) {
  return std::make_unique<SharedGpu>(schedule, programs, launches, std::move(operands), std::move(counts), options);
}

}  // namespace stretto::cuda
