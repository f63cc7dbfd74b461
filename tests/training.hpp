#pragma once
// Shared by tests that cross folders: a tiny scenario, and functions that train it and return its state.
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.hpp"
#include "exec/host/executor.hpp"
#include "exec/serial/serial.hpp"
#include "exec/state/model_state.hpp"
#include "model/overlap/overlap.hpp"
#include "model/schedule/plan.hpp"
#include "model/schedule/residency.hpp"
#include "model/verify/verify.hpp"
#include "tests/cases.hpp"

namespace stretto::testing {

// Returns modes that act without tensor parallelism.
inline std::vector<OverlapMode> data_parallel_modes() {
  std::vector<OverlapMode> modes;
  for (const OverlapMode& mode : overlap_modes())
    if (mode.applies(Parallel{.data_parallel_size = 2})) modes.push_back(mode);
  return modes;
}

// Returns a tiny scenario. Sizes are odd on purpose: none is a power of two or divides another.
inline Scenario tiny_scenario(std::int64_t ranks, const std::string& mode, const std::string& precision = "fp64",
                              std::int64_t global_batch = 24, std::int64_t micro_batch = 1) {
  Scenario scenario;
  scenario.name = "tiny";
  scenario.model = {2, 12, 3, 20, 7, 9, 31, 31};
  scenario.training.precision = precision;
  scenario.training.micro_batch_size = micro_batch;
  scenario.training.global_batch_size = global_batch;
  scenario.training.train_iters = 3;
  scenario.training.lr = 1e-2;
  scenario.training.init_method_std = 0.2;
  scenario.parallel.data_parallel_size = ranks;
  scenario.overlap.bucket_size = 300;
  set_mode(scenario.overlap, find_overlap_mode(mode));
  return scenario;
}

struct Layout {
  std::int64_t dp = 1, tp = 1;
  bool sequence_parallel = false;
  std::int64_t pp = 1, vp = 1;
  std::string split = "";  // pipeline_model_parallel_layout
  std::int64_t group = 0;  // microbatch_group_size_per_vp_stage
  std::int64_t cp = 1;
  std::vector<CpCommType> cp_type = {CpCommType::p2p};  // of layers, repeated; with a2a_p2p pairs exchange heads
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  std::string text() const {
    return "dp " + std::to_string(dp) + " tp " + std::to_string(tp) + (sequence_parallel ? " sp" : "") +
           (cp > 1 ? " cp " + std::to_string(cp) + " " + names_of(cp_type) : "") +
           (pp > 1 ? " pp " + std::to_string(pp) + " vp " + std::to_string(vp) + " " + split + " " + name_of(schedule)
                   : "");
  }
};
// Returns the scenario of a layout. 2 and 3 divide its sizes where they must, and nothing divides the vocabulary.
inline Scenario layout_scenario(const Layout& layout, const std::string& mode, bool llama,
                                const std::string& precision = "fp64", std::int64_t micro_batch = 1,
                                std::int64_t global_batch = 12) {
  Scenario scenario = tiny_scenario(1, mode, precision, global_batch, micro_batch);
  Transformer& model = scenario.model;
  model.hidden_size = 24;
  model.num_attention_heads = 12;
  model.ffn_hidden_size = 18;
  model.seq_length = layout.cp > 1 ? 12 * (layout.cp / 4 + 1) : 6;
  model.max_position_embeddings = std::max(model.max_position_embeddings, model.seq_length);
  model.padded_vocab_size = (model.vocab_size + layout.tp - 1) / layout.tp * layout.tp;
  if (llama) {
    model.normalization = Normalization::rms_norm;
    model.swiglu = true;
    model.position_embedding_type = PositionEmbedding::rope;
    model.num_query_groups = 6;
    model.add_bias_linear = false;
    model.untie_embeddings_and_output_weights = true;
  }
  scenario.parallel = {.data_parallel_size = layout.dp,
                       .tensor_model_parallel_size = layout.tp,
                       .sequence_parallel = layout.sequence_parallel};
  scenario.parallel.context_parallel_size = layout.cp;
  scenario.parallel.pipeline_model_parallel_size = layout.pp;
  scenario.parallel.virtual_pipeline_model_parallel_size = layout.vp;
  scenario.parallel.pipeline_schedule = layout.schedule;
  scenario.parallel.pipeline_model_parallel_layout = layout.split;
  scenario.parallel.microbatch_group_size_per_vp_stage = layout.group;
  if (layout.pp > 1) model.num_layers = 6;
  std::vector<CpCommType>& types = scenario.parallel.cp_comm_type = layout.cp_type;
  for (std::size_t layer = types.size(); types.size() > 1 && std::ssize(types) < model.num_layers; ++layer)
    types.push_back(layout.cp_type[layer % layout.cp_type.size()]);
  if (scenario.parallel.has_cp_comm_type(CpCommType::a2a_p2p))
    scenario.parallel.hierarchical_context_parallel_sizes = {2, layout.cp / 2};
  return scenario;
}

// Replaces the model by one of Llama's style: RMSNorm, SwiGLU, rotary positions, grouped queries, no biases, untied
// head.
inline Scenario with_llama(Scenario scenario) {
  scenario.model = in_llama_style({2, 24, 6, 20, 7, 9, 31, 31});
  scenario.model.num_query_groups = 2;
  scenario.model.rotary_base = 100;
  return scenario;
}

inline exec::TokenSource tiny_tokens(std::int64_t vocab, std::int64_t count = 4096) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = std::byte(random_bits(7, 8, i) % static_cast<std::uint64_t>(vocab));
  return exec::TokenSource::parse(std::move(bytes), "tiny.txt");
}

struct Trained {
  std::vector<double> losses, norms;                    // [step]
  std::vector<exec::FullTensor> gradients, parameters;  // after the last step; gradients before clipping
  std::vector<std::int64_t> allocated_bytes;            // [rank]
};

using ChangeWeights = std::function<void(exec::FullTensor&)>;

// Returns a schedule in the form that executors take, without verifying it.
inline VerifiedSchedule unverified(const Schedule& schedule, const MemoryPlan& plan) {
  return {bind_step(schedule), schedule, plan};
}

// Trains a schedule of `scenario` for `steps` steps. `threaded` selects the executor, `change` is called for each
// tensor of the initial weights. Verifies nothing.
inline Trained train_schedule(const Schedule& schedule, const MemoryPlan& plan, const Scenario& scenario, int steps,
                              bool threaded, std::uint64_t seed = 1, const ChangeWeights& change = {}) {
  std::optional<VerifiedSchedule> threaded_step;
  std::unique_ptr<host::HostExecutor> host;
  std::unique_ptr<serial::SerialExecutor> serial;
  host::HostOptions options;
  // There are no more cores than channels leave room for.
  if (!scenario.cluster.max_ctas.empty()) options.cores_per_device = static_cast<int>(cores_needed(schedule));
  if (threaded)
    host = std::make_unique<host::HostExecutor>(threaded_step.emplace(unverified(schedule, plan)), options);
  else
    serial = std::make_unique<serial::SerialExecutor>(schedule, plan);
  const exec::MemoryOf memory_of = [&](std::int64_t rank) -> host::RankMemory& {
    return threaded ? host->memory(rank) : serial->memory(rank);
  };
  exec::initialise_state(schedule, scenario, memory_of);
  if (change) {
    std::map<std::string, exec::FullTensor> weights;
    for (exec::FullTensor& tensor : exec::gather_state(schedule, memory_of, StatePart::parameters)) {
      change(tensor);
      weights.emplace(tensor.name, std::move(tensor));
    }
    exec::scatter_state(schedule, memory_of, StatePart::parameters,
                        [&](const std::string& name) -> const exec::FullTensor& { return weights.at(name); });
  }
  const exec::TokenSource tokens = tiny_tokens(scenario.model.vocab_size);
  Trained trained;
  for (int step = 0; step < steps; ++step) {
    exec::write_batch(schedule, scenario, tokens, step, memory_of);
    exec::write_hyper(schedule, scenario, step, memory_of);
    if (threaded)
      host->run(1);
    else
      serial->run(1, seed + static_cast<std::uint64_t>(step));
    const exec::StepMetrics metrics = exec::read_metrics(schedule, memory_of);
    trained.losses.push_back(metrics.loss);
    trained.norms.push_back(metrics.gradient_norm);
  }
  trained.gradients = exec::gather_state(schedule, memory_of, StatePart::gradients);
  trained.parameters = exec::gather_state(schedule, memory_of, StatePart::parameters);
  for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank)
    trained.allocated_bytes.push_back(memory_of(rank).bytes());
  return trained;
}

// Verifies and plans too.
inline Trained train(const Scenario& scenario, int steps, bool threaded, std::uint64_t seed = 1,
                     const ChangeWeights& change = {}) {
  const Schedule schedule = build_schedule(scenario);
  const MemoryPlan plan = plan_memory(schedule);
  require_verified(schedule, &plan);
  return train_schedule(schedule, plan, scenario, steps, threaded, seed, change);
}

// Returns ‖a − b‖ / ‖b‖, the largest over the tensors. A tensor that is 0 in exact arithmetic, such as the gradient of
// k_norm.bias without rotary positions, is only rounding: ‖b‖ counts as at least 10⁻⁶ of the norm of all tensors.
inline double worst_relative_difference(const std::vector<exec::FullTensor>& a,
                                        const std::vector<exec::FullTensor>& b) {
  double all = 0;
  for (const exec::FullTensor& tensor : b)
    for (const double value : tensor.values) all += value * value;
  double worst = a.size() == b.size() ? 0 : 1;
  for (std::size_t t = 0; t < a.size() && t < b.size(); ++t) {
    double difference = 0, own = 0;
    for (std::size_t i = 0; i < a[t].values.size(); ++i) {
      difference += (a[t].values[i] - b[t].values[i]) * (a[t].values[i] - b[t].values[i]);
      own += b[t].values[i] * b[t].values[i];
    }
    const double norm = std::max(own, 1e-12 * all);
    const double relative = norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
    if (!(relative <= worst)) worst = relative;  // a NaN is the worst
    if (std::isnan(relative)) return relative;
  }
  return worst;
}

inline bool same_bits(const std::vector<exec::FullTensor>& a, const std::vector<exec::FullTensor>& b) {
  for (std::size_t t = 0; t < a.size(); ++t)
    if (a[t].values != b[t].values) return false;
  return a.size() == b.size();
}

}  // namespace stretto::testing
