#include "exec/cuda/module/attention.hpp"

#include <fmt/format.h>

#include <bit>
#include <cassert>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "exec/cuda/kernels/attention_seed.hpp"
#include "exec/cuda/module/attention_graph.hpp"
#include "exec/cuda/module/cudnn_engine.hpp"
#include "exec/cuda/module/fastest.hpp"
#include "exec/cuda/module/handles.hpp"
#include "exec/cuda/module/this_device.hpp"
#include "exec/cuda/module/workspace.hpp"

namespace stretto::cuda {
namespace {

using Id = AttentionTensor;

// As in cuDNN's own frontend (sdpa nodes), older versions require masked scores to be the lowest number, and the sums
// of dq to be cleared.
constexpr std::size_t kInfinityVersion = 91000, kClearsSumsVersion = 90600;
constexpr int kConfigurations = 8;  // configurations of engines that cuDNN is asked for and that are compiled and run
constexpr int kRuns = 5;            // runs of each, whose median time counts
// The limit for an engine's workspace; a fused engine takes some hundred bytes. Where every engine takes more, the
// first is taken.
constexpr auto kMostWorkspace_bytes = static_cast<std::int64_t>(kWorkspace_bytes);

std::int64_t rounded_up(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

// The arguments of an execution: ids of tensors, and their addresses.
struct Bindings {
  std::vector<std::int64_t> ids;
  std::vector<void*> data;
  void add(Id id, void* at) {
    ids.push_back(static_cast<std::int64_t>(id));
    data.push_back(at);
  }
};

void execute(cudnnHandle_t handle, const CudnnPlan& plan, const Bindings& bindings, void* workspace) {
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const auto count = static_cast<std::int64_t>(bindings.ids.size());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, bindings.data.data(), count);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, bindings.ids.data(), count);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  pack.finalize();
  check_cudnn(cudnn().BackendExecute(handle, plan.plan->handle(), pack.handle()));
}

// Returns the median over kRuns of the time of what start() puts on the stream, ms.
template <class Start>
float median_ms(Start start, const Stream& stream) {
  const CudaEvent begin(true), end(true);
  const auto on = static_cast<cudaStream_t>(stream.stream);
  start();  // warms up
  std::vector<float> times;
  for (int run = 0; run < kRuns; ++run) {
    check(cudaEventRecord(begin.event, on), "timing");
    start();
    check(cudaEventRecord(end.event, on), "timing");
    check(cudaEventSynchronize(end.event), "timing attention");
    check(cudaEventElapsedTime(&times.emplace_back(), begin.event, end.event), "timing attention");
  }
  return median_of(std::move(times));
}

}  // namespace

struct AttentionRunner::Plan {
  AttentionShape shape;
  bool is_forward;
  CudnnGraph graph;
  std::unique_ptr<CudnnOperations> operations;
  CudnnPlan plan;

  Plan(const AttentionShape& of, bool forward, const CudnnTarget& target) : shape(of), is_forward(forward) {
    add_attention(graph, shape, is_forward);
    operations = std::make_unique<CudnnOperations>(graph.operations(), target);
  }

  bool drops() const { return shape.dropout > 0; }
  // Bytes in front of cuDNN's own workspace: seeds, then the sums of a gradient.
  std::int64_t seed_bytes() const { return drops() ? rounded_up(16) : 0; }
  std::int64_t sums_bytes() const { return is_forward ? 0 : rounded_up(shape.b * shape.h * shape.s * 4); }
  std::int64_t dq_bytes() const { return is_forward ? 0 : rounded_up(shape.b * shape.h * shape.s * shape.d * 4); }
  std::int64_t workspace_bytes() const {
    return seed_bytes() + sums_bytes() + dq_bytes() + rounded_up(plan.workspace_bytes);
  }
};

AttentionRunner::AttentionRunner() {
  try {
    if (const cudnnStatus_t status = cudnn().Create(&handle_); status != CUDNN_STATUS_SUCCESS)
      missing_ = std::string("it does not start: ") + cudnn().GetErrorString(status);
    else
      file_ = PlanFile(plan_folder(), fmt::format("cuDNN {}, {}", cudnn().GetVersion(), this_device()));
  } catch (const Error& error) {
    missing_ = error.what();
  }
}
AttentionRunner::AttentionRunner(const DescribedDevice& device)
    : described_(device), file_(device.plan_folder, fmt::format("cuDNN {}, {}", cudnn().GetVersion(), device.json)) {}
AttentionRunner::~AttentionRunner() {
  plans_.clear();
  if (handle_ != nullptr) cudnn().Destroy(handle_);
}

AttentionRunner::Key AttentionRunner::key_of(const Attention& work, std::span<const exec::Operand> operands) {
  return {work.pass == Pass::forward,
          work.batch,
          work.heads,
          work.kv_heads,
          work.seq,
          work.head_dim,
          operands[0].ld,
          operands[1].ld,
          work.causal,
          static_cast<std::int64_t>(operands[0].dtype),
          std::bit_cast<std::int64_t>(work.dropout)};
}

std::string fault_of_cudnn(std::size_t version, const Attention& work) {
  if (version == 91000 || version == 91001) return "9.10.0 and 9.10.1 compute attention wrongly";
  if (version <= 91500 && work.pass == Pass::dgrad && work.seq % 128 != 0)
    return "up to 9.15.0 gradients are wrong where the sequence is no multiple of 128 tokens";
  return "";
}

std::string AttentionRunner::refusal_of(const Attention& work, std::span<const exec::Operand> operands) const {
  if (!missing_.empty()) return missing_;
  if (std::string fault = fault_of_cudnn(cudnn().GetVersion(), work); !fault.empty()) return fault;
  if (work.kv_apart || work.queries.of > 1) return "parts of sequences have no plan";
  if (work.width_of_values() != work.head_dim) return "heads of values must be as wide as those of scores";
  if (operands[0].dtype != Dtype::bf16 || work.head_dim % 8 != 0 || work.head_dim > 256 || work.seq < 64)
    return "only bf16, heads of 8 to 256, 64 tokens and more";
  if (work.pass == Pass::dgrad && (operands[3].ld != operands[1].ld || operands[4].ld != operands[0].ld))
    return "gradients must lie as what they are gradients of";
  if (operands[2].ld != work.seq) return "log-sum-exps must follow one another";
  return "";
}

bool AttentionRunner::prepare(const Attention& work, std::span<const exec::Operand> operands, const Stream* stream) {
  if (std::string refusal = refusal_of(work, operands); !refusal.empty()) {
    why_not_ = std::move(refusal);
    return false;
  }
  const auto [at, fresh] = plans_.try_emplace(key_of(work, operands));
  if (!fresh) return at->second != nullptr;
  try {
    at->second = plan_of(work, operands, stream);
  } catch (const CudnnError& error) {
    why_not_ = error.what;
  }
  return at->second != nullptr;
}

bool AttentionRunner::has_plan(const Attention& work, std::span<const exec::Operand> operands) const {
  if (!refusal_of(work, operands).empty()) return false;
  const auto found = plans_.find(key_of(work, operands));
  return found != plans_.end() && found->second != nullptr;
}

PlanFile::Numbers AttentionRunner::engine_of(const Attention& work, std::span<const exec::Operand> operands) const {
  return has_plan(work, operands) ? numbers_of(*plans_.at(key_of(work, operands))->plan.configuration)
                                  : PlanFile::Numbers{};
}

std::unique_ptr<AttentionRunner::Plan> AttentionRunner::plan_of(const Attention& work,
                                                                std::span<const exec::Operand> operands,
                                                                const Stream* stream) {
  const AttentionShape shape{work.batch,     work.heads,     work.kv_heads, work.seq,    work.head_dim,
                             operands[0].ld, operands[1].ld, work.causal,   work.dropout};
  auto plan = std::make_unique<Plan>(shape, work.pass == Pass::forward, CudnnTarget{handle_, described_.json});
  const Key key = key_of(work, operands);
  const PlanFile::Numbers numbers(key.begin(), key.end());
  if (take_kept(*plan, numbers)) {
    ++from_file_;
  } else {
    take_fastest(*plan, work, operands, stream);
    if (stream != nullptr || described_.time_ms) file_.put(numbers, numbers_of(*plan->plan.configuration));
  }
  return plan;
}

bool AttentionRunner::take_kept(Plan& plan, const PlanFile::Numbers& key) {
  const PlanFile::Numbers* const numbers = file_.find(key);
  if (numbers == nullptr) return false;
  try {
    plan.plan = cuda::plan_of(*plan.operations, configuration_of(*plan.operations, *numbers));
    return true;
  } catch (const CudnnError&) {
    return false;
  }
}

void AttentionRunner::take_fastest(Plan& plan, const Attention& work, std::span<const exec::Operand> operands,
                                   const Stream* stream) {
  const bool is_timed = stream != nullptr || described_.time_ms;
  std::vector<CudnnPlan> compiled;
  std::optional<CudnnPlan> too_big;
  std::string why;
  for (auto& configuration : proposed_configurations(*plan.operations, kConfigurations)) {
    try {
      CudnnPlan one = cuda::plan_of(*plan.operations, std::move(configuration));
      if (one.workspace_bytes <= kMostWorkspace_bytes)
        compiled.push_back(std::move(one));
      else if (!too_big)
        too_big = std::move(one);
    } catch (const CudnnError& error) {
      why = error.what;
    }
    if (!is_timed && !compiled.empty()) break;
  }
  if (compiled.empty() && too_big) compiled.push_back(std::move(*too_big));
  if (compiled.empty()) throw CudnnError{why};

  const auto time_ms = [&](std::size_t i) -> std::optional<float> {
    if (described_.time_ms) return described_.time_ms(i);
    plan.plan = std::move(compiled[i]);
    std::optional<float> ms;
    try {
      const DeviceMemory workspace(plan.workspace_bytes());
      ms = median_ms([&] { start(plan, work, operands, workspace.data, *stream); }, *stream);
    } catch (const CudnnError& error) {
      why = error.what;
      cudaGetLastError();  // clears an error that the next launch would report as its own
    }
    compiled[i] = std::move(plan.plan);
    return ms;
  };
  const std::optional<std::size_t> best = is_timed ? fastest_of(compiled.size(), time_ms) : 0;
  if (!best) throw CudnnError{"no engine runs: " + why};
  plan.plan = std::move(compiled[*best]);
}

std::vector<std::string> AttentionRunner::notes() const {
  std::vector<std::string> notes;
  if (from_file_ > 0)
    notes.push_back(
        fmt::format("attention of {} shapes runs as it was found to be fastest before: {}", from_file_, file_.path()));
  if (!file_.note().empty()) notes.push_back(file_.note());
  return notes;
}

std::int64_t AttentionRunner::workspace_bytes(const Attention& work, std::span<const exec::Operand> operands) const {
  return plans_.at(key_of(work, operands))->workspace_bytes();
}

void AttentionRunner::run(const Attention& work, std::span<const exec::Operand> operands, std::byte* workspace,
                          const Stream& stream) {
  try {
    start(*plans_.at(key_of(work, operands)), work, operands, workspace, stream);
  } catch (const CudnnError& error) {
    throw runtime_failure("cuDNN: " + describe(Work(work)) + ": " + error.what);
  }
}

void AttentionRunner::start(const Plan& plan, const Attention& work, std::span<const exec::Operand> operands,
                            std::byte* workspace, const Stream& stream) {
  auto* const on = static_cast<cudaStream_t>(stream.stream);
  // First bytes of k and v in a row.
  const std::int64_t k_at = work.heads * work.head_dim * 2, v_at = k_at + work.kv_heads * work.head_dim * 2;
  const auto at = [](const exec::Operand& operand, std::int64_t bytes) -> void* {
    return static_cast<std::byte*>(operand.data) + bytes;
  };
  float scale = static_cast<float>(work.score_scale) / std::sqrt(static_cast<float>(work.head_dim)),
        kept_share = static_cast<float>(1 - work.dropout), drop_scale = static_cast<float>(1 / (1 - work.dropout)),
        hidden = cudnn().GetVersion() < kInfinityVersion ? std::numeric_limits<float>::lowest()
                                                         : -std::numeric_limits<float>::infinity();
  Bindings bindings;
  bindings.add(Id::q, at(operands[0], 0));
  bindings.add(Id::k, at(operands[0], k_at));
  bindings.add(Id::v, at(operands[0], v_at));
  bindings.add(Id::o, operands[1].data);
  bindings.add(Id::stats, operands[2].data);
  bindings.add(Id::scale, &scale);
  if (plan.shape.is_causal) bindings.add(Id::hidden, &hidden);
  std::byte* left = workspace;
  if (plan.drops()) {
    auto* const seed = reinterpret_cast<std::int64_t*>(left);
    left += plan.seed_bytes();
    write_attention_seed(operands.back(), work.first_head.value(), seed, stream);
    bindings.add(Id::seed, seed);
    bindings.add(Id::offset, seed + 1);
    bindings.add(Id::drop_scale, &drop_scale);
  }
  if (!plan.is_forward) {
    std::byte* const sums = left;
    std::byte* const dq = sums + plan.sums_bytes();
    left = dq + plan.dq_bytes();
    if (cudnn().GetVersion() < kClearsSumsVersion)
      check(cudaMemsetAsync(dq, 0, static_cast<std::size_t>(plan.dq_bytes()), on), "clearing the sums of attention");
    bindings.add(Id::d_o, operands[3].data);
    bindings.add(Id::dq, at(operands[4], 0));
    bindings.add(Id::dk, at(operands[4], k_at));
    bindings.add(Id::dv, at(operands[4], v_at));
    bindings.add(Id::row_sums, sums);
    bindings.add(Id::dq_sums, dq);
    bindings.add(Id::kept_share, &kept_share);
  }
  check_cudnn(cudnn().SetStream(handle_, on));
  execute(handle_, plan.plan, bindings, left);
}

}  // namespace stretto::cuda
