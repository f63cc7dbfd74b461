#include "predict/predict_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/memory.hpp"
#include "base/parallel.hpp"
#include "exec/cuda/memory_outside_plan.hpp"
#include "model/build_schedule.hpp"
#include "predict/beyond_measured.hpp"
#include "predict/framework_memory.hpp"
#include "predict/quick_step.hpp"
#include "sim/accelerator/group_span.hpp"
#include "sim/accelerator/kernel_time.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/network/rings.hpp"

namespace stretto::predict {
namespace {

// Returns whether the scenario sets links of its cluster, which a platform of published GPUs has itself.
bool states_links(const Cluster& cluster) {
  const Cluster none;
  return cluster.link_GBps != none.link_GBps || cluster.link_latency_us != none.link_latency_us ||
         cluster.channel_GBps > 0 || !cluster.max_ctas.empty() || cluster.cores_per_device > 0;
}

std::vector<ExposedPart> exposed_parts(const Schedule& schedule, const Breakdown& b, const sim::Platform& platform) {
  std::vector<ExposedPart> parts;
  for (std::size_t c = 0; c < schedule.communicators.size(); ++c) {
    const Communicator& communicator = schedule.communicators[c];
    ExposedPart part{communicator.name, axis_of(communicator.axes), LinkKind::unknown, to_ms(b.exposed[c])};
    if (platform.accelerator)
      part.link =
          sim::span_of(schedule, communicator, platform.accelerator->domain, platform.accelerator->pod).nodes > 1
              ? LinkKind::network
              : LinkKind::nvlink;
    parts.push_back(std::move(part));
  }
  return parts;
}

// Returns the bytes of TransformerEngine's buffers; each overlapped product has one: the hidden states of a
// micro-batch.
std::int64_t userbuffer_bytes(const Schedule& schedule, const FrameworkMemory& framework) {
  const auto hidden = std::find_if(schedule.tensors.begin(), schedule.tensors.end(),
                                   [](const Tensor& tensor) { return tensor.role == TensorRole::d_hidden; });
  if (!framework.userbuffers || hidden == schedule.tensors.end() || !schedule.has_mode("tp_comm_overlap")) return 0;
  const Tensor& tensor = *hidden;
  return static_cast<std::int64_t>(framework.userbuffers->value) * tensor.elements() *
         bytes_of(schedule.storages[tensor.places.front().storage].dtype);
}

// Returns the note on the sequences of documents and on the slowest replica; "" without documents.
std::string documents_note(const Scenario& scenario) {
  const Training& training = scenario.training;
  const PackedSequences& packed = training.packed_sequences;
  if (!packed.any()) return "";
  const std::int64_t replicas = scenario.parallel.data_parallel_size;
  std::string note = fmt::format("documents {}: {:.3g} in a sequence of {} tokens",
                                 name_of(training.document_lengths.kind), packed.documents, scenario.model.seq_length);
  if (packed.filled < 1) note += fmt::format(", {:.1f} % of it padding", 100 * (1 - packed.filled));
  if (training.global_batch_documents > 0)
    note += fmt::format("; global batch of {} sequences for {} documents", training.global_batch_size,
                        training.global_batch_documents);
  const double most =
      slowest_replica(packed, replicas, std::max<std::int64_t>(1, training.global_batch_size / replicas));
  if (most > 1)
    note += fmt::format(
        "; attention of the slowest of {} replicas has {:.2f} times the mean's pairs of tokens, and the "
        "others wait for it",
        replicas, most);
  return note;
}

}  // namespace

PeakRate peak_of(const sim::Platform& platform, const Cluster& cluster, const Schedule& schedule,
                 std::int64_t devices) {
  const Dtype type = schedule.compute_dtype;
  if (platform.accelerator && type == Dtype::bf16) {
    const sim::ProductType of_products = sim::lowest_product_type(schedule);
    return {platform.accelerator->peak_TFLOPs_of(of_products) * 1e12 * double(devices),
            "the data sheet's " + std::string(name_of(of_products)) + " peak"};
  }
  if (platform.accelerator) return {};
  if (platform.gpu) {
    const PeakRate sheet = data_sheet_peak(platform.device, devices, type);
    if (sheet.FLOPs_per_s > 0 || type != Dtype::bf16) return sheet;
    return {platform.gpu->gemm_TFLOPs.value * 1e12 * double(devices), "a large bf16 GEMM"};
  }
  if (type != Dtype::f32) return {};
  // Cores that can compute at once: ranks of a device share its cores.
  const auto cores =
      std::min<std::int64_t>(schedule.placement.ranks_per_device, sim::cores_per_device(platform, cluster));
  return {platform.sgemm_GFLOPs.value * 1e9 * double(cores) * double(devices), "sgemm"};
}

DeviceMemory memory_of(const Schedule& schedule, const MemoryPlan& plan, const sim::Platform& platform,
                       const Training& training, const Framework& framework, std::span<const BoundProgram> programs) {
  DeviceMemory memory{memory_use(schedule, plan), schedule.placement.ranks_per_device, platform.memory_bytes, {}};
  if (!platform.accelerator && !platform.gpu) return memory;
  memory.unsure = kUnsureMemory;
  cuda::DeviceFacts device;
  device.sms = platform.accelerator ? platform.accelerator->sms : platform.gpu->sms;
  device.machine_ranks = schedule.mesh.ranks();
  if (platform.accelerator) {
    device.machine_ranks = platform.accelerator->domain;
    device.multicast = platform.accelerator->multicast;
  }
  const FrameworkMemory& by_framework = framework.memory;
  const bool by_nccl = schedule.placement.ranks_per_device == 1 && schedule.mesh.ranks() > 1;
  // A framework issues its kernels one by one.
  const bool has_graph = training.enable_cuda_graph && !by_framework.is_known;
  // The memory outside the plan is that of the role that needs most of it.
  std::vector<std::int64_t> first_rank;  // [role]
  for (std::size_t role = 0; role < schedule.programs.size(); ++role) {
    Coordinates at;
    at[Coord::pp] = static_cast<std::int64_t>(role);
    first_rank.push_back(schedule.mesh.rank_of(at));
    std::vector<OutsidePlan> outside_plan =
        cuda::memory_outside_plan(schedule, first_rank.back(), device, by_nccl, has_graph, by_framework.is_known);
    if (role == 0 || sum_of(outside_plan) > sum_of(memory.outside_plan)) memory.outside_plan = std::move(outside_plan);
  }
  memory.outside_plan.insert(memory.outside_plan.begin(), cuda::context_outside_plan(device.sms));
  if (platform.accelerator) {
    const Quantity& rest = by_framework.libraries.value_or(platform.accelerator->reserved_bytes);
    memory.outside_plan.push_back({by_framework.libraries ? "code of libraries" : "code of libraries, fragmentation",
                                   static_cast<std::int64_t>(rest.value), rest.source.kind, rest.source.origin});
  }
  if (!by_framework.is_known) return memory;
  if (const std::int64_t bytes = userbuffer_bytes(schedule, by_framework); bytes > 0)
    memory.outside_plan.push_back({"userbuffers of tp_comm_overlap", bytes, by_framework.userbuffers->source.kind,
                                   by_framework.userbuffers->source.origin});
  const std::vector<TensorRole> roles = roles_of_storages(schedule);
  const std::int64_t limit_bytes = memory.device_bytes - memory.reserved_bytes();
  parallel_each(std::ssize(first_rank), [&](std::int64_t at) {
    const auto role = static_cast<std::size_t>(at);
    MemoryUse& use = memory.roles[role];
    const auto known = std::find_if(programs.begin(), programs.end(),
                                    [&](const BoundProgram& program) { return program.rank == first_rank[role]; });
    std::optional<BoundProgram> bound;
    if (known == programs.end()) bound = bind(schedule, first_rank[role]);
    std::string name = std::move(use.role);
    use = role_memory(schedule, plan.roles[role], bound ? *bound : *known, by_framework, limit_bytes,
                      sim::most_rows(schedule, training.expert_loads),
                      training.low_precision.reuse_grad_buf_for_mxfp8_param_ag || training.frozen_base, roles);
    use.role = std::move(name);
  });
  return memory;
}

Engine engine_of(const std::string& name, double backbone_GBps, const sim::Platform& platform,
                 const Scenario& scenario) {
  const bool on_simgrid = name == "simgrid";
  if (!on_simgrid && name != "fluid") throw input_error("engine: expected fluid or simgrid, got \"" + name + "\"");
  // SimGrid shares bandwidth to 1e-9 of a byte a second, and a transfer of more than 100 days cannot be represented.
  constexpr double kLeastGBps = 1e-6;
  if (!std::isfinite(backbone_GBps) || (backbone_GBps != 0 && backbone_GBps < kLeastGBps))
    throw input_error(fmt::format("--backbone-GBps: expected 0 (none) or a number of GB/s from {:g} on, got {:g}",
                                  kLeastGBps, backbone_GBps));
  if (backbone_GBps > 0 && !on_simgrid)
    throw input_error(
        "--backbone-GBps: the closed-form network cannot see flows that share a link; use --engine simgrid");
  Engine engine{{}, platform};
  engine.options.network = on_simgrid ? sim::NetworkKind::simgrid : sim::NetworkKind::fluid;
  engine.options.fabric.backbone_GBps = backbone_GBps;
  if (on_simgrid && platform.accelerator && scenario.parallel.ranks() <= sim::kMostEndpoints)
    sim::carry_spine(*engine.platform.accelerator, engine.options.fabric);
  return engine;
}

namespace {

// Fills in all that is said about a step.
Prediction prediction_of(const Scenario& scenario, const sim::Platform& platform, const sim::SimOptions& options,
                         const ExtrapolatedStep& extrapolated, const sim::Costs& costs) {
  const Schedule& schedule = *extrapolated.schedule;
  const Breakdown b = extrapolated.mean();
  Prediction p;
  p.ranks = schedule.mesh.ranks();
  p.devices = p.ranks / schedule.placement.ranks_per_device;
  p.parallel = scenario.parallel;
  p.micro_batches = scenario.num_microbatches();
  p.simulated_micro_batches = extrapolated.micro_batches;
  p.scenario = scenario.name;
  p.platform = platform.name;
  if (platform.accelerator || platform.gpu) p.device = "GPU";
  p.schedule = schedule.name;
  p.engine = options.network == sim::NetworkKind::simgrid ? "simgrid" : "fluid";
  p.parameters = double(parameter_count(scenario.model));
  p.step_ms = to_ms(extrapolated.step());
  p.steady = extrapolated.result.steady;
  p.has_host = !platform.accelerator || scenario.framework.host.is_modelled();
  p.peak = peak_of(platform, scenario.cluster, schedule, p.devices);
  p.throughput = throughput_of(scenario, p.step_ms, p.devices, p.peak);
  p.breakdown = to_ms(b);
  p.exposed = exposed_parts(schedule, b, platform);
  p.notes = schedule.notes;
  if (const double most = sim::most_rows(schedule, scenario.training.expert_loads); most != 1)
    p.notes.push_back(
        fmt::format("moe_expert_loads {}: the rank with most rows of experts gets {:.2f} times the mean, and "
                    "its group waits for it; times and memory are of this rank",
                    name_of(scenario.training.expert_loads.kind), most));
  if (std::string note = documents_note(scenario); !note.empty()) p.notes.push_back(std::move(note));
  if (!p.throughput.doubt.empty()) p.notes.push_back(p.throughput.doubt);
  if (is_zero_bubble(scenario.parallel.pipeline_schedule) && !scenario.overlap.overlap_p2p_comm)
    p.notes.push_back(std::string("pipeline_schedule \"") + name_of(scenario.parallel.pipeline_schedule) +
                      "\" without overlap_p2p_comm: at every message a stage waits for its neighbour, whose F, B or W "
                      "lasts longer than its own, in every micro-batch; 1F1B waits only while it fills and drains");
  if (platform.accelerator && states_links(scenario.cluster))
    p.notes.push_back("links, channels and cores of [cluster] do not act: platform " + platform.name +
                      " has links of its own");
  if (platform.accelerator)
    for (std::string& note : beyond_measured(extrapolated, costs, platform, scenario.framework))
      p.notes.push_back(std::move(note));
  else if (std::string note = beyond_calibrated(schedule, platform); !note.empty())
    p.notes.push_back(std::move(note));
  if (options.fabric.backbone_GBps > 0 && std::all_of(costs.collective.begin(), costs.collective.end(),
                                                      [](const auto& cost) { return cost.edge_bytes == 0; }))
    p.notes.push_back(
        platform.accelerator
            ? fmt::format(
                  "--backbone-GBps does not act: it lies between nodes, and no communication leaves one of {} GPUs",
                  platform.accelerator->domain)
            : "--backbone-GBps does not act: no communication has a link");
  p.operations = extrapolated.result.operations;
  p.simulate_s = extrapolated.result.simulate_s;
  return p;
}

}  // namespace

PredictedStep predict_step(const Scenario& scenario, const sim::Platform& platform, const sim::SimOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  PredictedStep step;
  step.schedule = build_schedule(scenario, free_memory_bytes());
  // Costs come before the slow work, because they report missing numbers of the platform.
  const sim::Costs costs =
      sim::cost_schedule(step.schedule, platform, scenario.cluster, 1, scenario.framework, scenario.training);
  VerifiedSchedule verified = plan_and_verify(std::move(step.schedule));
  step.schedule = std::move(verified.schedule);
  step.plan = std::move(verified.plan);
  ExtrapolatedStep extrapolated{&step.schedule,
                                scenario.num_microbatches(),
                                sim::simulate(step.schedule, std::move(verified), costs, options),
                                {}};
  const double whole_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  step.prediction = prediction_of(scenario, platform, options, extrapolated, costs);
  // The memory is the one that predict_times() gives: plans of more micro-batches differ by fractions of a percent, in
  // which buffers share addresses.
  step.prediction.memory =
      platform.accelerator && micro_batches_to_simulate(scenario).front() < scenario.num_microbatches()
          ? QuickStep(scenario).memory(platform)
          : memory_of(step.schedule, step.plan, platform, scenario.training, scenario.framework,
                      extrapolated.result.programs);
  step.prediction.whole_s = whole_s;
  step.result = std::move(extrapolated.result);
  return step;
}

Prediction predict_times(const QuickStep& step, const sim::Platform& platform, const sim::SimOptions& options) {
  const Scenario& scenario = step.scenario();
  // A step that runs on this machine is built and planned whole.
  if (!platform.accelerator) return predict_step(scenario, platform, options).prediction;
  const auto begin = std::chrono::steady_clock::now();
  std::string why;
  sim::Costs costs;  // of the schedule that is simulated
  const auto costs_of = [&](const Schedule& schedule) {
    return costs = sim::cost_schedule(schedule, platform, scenario.cluster, 1, scenario.framework, scenario.training);
  };
  // The memory follows from the schedule alone, so both are computed at the same time.
  std::optional<ExtrapolatedStep> extrapolated;
  DeviceMemory memory;
  concurrently([&] { extrapolated.emplace(step.extrapolate(costs_of, options, &why)); },
               [&] { memory = step.memory(platform); });
  const double whole_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  Prediction p = prediction_of(scenario, platform, options, *extrapolated, costs);
  p.memory = std::move(memory);
  p.why_simulated = std::move(why);
  p.whole_s = whole_s;
  return p;
}

}  // namespace stretto::predict
