#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/statistics.hpp"
#include "base/steal.hpp"
#include "base/values_of.hpp"
#include "calibrate/notebook.hpp"
#include "calibrate/probes/probes.hpp"
#include "calibrate/probes/run.hpp"
#include "calibrate/probes/step_run.hpp"

namespace stretto::calibrate {
namespace {

// Shapes over the range of sizes that train in reasonable time on a CPU.
constexpr StepShape kShapes[] = {
    {128, 4, 128, 2, 256},    {128, 2, 64, 16, 1024, 1}, {192, 6, 96, 4, 512},  {256, 4, 128, 4, 256},
    {256, 8, 256, 4, 2048},   {320, 5, 64, 4, 768, 1},   {384, 6, 256, 2, 256}, {384, 12, 128, 8, 512},
    {512, 8, 128, 2, 4096},   {512, 16, 256, 4, 256, 4}, {640, 10, 64, 4, 256}, {768, 12, 64, 4, 512},
    {256, 4, 128, 1, 512, 2}, {640, 10, 128, 1, 256, 5},
};
// Indices of shapes that also run with one rank and with two on every core: sharing is a ratio to the step alone.
constexpr std::size_t kShared[] = {3, 6};
// Shapes that two ranks run, which alternate on one core. They have operations that only such ranks have: a cut model
// (statistics of the vocabulary, sums of partial results), or gradients reduced in bf16.
constexpr StepShape kCut[] = {{64, 2, 128, 2, 256}, {64, 2, 64, 8, 1024},  {64, 2, 256, 2, 4096},
                              {64, 2, 96, 4, 2048}, {256, 2, 128, 4, 256}, {384, 2, 128, 8, 256}};
constexpr StepShape kReduced[] = {{64, 2, 64, 1, 256}, {192, 2, 32, 1, 256}, {512, 4, 32, 1, 1024}};
// Shapes with context parallelism: four ranks run them as a ring, for the kernels that merge and sum the results of its
// steps, and two ranks run them with all-to-all, which swaps tokens for heads.
constexpr StepShape kContext[] = {
    {64, 2, 128, 2, 256}, {128, 4, 256, 4, 256}, {256, 4, 512, 2, 256}, {512, 8, 64, 4, 256}};
// Shapes with experts, for their products and all that moves tokens: number of experts, and their width.
struct ExpertShape {
  StepShape shape;
  std::int64_t experts, ffn;
};
constexpr ExpertShape kExperts[] = {{{128, 4, 128, 2, 256, 4}, 4, 256},
                                    {{256, 4, 64, 4, 256, 4}, 8, 128},
                                    {{256, 4, 256, 2, 256, 4}, 2, 512},
                                    {{512, 8, 128, 1, 256, 8}, 16, 256},
                                    {{384, 6, 256, 1, 256, 6}, 32, 64}};
// Shapes with multi-latent attention.
constexpr StepShape kLatent[] = {{128, 4, 128, 2, 256, 4}, {256, 4, 64, 4, 256, 4}, {384, 6, 256, 1, 256, 6}};
// Shapes that run in bf16 and in low precision: sides of all products are multiples of 128. Each recipe takes every
// other one. Two ranks share sequences in those of kGathered, whose halves are such multiples too, and so gather codes
// and transpose what was gathered.
constexpr StepShape kPrecise[] = {{128, 4, 128, 1, 256}, {256, 4, 128, 2, 512}, {256, 8, 256, 1, 256},
                                  {384, 6, 128, 3, 256}, {512, 8, 128, 2, 256}, {640, 10, 128, 1, 256}};
constexpr StepShape kGathered[] = {{256, 4, 256, 1, 256}, {512, 8, 256, 1, 256}};
// Shapes with experts whose products are of codes. Delayed scaling and NVFP4 have none.
constexpr ExpertShape kPreciseExperts[] = {{{256, 4, 128, 2, 256, 4}, 4, 256}, {{128, 4, 128, 2, 256, 4}, 2, 512}};
// Shapes for attention alone, whose cost has more terms than the shapes above can distinguish: heads of 16 to 128,
// sequences shorter than a block of queries and much longer, and some that end within a block. They also run with
// dropout, and then unfused.
constexpr StepShape kAttention[] = {
    {256, 8, 40, 10, 256, 0, 1},  {512, 4, 64, 6, 256, 0, 1},  {256, 4, 96, 4, 256, 0, 1},
    {192, 12, 72, 5, 256, 0, 1},  {128, 8, 136, 3, 256, 0, 1}, {768, 12, 136, 3, 256, 0, 1},
    {384, 12, 160, 2, 256, 0, 1}, {256, 8, 200, 2, 256, 0, 1}, {512, 4, 256, 2, 256, 0, 1},
    {256, 4, 320, 1, 256, 0, 1},  {256, 8, 384, 1, 256, 0, 1}, {256, 4, 512, 1, 256, 0, 1},
    {128, 8, 512, 1, 256, 0, 1},
};
// Indices of shapes that run again with dropout, for the operations that then differ.
constexpr std::size_t kDropping[] = {0, 2, 3, 4, 6, 8, 10};
constexpr int kTurns = 6;
using Steps = std::vector<std::unique_ptr<StepRun>>;

// The measurements of one turn.
struct Turn {
  std::vector<StepRun::Times> times;  // [step], over all steps
  std::vector<double> one_GFLOPs, all_GFLOPs;
  double watched_us = 0, lost_us = 0;  // time that others took, seen by spinning threads
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Turn, times, one_GFLOPs, all_GFLOPs, watched_us, lost_us)

std::vector<Sample> samples_of(const Steps& steps) {
  std::vector<Sample> samples;
  for (const auto& step : steps)
    for (Sample& sample : step->samples()) samples.push_back(std::move(sample));
  return samples;
}

}  // namespace

StepSamples probe_steps(const MachineOf& machine_of, int cores, Notebook& notebook,
                        const std::function<void(const std::string&)>& progress) {
  const Machine machine = machine_of(cores), one_core = machine_of(1);
  Steps alone, filled, shared, cut, reduced, context, dropping, attending, unfused, experts, precise;
  for (const StepShape& shape : kShapes) alone.push_back(std::make_unique<StepRun>(scenario_of(shape, 1, 1), machine));
  for (const StepShape& shape : kCut) cut.push_back(std::make_unique<StepRun>(scenario_of(shape, 2, 2), one_core));
  for (const StepShape& shape : kReduced) {
    Scenario scenario = scenario_of(shape, 2, 1);
    scenario.overlap.grad_reduce_in_fp32 = false;
    reduced.push_back(std::make_unique<StepRun>(scenario, one_core));
  }
  const auto dropping_of = [&](const StepShape& shape, AttentionBackend backend) {
    Scenario scenario = scenario_of(shape, 1, 1);
    scenario.model.hidden_dropout = scenario.model.attention_dropout = 0.1;
    scenario.training.attention_backend = backend;
    return std::make_unique<StepRun>(scenario, machine);
  };
  for (const StepShape& shape : kContext)
    for (const auto& [type, ranks] : {std::pair{CpCommType::p2p, 4}, std::pair{CpCommType::a2a, 2}}) {
      Scenario scenario = scenario_of(shape, 1, 1);
      scenario.parallel.context_parallel_size = ranks;
      scenario.parallel.cp_comm_type = {type};
      context.push_back(std::make_unique<StepRun>(scenario, one_core));
    }
  for (const auto& [shape, count, ffn] : kExperts) {
    Scenario scenario = scenario_of(shape, 1, 1);
    add_experts({count, ffn}, scenario.model);
    experts.push_back(std::make_unique<StepRun>(scenario, machine));
    if (count > 2) {  // two ranks share the experts: they count rows, and sort those that come
      Scenario sharing = scenario_of(shape, 2, 1);
      sharing.model = scenario.model;
      sharing.parallel.expert_model_parallel_size = 2;
      context.push_back(std::make_unique<StepRun>(sharing, one_core));
    }
    add_experts({count, ffn, true}, scenario.model);
    experts.push_back(std::make_unique<StepRun>(scenario, machine));
  }
  for (const StepShape& shape : kLatent) {
    Scenario scenario = scenario_of(shape, 1, 1);
    const std::int64_t head = scenario.model.head_dim();
    scenario.model.latent = {.multi_latent_attention = true,
                             .q_lora_rank = 4 * head,
                             .kv_lora_rank = 2 * head,
                             .qk_head_dim = head,
                             .qk_pos_emb_head_dim = head / 2,
                             .v_head_dim = head};
    scenario.model.qk_layernorm = true;
    experts.push_back(std::make_unique<StepRun>(scenario, machine));
  }
  // The gated delta rule, and then Mamba-2, in all layers.
  for (const StepShape& shape : kLatent) {
    Scenario scenario = scenario_of(shape, 1, 1);
    const std::int64_t heads = scenario.model.num_attention_heads, head = scenario.model.head_dim();
    scenario.model.gated_delta = {std::vector<std::int64_t>(static_cast<std::size_t>(scenario.model.num_layers), 1),
                                  4,
                                  head,
                                  head,
                                  heads / 2,
                                  heads};
    if (scenario.model.num_layers == 1) scenario.model.gated_delta.linear_attention_freq = {2};
    experts.push_back(std::make_unique<StepRun>(scenario, machine));
    scenario.model.gated_delta = {};
    scenario.model.mamba = {std::string(static_cast<std::size_t>(scenario.model.num_layers), 'M'), 2 * head, head,
                            heads / 2, heads};
    experts.push_back(std::make_unique<StepRun>(scenario, machine));
  }
  const auto in_precision = [](Scenario scenario, const std::optional<LowPrecision>& low, bool transposes) {
    scenario.training.precision = "bf16";
    if (low) scenario.training.low_precision = *low;
    scenario.training.low_precision.fp8_transposes = transposes;
    return scenario;
  };
  std::vector<std::optional<LowPrecision>> precisions = {std::nullopt};
  for (const auto recipe : values_of<LowPrecision::Fp8Recipe>())
    precisions.push_back(LowPrecision{.fp8_format = LowPrecision::Fp8Format::hybrid, .fp8_recipe = recipe});
  precisions.push_back(LowPrecision{.fp4_format = LowPrecision::Fp4Format::e2m1});
  for (std::size_t p = 0; p < precisions.size(); ++p) {
    const std::optional<LowPrecision>& low = precisions[p];
    const bool has_choice = low && low->fp8_format != LowPrecision::Fp8Format::none &&
                            low->fp8_recipe != LowPrecision::Fp8Recipe::mxfp8;  // fp8_transposes acts
    for (std::size_t i = 0; i < std::size(kPrecise); ++i) {
      if (low && i % 2 != p % 2) continue;
      const Scenario scenario = scenario_of(kPrecise[i], 1, 1);
      precise.push_back(std::make_unique<StepRun>(in_precision(scenario, low, false), machine));
      // Only casts differ, and those of a few matrices suffice.
      if (has_choice && i < 2) precise.push_back(std::make_unique<StepRun>(in_precision(scenario, low, true), machine));
    }
    if (low && low->fp8_format != LowPrecision::Fp8Format::none && low->fp8_recipe != LowPrecision::Fp8Recipe::delayed)
      for (const auto& [shape, count, ffn] : kPreciseExperts) {
        Scenario scenario = scenario_of(shape, 1, 1);
        add_experts({count, ffn}, scenario.model);
        precise.push_back(std::make_unique<StepRun>(in_precision(scenario, low, false), machine));
        if (low->fp8_recipe != LowPrecision::Fp8Recipe::mxfp8) continue;
        // Two ranks share the experts and exchange codes.
        LowPrecision sends = *low;
        sends.fp8_format = LowPrecision::Fp8Format::e4m3;
        sends.moe_dispatch_fwd_dtype = sends.moe_combine_bwd_dtype = LowPrecision::WireDtype::mxfp8;
        Scenario sharing = scenario_of(shape, 2, 1);
        sharing.model = scenario.model;
        sharing.parallel.expert_model_parallel_size = 2;
        precise.push_back(std::make_unique<StepRun>(in_precision(sharing, sends, false), one_core));
      }
    for (const StepShape& shape : kGathered) {
      if (!low || low->fp8_recipe == LowPrecision::Fp8Recipe::mxfp8) continue;  // these transpose nothing
      Scenario scenario = in_precision(scenario_of(shape, 2, 2), low, true);
      scenario.overlap.tp_comm_overlap = false;
      scenario.overlap.tp_comm_overlap_cfg.clear();
      precise.push_back(std::make_unique<StepRun>(scenario, one_core));
    }
  }
  const auto add_dropping = [&](const StepShape& shape) {
    dropping.push_back(dropping_of(shape, AttentionBackend::fused));
  };
  for (const std::size_t i : kDropping) add_dropping(kShapes[i]);
  for (const StepShape& shape : kAttention) {
    attending.push_back(std::make_unique<StepRun>(scenario_of(shape, 1, 1), machine));
    add_dropping(shape);
    unfused.push_back(dropping_of(shape, AttentionBackend::unfused));
  }
  for (const std::size_t i : kShared) {
    if (cores > 1) filled.push_back(std::make_unique<StepRun>(scenario_of(kShapes[i], cores, 1), machine));
    shared.push_back(std::make_unique<StepRun>(scenario_of(kShapes[i], 2 * cores, 1), machine));
  }
  SgemmYardstick one_core_busy(1, cores), all_cores_busy(cores, cores);
  std::vector<StepRun*> all;
  for (const Steps* steps :
       {&alone, &filled, &shared, &cut, &reduced, &context, &dropping, &attending, &unfused, &experts, &precise})
    for (const auto& step : *steps) all.push_back(step.get());
  const DetourProbe detours(cores);
  double watched_us = 0, lost_us = 0;
  Undisturbed undisturbed(kTurns * static_cast<std::int64_t>(alone.size()));
  std::vector<double> one_GFLOPs, all_GFLOPs;
  for (int number = 1; number <= kTurns; ++number) {
    const std::string name =
        "training steps of " + std::to_string(alone.size()) + " shapes, turn " + std::to_string(number);
    const auto measure = [&] {
      Turn turn;
      turn.times.resize(all.size());
      const auto run = [&](StepRun& step) {
        progress(name + " of " + std::to_string(kTurns));
        const auto place = static_cast<std::size_t>(std::find(all.begin(), all.end(), &step) - all.begin());
        for (auto& [op, us] : step.run(undisturbed)) {
          std::vector<double>& so_far = turn.times[place][op];
          so_far.insert(so_far.end(), us.begin(), us.end());
        }
      };
      for (std::size_t i = 0; i < alone.size(); ++i) {
        run(*alone[i]);
        if (i % 3 == 2) turn.one_GFLOPs.push_back(one_core_busy.run_GFLOPs());
      }
      for (const Steps* steps : {&cut, &reduced, &context, &dropping, &attending, &unfused, &experts, &precise})
        // Low precision is emulated slowly, and two turns suffice for its medians.
        if (steps != &precise || number % 3 == 1)
          for (const auto& step : *steps) run(*step);
      for (int again = 0; again < 2; ++again) {  // the ratios rest on few shapes, so these run more often
        for (const auto& step : filled) run(*step);
        turn.all_GFLOPs.push_back(all_cores_busy.run_GFLOPs());
        for (const auto& step : shared) run(*step);
        turn.all_GFLOPs.push_back(all_cores_busy.run_GFLOPs());
        for (const std::size_t i : kShared) run(*alone[i]);
        turn.one_GFLOPs.push_back(one_core_busy.run_GFLOPs());
        const DetourProbe::Sample jumps = detours.run();
        turn.watched_us += jumps.watched_us;
        turn.lost_us += jumps.lost_us;
      }
      return turn;
    };
    const Turn turn = notebook.part(name, measure);
    if (turn.times.size() != all.size())
      throw runtime_failure(notebook.path() + ": is of another calibration than this one; remove it");
    for (std::size_t i = 0; i < all.size(); ++i) all[i]->add(turn.times[i]);
    one_GFLOPs.insert(one_GFLOPs.end(), turn.one_GFLOPs.begin(), turn.one_GFLOPs.end());
    all_GFLOPs.insert(all_GFLOPs.end(), turn.all_GFLOPs.begin(), turn.all_GFLOPs.end());
    watched_us += turn.watched_us;
    lost_us += turn.lost_us;
  }
  const std::string origin = "sgemm 1024 cubed, between the training steps, ";
  StepSamples samples;
  samples.lost_share = watched_us > lost_us ? lost_us / (watched_us - lost_us) : 0;
  samples.sgemm_GFLOPs = {median(one_GFLOPs), {"measured", origin + "one core busy", spread_pct(one_GFLOPs)}};
  samples.sgemm_filled_GFLOPs = {median(all_GFLOPs),
                                 {"measured", origin + "all cores busy, of one", spread_pct(all_GFLOPs)}};
  samples.alone = samples_of(alone);
  // Adds samples of operations that have no cost yet; of attention, all samples.
  const auto add = [&](const Steps& steps, bool is_attention) {
    std::set<std::string> known;
    for (const Sample& sample : samples.alone) known.insert(sample.key);
    for (Sample& sample : samples_of(steps))
      if (is_attention ? sample.cls == sim::DemandClass::attention : !known.contains(sample.key))
        samples.alone.push_back(std::move(sample));
  };
  for (const Steps* steps : {&cut, &reduced, &context, &dropping, &unfused, &experts, &precise}) add(*steps, false);
  add(attending, true);
  samples.filled = samples_of(filled);
  samples.shared = samples_of(shared);
  return samples;
}

}  // namespace stretto::calibrate
