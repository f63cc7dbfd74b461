#include "tests/mutations.hpp"

#include <cstring>
#include <optional>
#include <random>

#include "base/error.hpp"
#include "model/verify/check.hpp"
#include "model/verify/dataflow.hpp"
#include "tests/mutate.hpp"
#include "tests/training.hpp"

namespace stretto::testing {
namespace {

constexpr int kMutatedSteps = 2;
constexpr std::uint64_t kSeeds = 8;          // orders that must all give equal results
constexpr std::uint64_t kSeedsRejected = 2;  // enough seeds to count a mutation

using Result = std::vector<double>;

struct Subject {
  Scenario scenario;
  Schedule schedule;
  MemoryPlan plan;
  DataFlow flow;
  Result result;
  std::string name;
};

// Returns metrics of all ranks, then all parameters, after kMutatedSteps steps without a pause between them. Nothing
// when it fails.
std::optional<Result> run_serially(const Scenario& scenario, const Schedule& schedule, const MemoryPlan& plan,
                                   std::uint64_t seed) {
  static const exec::TokenSource tokens = tiny_tokens(scenario.model.vocab_size);
  try {
    serial::SerialExecutor executor(schedule, plan);
    const exec::MemoryOf memory_of = [&](std::int64_t rank) -> host::RankMemory& { return executor.memory(rank); };
    // A role that has lost its only user of one of these tensors does not have it.
    for (const TensorId id : {schedule.step_data.hyper, schedule.step_data.metrics})
      for (std::int64_t rank = 0; rank < executor.ranks(); ++rank)
        if (!executor.memory(rank).has(schedule.tensors[id].places.front().storage)) return std::nullopt;
    exec::initialise_state(schedule, scenario, memory_of);
    exec::write_batch(schedule, scenario, tokens, 0, memory_of);
    exec::write_hyper(schedule, scenario, 0, memory_of);
    executor.run(kMutatedSteps, seed);
    Result result;
    for (std::int64_t rank = 0; rank < executor.ranks(); ++rank) {
      const exec::StepMetrics metrics = exec::read_metrics(schedule, memory_of, rank);
      result.insert(result.end(), {metrics.loss, metrics.gradient_norm});
    }
    for (const exec::FullTensor& tensor : exec::gather_state(schedule, memory_of, StatePart::parameters))
      result.insert(result.end(), tensor.values.begin(), tensor.values.end());
    return result;
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool same(const Result& a, const Result& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

Subject make_subject(Scenario scenario, const std::string& name) {
  Subject s;
  s.scenario = std::move(scenario);
  s.name = name + ": ";
  return s;
}

// Builds and runs the subject when it is drawn for the first time: a short list of mutations draws few subjects.
const Subject& prepared(Subject& s) {
  if (!s.result.empty()) return s;
  s.schedule = build_schedule(s.scenario);
  s.plan = plan_memory(s.schedule);
  require_verified(s.schedule, &s.plan);
  s.flow = trace_dataflow(s.schedule, SumOrder::same);
  s.result = run_serially(s.scenario, s.schedule, s.plan, 0).value();
  return s;
}

// How the messages of a pipeline are issued.
struct MessageKnobs {
  const char* name = "batched";
  bool batch = true, overlap = false, warmup_flush = false;
};
constexpr MessageKnobs kMessageKnobs[] = {
    {}, {"side by side", false}, {"overlapped", false, true}, {"overlapped, warm-up and flush too", false, true, true}};

void add_pipelines(std::vector<Subject>& subjects) {
  for (const Layout& layout : {Layout{1, 1, false, 2, 2}, Layout{1, 1, false, 3}, Layout{2, 1, false, 2},
                               Layout{.dp = 2, .pp = 2, .schedule = PipelineSchedule::zb_h1},
                               Layout{.pp = 3, .schedule = PipelineSchedule::zb_h1},
                               Layout{.pp = 2, .vp = 2, .schedule = PipelineSchedule::zb_v},
                               Layout{.pp = 2, .vp = 2, .schedule = PipelineSchedule::dualpipe_v}})
    for (const MessageKnobs& messages : kMessageKnobs)
      for (const std::int64_t micro_batches : {2, 4}) {
        if (layout.schedule == PipelineSchedule::dualpipe_v && micro_batches < 2 * layout.pp) continue;
        const char* mode = layout.dp > 1 ? "overlap_grad_reduce" : "plain";
        Scenario scenario = layout_scenario(layout, mode, false, "fp32", 1, layout.dp * micro_batches);
        scenario.model.num_layers = layout.pp * layout.vp;
        scenario.overlap.batch_p2p_comm = messages.batch;
        scenario.overlap.overlap_p2p_comm = messages.overlap;
        scenario.overlap.overlap_p2p_comm_warmup_flush = messages.warmup_flush;
        subjects.push_back(make_subject(
            scenario, layout.text() + ", " + messages.name + ", " + std::to_string(micro_batches) + " micro-batches"));
      }
}

// Adds subjects in which some of the head's weight gradients are deferred, and a remainder of micro-batches makes
// forward run ahead of backward.
void add_deferral(std::vector<Subject>& subjects) {
  for (const std::int64_t limit : {2, 0}) {
    Scenario scenario = layout_scenario(Layout{1, 1, false, 2, 2, "", 4}, "plain", false, "fp32", 1, 6);
    scenario.model.num_layers = 4;
    scenario.overlap.defer_embedding_wgrad_compute = true;
    scenario.overlap.wgrad_deferral_limit = limit;
    subjects.push_back(make_subject(scenario, "deferral limit " + std::to_string(limit)));
  }
}

void add_unfused(std::vector<Subject>& subjects) {
  for (const Layout& layout : {Layout{1, 1}, Layout{1, 2}})
    for (const auto granularity : {Recompute::Granularity::none, Recompute::Granularity::selective}) {
      Scenario scenario = layout_scenario(layout, "plain", layout.tp > 1, "fp32", 1, 2);
      scenario.training.attention_backend = AttentionBackend::unfused;
      scenario.training.recompute.granularity = granularity;
      scenario.model.attention_dropout = 0.1;
      const char* what = granularity == Recompute::Granularity::none ? ", unfused" : ", unfused, selective";
      subjects.push_back(make_subject(scenario, layout.text() + what));
    }
}

void add_context(std::vector<Subject>& subjects, std::int64_t ranks_per_device) {
  const Layout ring{.dp = 1, .cp = 2}, ring_of_three{.dp = 1, .cp = 3};
  for (const auto& [layout, mode] :
       {std::pair{ring, "plain"}, std::pair{ring, "cp_comm_overlap"}, std::pair{ring_of_three, "cp_comm_overlap"},
        std::pair{Layout{.tp = 2, .sequence_parallel = true, .cp = 2}, "cp_comm_overlap"},
        std::pair{Layout{.dp = 2, .cp = 2}, "overlap_param_gather"},
        std::pair{Layout{.cp = 2, .cp_type = {CpCommType::all_gather}}, "plain"},
        std::pair{Layout{.cp = 2, .cp_type = {CpCommType::a2a}}, "plain"},
        std::pair{Layout{.cp = 2, .cp_type = {CpCommType::a2a}}, "cp_flash_overlap"},
        std::pair{Layout{.cp = 4, .cp_type = {CpCommType::a2a}}, "cp_flash_overlap"},
        std::pair{Layout{.cp = 4, .cp_type = {CpCommType::a2a_p2p}}, "cp_comm_overlap"},
        std::pair{Layout{.cp = 2, .cp_type = {CpCommType::a2a, CpCommType::p2p}}, "cp_comm_overlap"}})
    for (const bool recomputes : {false, true}) {
      Scenario scenario = layout_scenario(layout, mode, layout.cp == 3, "fp32", 1, layout.dp * 2);
      scenario.cluster.ranks_per_device = ranks_per_device;
      if (recomputes) scenario.training.recompute.granularity = Recompute::Granularity::selective;
      subjects.push_back(make_subject(scenario, layout.text() + ", " + mode + (recomputes ? ", selective" : "")));
    }
}

void add_sharded(std::vector<Subject>& subjects, std::int64_t ranks_per_device) {
  for (const Layout& layout : {Layout{2, 1}, Layout{2, 2, true}})
    for (const Sharding sharding : {Sharding::optim_grads, Sharding::optim_grads_params})
      for (const std::int64_t depth : {0, 2}) {
        if ((depth == 0) == (layout.tp > 1)) continue;
        Scenario scenario = layout_scenario(layout, depth > 0 ? "fsdp_comm_overlap" : "plain",
                                            sharding == Sharding::optim_grads, "fp32", 1, layout.dp * 2);
        scenario.model.num_layers = 3;
        scenario.parallel.data_parallel_sharding_strategy = sharding;
        scenario.overlap.fsdp_prefetch_depth = depth;
        scenario.cluster.ranks_per_device = ranks_per_device;
        subjects.push_back(
            make_subject(scenario, layout.text() + ", " + name_of(sharding) + ", depth " + std::to_string(depth)));
      }
}

// Adds sharded subjects with stages, and an embedding that the first and the last stage have.
void add_sharded_stages(std::vector<Subject>& subjects, std::int64_t ranks_per_device) {
  for (const bool reshards : {true, false})
    for (const char* mode : {"plain", "fsdp_comm_overlap"}) {
      const Layout layout{.dp = 2, .pp = 2};
      Scenario scenario = layout_scenario(layout, mode, false, "fp32", 1, 6);
      scenario.model.num_layers = 4;
      scenario.parallel.data_parallel_sharding_strategy = Sharding::optim_grads_params;
      scenario.parallel.reshard_after_forward = reshards;
      scenario.cluster.ranks_per_device = ranks_per_device;
      subjects.push_back(make_subject(scenario, layout.text() + ", ZeRO-3, " + mode + (reshards ? "" : ", kept")));
    }
}

// Adds subjects with several instances of the optimizer, sums in fp32, gathers in fp8, and gathers overlapped with the
// update.
void add_data_parallel(std::vector<Subject>& subjects, std::int64_t ranks_per_device) {
  const auto add = [&](const Layout& layout, const char* mode, const char* precision, const char* what, auto change) {
    Scenario scenario = layout_scenario(layout, mode, true, precision, 1, layout.dp * 2 * layout.pp);
    scenario.cluster.ranks_per_device = ranks_per_device;
    if (layout.pp > 1) scenario.model.num_layers = layout.pp * layout.vp;
    change(scenario);
    subjects.push_back(make_subject(scenario, layout.text() + ", " + mode + ", " + what));
  };
  for (const char* mode : {"plain", "overlap_param_gather"})
    for (const bool in_fp32 : {true, false})
      add({4, 1}, mode, "fp32", "instances", [&](Scenario& s) {
        s.parallel.num_distributed_optimizer_instances = 2;
        s.overlap.grad_reduce_in_fp32 = in_fp32;
      });
  for (const char* mode : {"plain", "fsdp_comm_overlap"})
    add({4, 1}, mode, "fp32", "HSDP", [](Scenario& s) {
      s.parallel.num_distributed_optimizer_instances = 2;
      s.parallel.data_parallel_sharding_strategy = Sharding::optim_grads_params;
    });
  for (const char* mode : {"plain", "overlap_grad_reduce"})
    add({3, 1}, mode, "fp32", "sums in fp32", [](Scenario& s) {
      s.overlap.grad_reduce_in_fp32 = false;
      s.overlap.reduce_scatter_with_fp32_accumulation = true;
    });
  for (const char* mode : {"plain", "overlap_param_gather"})
    add({2, 1}, mode, "bf16", "fp8", [](Scenario& s) { s.overlap.fp8_param_gather = true; });
  add({2, 1, false, 2, 2}, "overlap_param_gather", "fp32", "concurrent with the update",
      [](Scenario& s) { s.overlap.overlap_param_gather_with_optimizer_step = true; });
}

// Adds subjects whose ranks share experts: rows exchanged as many as the router says, or padded and in shards, and
// tokens gathered; in pairs of passes, too.
void add_experts(std::vector<Subject>& subjects, std::int64_t ranks_per_device) {
  const auto add = [&](const char* what, auto change) {
    Scenario scenario = layout_scenario({2, 1}, "plain", true, "fp32", 1, 4);
    scenario.model.experts.num_moe_experts = 4;
    scenario.model.experts.moe_ffn_hidden_size = 6;
    scenario.parallel.expert_model_parallel_size = 2;
    scenario.cluster.ranks_per_device = ranks_per_device;
    change(scenario);
    subjects.push_back(make_subject(scenario, std::string("experts, ") + what));
  };
  add("exchanged", [](Scenario&) {});
  add("pairs of passes",
      [](Scenario& s) { s.overlap.overlap_moe_expert_parallel_comm = s.overlap.delay_wgrad_compute = true; });
  add("gathered", [](Scenario& s) { s.parallel.moe_token_dispatcher_type = TokenDispatcher::allgather; });
  add("in shards", [](Scenario& s) {
    s.parallel.moe_pad_expert_input_to_capacity = s.overlap.ep_flash_overlap = true;
    s.parallel.moe_expert_capacity_factor = 2;
  });
}

std::vector<Subject> make_subjects(std::int64_t ranks_per_device) {
  std::vector<Subject> subjects;
  for (const OverlapMode& mode : overlap_modes())
    for (const Layout& layout : {Layout{2, 1}, Layout{3, 1}, Layout{1, 2}, Layout{2, 2, true}})
      for (const bool fp32 : {true, false})
        for (const std::int64_t micro_batches : {1, 2}) {
          Scenario scenario = layout.tp == 1
                                  ? tiny_scenario(layout.dp, mode.name, "fp32", layout.dp * micro_batches)
                                  : layout_scenario(layout, mode.name, false, "fp32", 1, layout.dp * micro_batches);
          if (!mode.applies(scenario.parallel)) continue;
          scenario.overlap.grad_reduce_in_fp32 = fp32;
          scenario.cluster.ranks_per_device = ranks_per_device;
          if (layout.tp == 1 && layout.dp == 2 && micro_batches == 2) scenario = with_llama(scenario);
          subjects.push_back(make_subject(scenario, mode.name + ", " + layout.text() + ", " + (fp32 ? "fp32" : "bf16") +
                                                        ", " + std::to_string(micro_batches) + " micro-batches"));
        }
  add_pipelines(subjects);
  add_deferral(subjects);
  add_unfused(subjects);
  add_context(subjects, ranks_per_device);
  add_sharded(subjects, ranks_per_device);
  add_sharded_stages(subjects, ranks_per_device);
  add_data_parallel(subjects, ranks_per_device);
  add_experts(subjects, ranks_per_device);
  return subjects;
}

bool is_harmful(const Subject& subject, const Schedule& schedule, const MemoryPlan& plan, std::uint64_t seeds) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const std::optional<Result> result = run_serially(subject.scenario, schedule, plan, seed);
    if (!result || !same(*result, subject.result)) return true;
  }
  return false;
}

void judge(const Subject& subject, const Mutant& mutant, MutationReport& report) {
  ++report.mutations;
  MemoryPlan plan = subject.plan;
  std::string why;
  bool by_flow = false;
  try {
    plan = mutant.plan ? *mutant.plan : plan_memory(mutant.schedule);
    if (const auto violations = verify(mutant.schedule, &plan, 1); !violations.empty()) {
      why = violations.front().message;
    } else if (const auto lines = differences(subject.flow, trace_dataflow(mutant.schedule, SumOrder::same));
               !lines.empty()) {
      why = lines.front();
      by_flow = true;
    }
  } catch (const Error& error) {
    why = error.what();
  }
  const bool rejected = !why.empty();
  report.rejected += rejected;
  report.rejected_by_flow += by_flow;
  if (!check_form(mutant.schedule, 1).empty()) {
    ++report.malformed;
    if (mutant.harmless) report.false_alarms.push_back(subject.name + mutant.what + "; " + why);
    return;
  }
  const bool harmful = is_harmful(subject, mutant.schedule, plan, rejected ? kSeedsRejected : kSeeds);
  report.harmful += harmful;
  report.rejected_unchanged += rejected && !harmful;
  report.of_instances += harmful && mutant.of_instances;
  if (harmful && (!rejected || (by_flow && mutant.of_instances)))
    report.missed.push_back(subject.name + mutant.what + (by_flow ? "; " + why : ""));
  if (mutant.harmless && (rejected || harmful))
    report.false_alarms.push_back(subject.name + mutant.what + (rejected ? "; " + why : "; the result changes"));
}

}  // namespace

MutationReport run_mutations(int count, std::uint64_t seed) {
  MutationReport report;
  std::mt19937_64 random(seed);
  std::vector<Subject> subjects = make_subjects(0);
  while (report.mutations < count) {
    const Subject& subject = prepared(subjects[random() % subjects.size()]);
    judge(subject, mutate(subject.schedule, subject.plan, random), report);
  }
  return report;
}

MutationReport run_folded_mutations(int count, std::uint64_t seed) {
  MutationReport report;
  std::mt19937_64 random(seed);
  std::vector<Subject> subjects = make_subjects(1);
  // There are two ranks a device, so a representative's neighbours may be folded away.
  for (const char* mode : {"tp_comm_overlap", "tp_comm_ring_exchange", "tp_flash_overlap"}) {
    Scenario scenario = layout_scenario(Layout{1, 4, true}, mode, false, "fp32", 1, 2);
    scenario.cluster.ranks_per_device = 2;
    scenario.model.ffn_hidden_size = 20;
    scenario.model.seq_length = 8;
    for (int weight = 0; weight < 6; ++weight) subjects.push_back(make_subject(scenario, std::string(mode) + ", tp 4"));
  }
  while (report.mutations < count) {
    const Subject& subject = prepared(subjects[random() % subjects.size()]);
    if (const auto mutant = mutate_folded_rank(subject.schedule, subject.plan, random)) judge(subject, *mutant, report);
  }
  return report;
}

}  // namespace stretto::testing
