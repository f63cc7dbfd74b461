// Random what-ifs: scenarios over every knob, on shipped platforms with shipped profiles. Two simulations give equal
// steps, the parts of a step add up, and more bandwidth, more rate or less latency does not make it slower. More
// micro-batches or layers do not make it faster, and one replica more does not make it much longer.
//
// The relations of speeds have a limit. A schedule fixes the order of each lane, not the moments at which operations of
// two lanes meet: a kernel that ends earlier may become concurrent with a collective that slows it, or a request may
// come just after another one in the queue for a core. Lists of tasks with fixed priorities have such anomalies
// (Graham, Bounds on multiprocessing timing anomalies, SIAM J. Appl. Math. 17(2), 1969). So the relation is exact where
// nothing competes (kMostRounding), and elsewhere holds up to kMostAnomaly.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "model/build_schedule.hpp"
#include "predict/few_micro_batches.hpp"
#include "predict/predict_step.hpp"
#include "predict/quick_step.hpp"
#include "sim/accelerator/group_span.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "tests/cases.hpp"
#include "tests/draw.hpp"
#include "tests/random_layout.hpp"

namespace stretto::testing {
namespace {

// Times of operations are rounded to picoseconds, and the steady period to 1e-6 (docs/simulation.md).
constexpr double kMostRounding = 2e-6;
// The largest value in 5,000 what-ifs, and some more.
constexpr double kMostAnomaly = 0.05;
// One replica more where no group leaves its domain for it: collectives of one member more, over one card more.
constexpr double kMostOfReplica = 0.3;

struct Better {
  const char* name;
  std::function<void(Scenario&, sim::Platform&)> change;
};

std::vector<Better> of_gpus() {
  const auto accelerator = [](auto change) {
    return [change](Scenario&, sim::Platform& platform) { change(*platform.accelerator); };
  };
  return {{"twice the rate of NVLink", accelerator([](auto& a) { a.nvlink.GBps.value *= 2; })},
          {"twice the rate of the network", accelerator([](auto& a) { a.network.GBps.value *= 2; })},
          {"half the latency of links",
           accelerator([](auto& a) { a.nvlink.latency_us.value /= 2, a.network.latency_us.value /= 2; })},
          {"half of what a collective takes more in a step",
           [](Scenario& scenario, sim::Platform& platform) {
             platform.accelerator->collective_in_step_us.value /= 2;
             if (scenario.framework.collective_in_step_us) scenario.framework.collective_in_step_us->value /= 2;
           }},
          {"1.5 times the rate of memory", accelerator([](auto& a) { a.hbm_GBps.value *= 1.5; })},
          {"GEMMs in 0.8 of their time",
           [](Scenario& scenario, sim::Platform& platform) {
             platform.accelerator->gemm_sustained.value *= 0.8;
             if (scenario.framework.gemm_sustained) scenario.framework.gemm_sustained->value *= 0.8;
           }},
          {"half the time to issue a kernel",
           [](Scenario& scenario, sim::Platform&) { scenario.framework.host.python.value /= 2; }}};
}

std::vector<Better> of_hosts() {
  return {
      {"twice the rate of links", [](Scenario& scenario, sim::Platform&) { scenario.cluster.link_GBps *= 2; }},
      {"half the latency of links", [](Scenario& scenario, sim::Platform&) { scenario.cluster.link_latency_us /= 2; }}};
}

struct WhatIf {
  std::string text;  // text that replays it
  std::vector<std::string> sets;
  Scenario scenario;
  sim::Platform platform;

  // Returns the scenario with other values of keys, "section.key=value". Throws Error(input) where they are refused.
  Scenario with(const std::vector<std::string>& others) const {
    std::vector<std::string> all = others;
    for (const std::string& one : sets)
      if (std::none_of(others.begin(), others.end(),
                       [&](const std::string& other) { return other.starts_with(one.substr(0, one.find('=') + 1)); }))
        all.push_back(one);
    return parse_scenario(text, "what-if.toml", all);
  }
};

// Throws Error(input) where the draw is refused. `in_codes`: in low precision, on GPUs that have it.
WhatIf what_if(std::uint64_t seed, bool in_codes = false) {
  Draw draw(seed * 7919 + 1);
  const RandomLayout layout = in_codes ? random_layout_in_codes(seed) : random_layout(seed);
  const std::string platform =
      in_codes ? draw.one_of<const char*>({"h100-sxm", "h200-sxm", "b200-sxm", "gb200-nvl72", "b300-sxm"})
               : draw.one_of<const char*>(
                     {"h100-sxm", "h100-sxm", "a100-80gb", "h200-sxm", "b200-sxm", "gb200-nvl72", "host", "host"});
  const std::string profile = draw.one_of<const char*>(
      {"", "megatron-core-te", "nemo-dgxc", "torchtitan", "torchtitan-compile", "fms-fsdp-compile", "meta-llama3",
       "llm-foundry", "megatron-2022", "megatron-deepspeed-2022-bf16", "aleph-alpha-scaling"});
  const bool on_host = platform == "host";
  const Scenario& tiny = layout.scenario;
  // Sizes range from those of the layout, whose ratios must stay, to those of real models.
  const std::int64_t wide = in_codes ? draw.one_of({1, 2, 4}) : draw.one_of({1, 16, 64, 256}),
                     longer = in_codes ? draw.one_of({1, 2}) : draw.one_of({1, 8, 64}),
                     drawn = draw.one_of({1, 1, 4, 64, 1024});
  // Ranks that share a device do not always fold (stages share it): then a step grows with the square of their number.
  const std::int64_t replicas = on_host ? std::min<std::int64_t>(drawn, 4) : drawn;
  const auto set = [](const char* key, std::int64_t value) { return std::string(key) + "=" + std::to_string(value); };
  WhatIf result;
  std::vector<std::string>& sets = result.sets;
  sets = {set("model.hidden_size", tiny.model.hidden_size * wide),
          set("model.ffn_hidden_size", tiny.model.ffn_hidden_size * wide),
          set("model.seq_length", tiny.model.seq_length * longer),
          set("model.max_position_embeddings", tiny.model.max_position_embeddings * longer),
          set("parallel.data_parallel_size", tiny.parallel.data_parallel_size * replicas),
          set("training.global_batch_size", tiny.training.global_batch_size * replicas)};
  if (on_host) {
    sets.push_back("training.precision=\"fp32\"");
    sets.push_back("overlap.fp8_param_gather=false");
  } else {
    sets.push_back("training.precision=\"bf16\"");
    sets.push_back("cluster.ranks_per_device=1");
  }
  if (!on_host) result.text = "platform = \"" + platform + "\"\n";
  if (!on_host && !profile.empty()) result.text += "profile = \"" + profile + "\"\n";
  result.text += layout.toml;
  result.scenario = parse_scenario(result.text, "what-if.toml", sets);
  for (const std::string& one : sets) result.text += "# --set " + one + "\n";
  if (on_host) result.text += "# on tests/golden/host.toml\n";
  result.platform =
      sim::read_platform(on_host ? (std::filesystem::path(__FILE__).parent_path() / "golden/host.toml").string()
                                 : result.scenario.platform);
  return result;
}

struct Found {
  int predicted = 0, refused = 0, unsteady = 0;
  std::map<std::string, int> why;         // [reason] number of refusals
  std::map<std::string, int> compared;    // [change] number of comparisons
  std::map<std::string, int> slower;      // [change] number of violations beyond rounding
  std::map<std::string, double> slowest;  // [change] largest share
};

// Takes note of a step that should not be longer, and is by `share`; fails where that is more than `most`.
void note(const std::string& change, double share, double most, Found& found) {
  ++found.compared[change];
  if (share <= kMostRounding) return;
  ++found.slower[change];
  found.slowest[change] = std::max(found.slowest[change], share);
  INFO(change << ": longer by " << share);
  CHECK(share <= most);
  if (std::getenv("STRETTO_WHAT_IF_SHOW") != nullptr && share > most / 4) WARN(change << ": longer by " << share);
}

void check_speeds(const WhatIf& of, double step_ms, Found& found) {
  const predict::QuickStep quick(of.scenario);
  for (const Better& better : of.platform.accelerator ? of_gpus() : of_hosts()) {
    Scenario scenario = of.scenario;
    sim::Platform platform = of.platform;
    better.change(scenario, platform);
    const double step_s = of.platform.accelerator ? quick.step_s(platform, scenario.framework)
                                                  : predict::QuickStep(scenario).step_s(platform, scenario.framework);
    note(better.name, 1e3 * step_s / step_ms - 1, kMostAnomaly, found);
  }
}

// Returns the link of each communicator.
std::map<std::string, LinkKind> links_of(const Prediction& p) {
  std::map<std::string, LinkKind> links;
  for (const ExposedPart& part : p.exposed) links.emplace(part.communicator, part.link);
  return links;
}

// Checks a replica more of a step that has some. Groups that stay as large stay in their domain; where a larger one,
// or a message to another stage, leaves its domain, the step may become longer by what the network takes.
void check_replica(const WhatIf& of, const Prediction& p, Found& found) {
  const std::int64_t replicas = of.scenario.parallel.data_parallel_size;
  if (replicas < 2 || !of.platform.accelerator) return;  // ranks of a host share its cores
  const auto set = [](const char* key, std::int64_t value) { return std::string(key) + "=" + std::to_string(value); };
  const Scenario more =
      of.with({set("parallel.data_parallel_size", replicas + 1),
               set("training.global_batch_size", of.scenario.training.global_batch_size / replicas * (replicas + 1))});
  const Prediction larger = predict::predict_step(more, of.platform).prediction;
  const std::map<std::string, LinkKind> before = links_of(p), after = links_of(larger);
  bool stay = true;
  for (const auto& [communicator, link] : before)
    if (const auto found_after = after.find(communicator); found_after != after.end())
      stay = stay && link == found_after->second;
  // A node with fewer members of a group than the others holds them up: 1025 replicas, two of them on a node.
  const predict::QuickStep small(of.scenario), large(more);
  // Neighbours in the order of ranks stay in their domain.
  const bool is_of_neighbours = small.schedule().mesh.axes().back().coord == Coord::tp;
  if (is_of_neighbours && before.contains("tp") && after.contains("tp")) CHECK(before.at("tp") == after.at("tp"));
  const auto cards_of = [&](const predict::QuickStep& quick) {
    std::map<std::string, std::int64_t> cards;
    const sim::Accelerator& a = *of.platform.accelerator;
    for (const Communicator& c : quick.schedule().communicators)
      cards.emplace(c.name, sim::span_of(quick.schedule(), c, a.domain, a.pod).cards());
    return cards;
  };
  const std::map<std::string, std::int64_t> cards_before = cards_of(small);
  for (const auto& [communicator, cards] : cards_of(large))
    if (const auto was = cards_before.find(communicator); was != cards_before.end())
      stay = stay && cards >= was->second;
  if (stay) note("a replica more", larger.step_ms / p.step_ms - 1, kMostOfReplica, found);
}

void check_counts(const WhatIf& of, const Prediction& p, Found& found) {
  const auto quick_ms = [&](const Scenario& scenario) {
    return 1e3 * predict::QuickStep(scenario).step_s(of.platform, scenario.framework);
  };
  const auto refused = [&](const auto& relation) {
    try {
      relation();
    } catch (const Error& error) {  // a layout that this count does not allow
      CAPTURE(error.what());
      CHECK(error.kind() == ErrorKind::input);
    }
  };
  const Parallel& parallel = of.scenario.parallel;
  refused([&] { check_replica(of, p, found); });
  refused([&] {
    const std::int64_t count = of.scenario.num_microbatches() + predict::round_of(of.scenario);
    const Scenario more = predict::with_micro_batches(of.scenario, count);
    note("fewer micro-batches", p.step_ms / quick_ms(more) - 1, kMostAnomaly, found);
  });
  refused([&] {
    const std::int64_t layers = of.scenario.model.num_layers +
                                parallel.pipeline_model_parallel_size * parallel.virtual_pipeline_model_parallel_size;
    const Scenario more = of.with({"model.num_layers=" + std::to_string(layers)});
    note("fewer layers", p.step_ms / quick_ms(more) - 1, kMostAnomaly, found);
  });
}

// Returns whether the rows of two simulations are equal.
bool are_equal(const sim::SimResult& one, const sim::SimResult& other) {
  return one.step == other.step &&
         std::equal(one.timeline.rows.begin(), one.timeline.rows.end(), other.timeline.rows.begin(),
                    other.timeline.rows.end(), [](const TimelineRow& a, const TimelineRow& b) {
                      return a.rank == b.rank && a.op == b.op && a.start == b.start && a.end == b.end;
                    });
}

void check(std::uint64_t seed, Found& found, bool in_codes) {
  WhatIf of;
  predict::PredictedStep step;
  try {
    of = what_if(seed, in_codes);
    INFO("seed " << seed << "\n" << of.text);
    step = predict::predict_step(of.scenario, of.platform);
  } catch (const Error& error) {
    CAPTURE(seed, of.text, error.what());
    CHECK(error.kind() == ErrorKind::input);  // refused, not broken
    ++found.refused;
    ++found.why[std::string(error.what()).substr(0, 60)];
    return;
  }
  ++found.predicted;
  const Prediction& p = step.prediction;
  INFO("seed " << seed << " on " << of.platform.name << ", " << p.step_ms << " ms\n" << of.text);
  CHECK(std::isfinite(p.step_ms));
  CHECK(p.step_ms > 0);
  double sum = 0;
  for (const auto& [name, share] : p.limits()) {
    CHECK(share >= -1e-9);
    sum += share;
  }
  CHECK(sum == Approx(1).epsilon(1e-6));
  CHECK(p.breakdown.compute <= p.step_ms * (1 + 1e-9));
  constexpr std::uint64_t kTwice = 8;  // one in kTwice is simulated twice
  if (seed % kTwice == 0) CHECK(are_equal(predict::predict_step(of.scenario, of.platform).result, step.result));
  if (!p.steady) {
    ++found.unsteady;
    return;
  }
  check_speeds(of, p.step_ms, found);
  check_counts(of, p, found);
}

void check_many(std::uint64_t first, std::uint64_t count, bool in_codes = false) {
  Found found;
  for (std::uint64_t seed = first; seed < first + count; ++seed) check(seed, found, in_codes);
  std::string text = std::to_string(found.predicted) + " predicted, " + std::to_string(found.refused) + " refused, " +
                     std::to_string(found.unsteady) + " not steady";
  for (const auto& [name, times] : found.compared)
    text += "\n" + name + ": longer " + std::to_string(found.slower[name]) + " times of " + std::to_string(times) +
            ", by " + std::to_string(100 * found.slowest[name]) + " % at most";
  if (std::getenv("STRETTO_WHAT_IF_SHOW") != nullptr) {
    for (const auto& [why, times] : found.why) text += "\n" + std::to_string(times) + " refused: " + why;
    WARN(text);
  }
  INFO(text);
  CHECK(found.predicted * 3 >= static_cast<int>(count));
}

// Compares a simulation that ends in its second step with one that goes on to the end.
void check_rows(const sim::SimResult& result, const sim::SimResult& to_the_end) {
  REQUIRE(result.timeline.rows.size() == to_the_end.timeline.rows.size());
  CHECK(result.step == to_the_end.step);
  const Picoseconds shift = to_the_end.timeline.step_end - result.timeline.step_end;
  const bool are_equal = std::equal(result.timeline.rows.begin(), result.timeline.rows.end(),
                                    to_the_end.timeline.rows.begin(), [&](const TimelineRow& a, const TimelineRow& b) {
                                      return a.rank == b.rank && a.op == b.op && a.ready + shift == b.ready &&
                                             a.start + shift == b.start && a.transfer + shift == b.transfer &&
                                             a.end + shift == b.end && a.waited == b.waited;
                                    });
  CHECK(are_equal);
}

// Compares times extrapolated from few micro-batches with the whole step. Returns how many could be extrapolated.
int check_few(std::uint64_t seed) {
  WhatIf of;
  Schedule whole;
  sim::SimResult result;
  int extrapolated = 0;
  try {
    of = what_if(seed);
    // Eight times as many, and the last group of virtual stages as large as it was: a smaller one would be refused.
    const std::int64_t all = of.scenario.num_microbatches(),
                       group = std::max<std::int64_t>(1, of.scenario.parallel.microbatch_group_size_per_vp_stage);
    of.scenario = predict::with_micro_batches(of.scenario, all + (7 * all + group - 1) / group * group);
    const auto costs_of = [&](const Schedule& schedule) {
      return sim::cost_schedule(schedule, of.platform, of.scenario.cluster, 1, of.scenario.framework,
                                of.scenario.training);
    };
    whole = build_schedule(of.scenario);
    result = sim::simulate(whole, bind_step(whole), costs_of(whole));
    sim::SimOptions to_the_end;
    to_the_end.knows_repeated_step = false;
    INFO("seed " << seed << "\n" << of.text);
    const sim::SimResult as_a_whole = sim::simulate(whole, bind_step(whole), costs_of(whole), to_the_end);
    check_rows(result, as_a_whole);
    if (!costs_of(whole).host.issue.empty()) CHECK(result.operations == as_a_whole.operations);
    if (!result.steady) return 0;
    for (const std::int64_t count : predict::micro_batches_to_simulate(of.scenario)) {
      if (count == of.scenario.num_microbatches()) break;
      const Schedule few = build_schedule(predict::with_micro_batches(of.scenario, count));
      const std::optional<predict::ExtrapolatedStep> step =
          predict::extrapolated_step(of.scenario, few, bind_step(few), count, costs_of(few));
      if (!step) continue;
      ++extrapolated;
      INFO("seed " << seed << ", " << count << " of " << of.scenario.num_microbatches() << " micro-batches\n"
                   << of.text);
      CHECK(step->step() == result.step);
      const Breakdown all = mean_breakdown(whole, result.programs, result.timeline), few_say = step->mean();
      CHECK(few_say.compute == all.compute);
      CHECK(few_say.core_wait == all.core_wait);
      CHECK(few_say.exposed == all.exposed);
      CHECK(few_say.queue_wait == all.queue_wait);
      CHECK(few_say.bubble == all.bubble);
      CHECK(few_say.host == all.host);
    }
  } catch (const Error& error) {
    CAPTURE(seed, of.text, error.what());
    CHECK(error.kind() == ErrorKind::input);
  }
  return extrapolated;
}

}  // namespace

TEST_CASE("few micro-batches extrapolate the whole step to the picosecond", "[serial]") {
  int extrapolated = 0;
  for (std::uint64_t seed = 1; seed <= std::uint64_t(share_of(60)); ++seed) extrapolated += check_few(seed);
  CHECK(extrapolated > 0);
}

// A host that is ahead by more in a longer step issues earlier what ends the step.
TEST_CASE("few micro-batches do not extrapolate a step whose end waits for a host that is ahead", "[serial]") {
  for (const std::uint64_t seed : {33'186, 35'747, 36'041}) check_few(seed);
}

TEST_CASE("few micro-batches extrapolate many whole steps", "[.][soak]") {
  const std::uint64_t first = from_environment("STRETTO_WHAT_IF_SEED", 30'000);
  const std::uint64_t count = from_environment("STRETTO_WHAT_IFS", 1000);
  int extrapolated = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) extrapolated += check_few(seed);
  WARN(extrapolated << " times extrapolated, of " << count << " what-ifs");
  CHECK(extrapolated * 4 >= static_cast<int>(count));
}

TEST_CASE("random what-ifs: the same twice, parts add up, better is not slower", "[serial]") {
  check_many(1, is_fast_suite() ? 20 : 200);
}

// Seed 20091: a tensor that is smaller in the framework than in the schedule, where all are too small to be followed.
// Seed 34721: pairs of neighbours exchange in a group over nodes that has messages of every distance. The seeds drew
// these when they broke; each new key changes what a seed draws, and some draws are refused, so there are four of each.
TEST_CASE("what-ifs that broke once", "[serial]") {
  check_many(20'091, 4);
  check_many(34'721, 4);
}

TEST_CASE("many random what-ifs in low precision", "[.][soak]") {
  check_many(from_environment("STRETTO_WHAT_IF_SEED", 20'000), from_environment("STRETTO_WHAT_IFS", 1000), true);
}

TEST_CASE("many random what-ifs", "[.][soak]") {
  check_many(from_environment("STRETTO_WHAT_IF_SEED", 20'000), from_environment("STRETTO_WHAT_IFS", 5000));
}

}  // namespace stretto::testing
