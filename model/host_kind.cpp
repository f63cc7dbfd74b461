#include "model/host_kind.hpp"

#include <array>

#include "base/overloaded.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {
namespace {

constexpr std::array<const char*, kHostKinds> kNames = {
    "linear",  "attention",   "norm",   "torch_op",  "collective", "exchange",  "flex_exchange",
    "message", "grouped",     "router", "layer",     "node",       "recompute", "graph",
    "sync",    "micro_batch", "step",   "parameter", "codes",      "cpp"};

}  // namespace

const char* name_of(HostKind kind) {
  const auto at = static_cast<std::size_t>(kind);
  return at < kNames.size() ? kNames[at] : "?";
}

std::optional<HostKind> host_kind_named(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i]) return static_cast<HostKind>(i);
  return std::nullopt;
}

bool has_passes(HostKind kind) {
  switch (kind) {
    case HostKind::linear:
    case HostKind::attention:
    case HostKind::norm:
    case HostKind::torch_op:
    case HostKind::collective:
    case HostKind::exchange:
    case HostKind::flex_exchange:
    case HostKind::message:
    case HostKind::grouped:
    case HostKind::router:
    case HostKind::layer:
      return true;
    case HostKind::node:
    case HostKind::recompute:
    case HostKind::graph:
    case HostKind::sync:
    case HostKind::micro_batch:
    case HostKind::step:
    case HostKind::parameter:
    case HostKind::codes:
    case HostKind::cpp:
      return false;
  }
  return false;
}

// Each work has a line, so that a new one does not compile before somebody has decided what issues it.
HostKind host_kind_of(const Schedule& schedule, const Operation& operation) {
  using enum HostKind;
  return std::visit(Overloaded{
                        [](const Gemm&) { return linear; },
                        [](const Attention&) { return attention; },
                        [](const AttentionProduct&) { return torch_op; },
                        [](const Softmax&) { return torch_op; },
                        [](const AttentionMerge&) { return torch_op; },
                        [](const SplitHeads&) { return torch_op; },
                        [](const PackKv&) { return torch_op; },
                        [](const JoinQkv&) { return torch_op; },
                        [](const Rope&) { return torch_op; },
                        [](const LatentHeads&) { return torch_op; },
                        [](const LayerNorm&) { return norm; },
                        [](const RmsNorm&) { return norm; },
                        [](const Elementwise&) { return torch_op; },
                        [](const Dropout&) { return torch_op; },
                        [](const Route&) { return router; },
                        [](const BalanceLoss&) { return torch_op; },
                        [](const MeanCounts&) { return torch_op; },
                        [](const CountLoads&) { return torch_op; },
                        [](const MoveBias&) { return torch_op; },
                        [](const SortTokens&) { return torch_op; },
                        [](const Permute&) { return torch_op; },
                        [](const CountRows&) { return torch_op; },
                        [](const SortByExpert&) { return torch_op; },
                        [](const GroupedGemm&) { return grouped; },
                        [](const WeightedActivation&) { return torch_op; },
                        [](const GateRows&) { return torch_op; },
                        [](const ShortConv&) { return torch_op; },
                        [](const LinearGates&) { return torch_op; },
                        [](const LinearAttention&) { return attention; },
                        [](const GatedNorm&) { return norm; },
                        [](const Embedding&) { return torch_op; },
                        [](const CrossEntropy&) { return torch_op; },
                        [](const VocabStats&) { return torch_op; },
                        [](const Fill&) { return torch_op; },
                        [](const Cast&) { return torch_op; },
                        [](const ScaledCast&) { return torch_op; },
                        [](const Amax&) { return codes; },
                        [](const UpdateScale&) { return codes; },
                        [](const Quantise&) { return codes; },
                        [](const TransposeCodes&) { return codes; },
                        [](const LocalReduce&) { return torch_op; },
                        [](const SumSquares&) { return torch_op; },
                        [](const AdamW&) { return torch_op; },
                        [&](const Collective& work) {
                          if (!rule_of(work.kind).of_rows) return collective;
                          return schedule.communicators[work.communicator].transport == TokenTransport::nccl
                                     ? exchange
                                     : flex_exchange;
                        },
                        [](const PointToPoint&) { return message; },
                    },
                    operation.work);
}

bool is_of_backward(const Operation& operation) {
  return operation.phase == Phase::dgrad || operation.phase == Phase::wgrad;
}

}  // namespace stretto
