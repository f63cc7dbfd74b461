#include "exec/cuda/module/attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "exec/cuda/kernels/attention_seed.hpp"
#include "exec/cuda/module/attention_graph.hpp"
#include "exec/cuda/module/attention_operands.hpp"
#include "exec/cuda/module/attention_support.hpp"
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
  std::int64_t sums_bytes() const { return is_forward ? 0 : rounded_up(shape.b * shape.h * shape.queries * 4); }
  std::int64_t dq_bytes() const { return is_forward ? 0 : rounded_up(shape.b * shape.h * shape.queries * shape.d * 4); }
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

AttentionRunner::Key AttentionRunner::key_of(const AttentionShape& shape, bool is_forward) {
  return {is_forward,
          shape.b,
          shape.h,
          shape.hk,
          shape.queries,
          shape.keys,
          shape.d,
          shape.q.ld,
          shape.q.sequence,
          shape.kv.ld,
          shape.kv.sequence,
          shape.out.ld,
          shape.out.sequence,
          shape.dq.ld,
          shape.dq.sequence,
          shape.dkv.ld,
          shape.dkv.sequence,
          shape.is_causal,
          std::bit_cast<std::int64_t>(shape.dropout)};
}

std::string AttentionRunner::refusal_of(const Attention& work, std::span<const exec::Operand> operands) const {
  return missing_.empty() ? refusal_of_cudnn(cudnn().GetVersion(), work, operands) : missing_;
}

const AttentionRunner::Plan* AttentionRunner::plan_at(const Key& key) const {
  const auto found = plans_.find(key);
  return found == plans_.end() ? nullptr : found->second.get();
}

bool AttentionRunner::prepare(const Attention& work, std::span<const exec::Operand> operands, const Stream* stream) {
  if (std::string refusal = refusal_of(work, operands); !refusal.empty()) {
    why_not_ = std::move(refusal);
    return false;
  }
  const AttentionOperands regions(work, operands);
  for (std::size_t i = 0; i < regions.count(); ++i) {
    const AttentionShape shape = regions.shape_of(i);
    const auto [at, fresh] = plans_.try_emplace(key_of(shape, work.pass == Pass::forward));
    if (fresh) {
      try {
        at->second = plan_of(shape, {work, operands, i, stream});
      } catch (const CudnnError& error) {
        why_not_ = error.what;
      }
    }
    if (at->second == nullptr) return false;
  }
  return true;
}

bool AttentionRunner::has_plan(const Attention& work, std::span<const exec::Operand> operands) const {
  if (!refusal_of(work, operands).empty()) return false;
  const AttentionOperands regions(work, operands);
  for (std::size_t i = 0; i < regions.count(); ++i)
    if (plan_at(key_of(regions.shape_of(i), work.pass == Pass::forward)) == nullptr) return false;
  return true;
}

PlanFile::Numbers AttentionRunner::engine_of(const Attention& work, std::span<const exec::Operand> operands) const {
  if (!has_plan(work, operands)) return {};
  const AttentionShape shape = AttentionOperands(work, operands).shape_of(0);
  return numbers_of(*plan_at(key_of(shape, work.pass == Pass::forward))->plan.configuration);
}

std::unique_ptr<AttentionRunner::Plan> AttentionRunner::plan_of(const AttentionShape& shape, const Trial& trial) {
  const bool is_forward = trial.work.pass == Pass::forward;
  auto plan = std::make_unique<Plan>(shape, is_forward, CudnnTarget{handle_, described_.json});
  const Key key = key_of(shape, is_forward);
  const PlanFile::Numbers numbers(key.begin(), key.end());
  if (take_kept(*plan, numbers)) {
    ++from_file_;
  } else {
    take_fastest(*plan, trial);
    if (trial.stream != nullptr || described_.time_ms) file_.put(numbers, numbers_of(*plan->plan.configuration));
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

void AttentionRunner::take_fastest(Plan& plan, const Trial& trial) {
  const bool is_timed = trial.stream != nullptr || described_.time_ms;
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
      const AttentionOperands regions(trial.work, trial.operands);
      const DeviceMemory memory(regions.scratch_bytes() + plan.workspace_bytes());
      const AttentionPlaces places = regions.places_of(trial.region, memory.data);
      std::byte* const workspace = memory.data + regions.scratch_bytes();
      regions.begin(memory.data, *trial.stream);  // copies of operands hold their numbers
      regions.before(trial.region, memory.data, *trial.stream);
      ms = median_ms([&] { start(plan, trial.work, trial.operands, places, workspace, *trial.stream); }, *trial.stream);
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
  const AttentionOperands regions(work, operands);
  std::int64_t of_graphs = 0;
  for (std::size_t i = 0; i < regions.count(); ++i)
    of_graphs =
        std::max(of_graphs, plan_at(key_of(regions.shape_of(i), work.pass == Pass::forward))->workspace_bytes());
  return regions.scratch_bytes() + of_graphs;
}

void AttentionRunner::run(const Attention& work, std::span<const exec::Operand> operands, std::byte* workspace,
                          const Stream& stream) {
  const AttentionOperands regions(work, operands);
  regions.begin(workspace, stream);
  // The last region has the most keys, so it writes gradients of keys to which others are added.
  for (std::size_t i = regions.count(); i-- > 0;) {
    regions.before(i, workspace, stream);
    try {
      start(*plan_at(key_of(regions.shape_of(i), work.pass == Pass::forward)), work, operands,
            regions.places_of(i, workspace), workspace + regions.scratch_bytes(), stream);
    } catch (const CudnnError& error) {
      throw runtime_failure("cuDNN: " + describe(Work(work)) + ": " + error.what);
    }
    regions.after(i, workspace, stream);
  }
  regions.end(workspace, stream);
}

void AttentionRunner::start(const Plan& plan, const Attention& work, std::span<const exec::Operand> operands,
                            const AttentionPlaces& places, std::byte* workspace, const Stream& stream) {
  auto* const on = static_cast<cudaStream_t>(stream.stream);
  float scale = static_cast<float>(work.score_scale) / std::sqrt(static_cast<float>(work.head_dim)),
        kept_share = static_cast<float>(1 - work.dropout), drop_scale = static_cast<float>(1 / (1 - work.dropout)),
        hidden = cudnn().GetVersion() < kInfinityVersion ? std::numeric_limits<float>::lowest()
                                                         : -std::numeric_limits<float>::infinity();
  Bindings bindings;
  bindings.add(Id::q, places.q);
  bindings.add(Id::k, places.k);
  bindings.add(Id::v, places.v);
  bindings.add(Id::o, places.o);
  bindings.add(Id::stats, places.stats);
  bindings.add(Id::scale, &scale);
  if (plan.shape.is_causal) bindings.add(Id::hidden, &hidden);
  auto queries = static_cast<std::int32_t>(plan.shape.queries), keys = static_cast<std::int32_t>(plan.shape.keys);
  if (plan.shape.is_shifted()) {
    bindings.add(Id::queries, &queries);
    bindings.add(Id::keys, &keys);
  }
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
    bindings.add(Id::d_o, places.d_o);
    bindings.add(Id::dq, places.dq);
    bindings.add(Id::dk, places.dk);
    bindings.add(Id::dv, places.dv);
    bindings.add(Id::row_sums, sums);
    bindings.add(Id::dq_sums, dq);
    bindings.add(Id::kept_share, &kept_share);
  }
  check_cudnn(cudnn().SetStream(handle_, on));
  execute(handle_, plan.plan, bindings, left);
}

}  // namespace stretto::cuda
