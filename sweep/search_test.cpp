#include "sweep/search.hpp"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "model/build_schedule.hpp"
#include "predict/predict_step.hpp"
#include "sweep/bounds.hpp"
#include "sweep/journal.hpp"
#include "tests/cases.hpp"
#include "tests/message_of.hpp"
#include "tests/temp_dir.hpp"

namespace stretto::sweep {
namespace {

constexpr const char* kModel =
    "platform = \"h100-sxm\"\nprofile = \"nemo-dgxc\"\n[model]\npreset = \"llama3-8b\"\nnum_layers = 8\n"
    "[parallel]\ndata_parallel_size = 16\n[training]\nglobal_batch_size = 128\n";

constexpr const char* kExperts =
    "platform = \"h100-sxm\"\nprofile = \"megatron-bridge-moe\"\n[model]\npreset = \"mixtral-8x7b\"\nnum_layers = 4\n"
    "seq_length = 2048\n[parallel]\ndata_parallel_size = 16\nexpert_tensor_parallel_size = 1\n[training]\n"
    "global_batch_size = 64\n";
constexpr const char* kUnfused =
    "platform = \"a100-80gb\"\nprofile = \"megatron-2022\"\n[model]\npreset = \"gpt3-175b\"\nnum_layers = 4\n"
    "[parallel]\ndata_parallel_size = 16\n[training]\nglobal_batch_size = 32\n";
constexpr const char* kSharded =
    "platform = \"h100-sxm\"\nprofile = \"torchtitan\"\n[model]\npreset = \"llama3-8b\"\nnum_layers = 4\n"
    "[parallel]\ndata_parallel_size = 16\n[training]\nglobal_batch_size = 32\n";

// A small space: a scenario and its axes.
struct Axes {
  const char* text;
  std::vector<std::string> over;
};
const Axes kDense = {
    kModel,
    {"tensor_model_parallel_size=1,2,4", "pipeline_model_parallel_size=1,2,4",
     "virtual_pipeline_model_parallel_size=1,2", "micro_batch_size=1,2", "recompute_granularity=none,full"}};

struct Found {
  Space space;
  SearchResult result;
};

Found search_all(SearchOptions options, const Axes& axes = kDense) {
  const Scenario scenario = parse_scenario(axes.text, "s.toml");
  const sim::Platform platform = sim::read_platform(scenario.platform);
  Found found{read_space(parse_toml("", "s.toml").section("sweep"), axes.over, scenario, platform), {}};
  SearchCalls calls;
  calls.read = [&](const PointSettings& settings) { return parse_scenario(axes.text, "s.toml", settings.set); };
  calls.platform = [&](const PointSettings&) -> const sim::Platform& { return platform; };
  calls.key = [](const PointSettings& settings) {
    std::string key;
    for (const std::string& set : settings.set) key += set + ";";
    return key;
  };
  calls.known = [](const std::string&) -> const Point* { return nullptr; };
  calls.report = [](const Point&, bool, const SearchProgress&) {};
  calls.stop = [] { return false; };
  found.result = search(found.space, scenario, options, calls);
  return found;
}

}  // namespace

TEST_CASE("the best of a search is the best of all steps in full; no bound is above its step") {
  const Found all = search_all({.best = 3, .all = true}), few = search_all({.best = 3});
  const std::vector<std::size_t> order = fastest(all.result.points), pruned = fastest(few.result.points);
  REQUIRE(order.size() > 10);
  REQUIRE(pruned.size() >= 3);
  CHECK(pruned.size() < order.size());
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(few.result.points[pruned[i]].step_ms == all.result.points[order[i]].step_ms);
  const sim::Platform platform = sim::read_platform(parse_scenario(kModel, "s.toml").platform);
  double least_ms = 1e300;
  for (const std::size_t i : order) {
    const Point& point = all.result.points[i];
    const Scenario scenario = parse_scenario(kModel, "s.toml", point.set);
    const predict::PredictedStep full = predict::predict_step(scenario, platform);
    CHECK(full.prediction.step_ms == point.step_ms);
    CHECK(point.bound_ms <= point.step_ms);
    // An allocator's segment may be cut in another way.
    CHECK(double(point.memory_bytes) == Approx(double(full.prediction.memory.predicted_bytes())).epsilon(1e-3));
    least_ms = std::min(least_ms, full.prediction.step_ms);
  }
  CHECK(all.result.points[order.front()].step_ms == least_ms);
  for (const Point& point : all.result.points)
    if (point.status != Status::predicted) CHECK_FALSE(point.reason.empty());
  const std::vector<std::size_t> front = pareto_front(all.result.points);
  for (std::size_t i = 1; i < front.size(); ++i) {
    CHECK(all.result.points[front[i]].memory_bytes < all.result.points[front[i - 1]].memory_bytes);
    CHECK(all.result.points[front[i]].step_ms >= all.result.points[front[i - 1]].step_ms);
  }
}

TEST_CASE("tight layouts are ranked after those that fit, and rule out none of them") {
  std::vector<Point> points(4);
  for (Point& point : points) point.status = Status::predicted, point.step_ms = 1;
  points[0].tokens_per_s_per_gpu = 40, points[0].fit = Fit::tight;
  points[1].tokens_per_s_per_gpu = 10;
  points[2].tokens_per_s_per_gpu = 30, points[2].fit = Fit::tight;
  points[3].tokens_per_s_per_gpu = 20;
  CHECK(fastest(points) == std::vector<std::size_t>{3, 1, 0, 2});
  const Space space;
  Looker looker(1, false);
  looker.add(space, {}, points[0]);
  const double none = looker.highest_limit_ms();
  looker.add(space, {}, points[1]);
  CHECK(none > 1e300);
  CHECK(looker.highest_limit_ms() == 1);
  // The file of a sweep keeps the verdict; a line of a former version has none.
  points[0].device_bytes = 80, points[0].memory_bytes = 79;
  CHECK(point_of(line_of(points[0]), "line").fit == Fit::tight);
  std::string former = line_of(points[0]);
  former.erase(former.find("\"memory_verdict\""), std::string("\"memory_verdict\":\"tight\",").size());
  CHECK(point_of(former, "line").fit == Fit::fits);
}

TEST_CASE("the best of small spaces are the best of all of their points") {
  if (testing::kCaseStride > 1) return;  // minutes in a sanitizer's build, which the test before shows the code
  const std::vector<Axes> spaces = {
      {kExperts,
       {"tensor_model_parallel_size=1,2", "pipeline_model_parallel_size=1,2", "expert_model_parallel_size=1,2,4,8",
        "micro_batch_size=1,2", "recompute_granularity=none,full"}},
      {kUnfused,
       {"tensor_model_parallel_size=2,4,8", "pipeline_model_parallel_size=1,2,4", "micro_batch_size=1,2",
        "recompute_granularity=none,selective,full", "pipeline_schedule=1f1b,zb-h1"}},
      {kSharded,
       {"tensor_model_parallel_size=1,2", "context_parallel_size=1,2", "micro_batch_size=1,2",
        "recompute_granularity=none,selective,full", "data_parallel_sharding_strategy=optim,optim_grads_params"}}};
  for (const Axes& axes : spaces) {
    CAPTURE(axes.text);
    constexpr std::size_t kBest = 3;
    const Found all = search_all({.best = kBest, .all = true}, axes), few = search_all({.best = kBest}, axes);
    const std::vector<std::size_t> order = fastest(all.result.points), pruned = fastest(few.result.points);
    REQUIRE(order.size() > 2 * kBest);
    REQUIRE(pruned.size() >= kBest);
    CHECK(pruned.size() < order.size());
    for (std::size_t i = 0; i < kBest; ++i)
      CHECK(few.result.points[pruned[i]].step_ms == all.result.points[order[i]].step_ms);
    for (const std::size_t i : order) {
      CAPTURE(all.result.points[i].key);
      CHECK(all.result.points[i].bound_ms <= all.result.points[i].step_ms);
      CHECK(all.result.points[i].bound_ms > 0);
    }
  }
}

TEST_CASE("shards share the points") {
  const Found all = search_all({.best = 1});
  std::vector<std::string> keys, of_shards;
  for (const Point& point : all.result.points) keys.push_back(point.key);
  for (const std::int64_t shard : {0, 1, 2})
    for (const Point& point : search_all({.best = 1, .shard = shard, .shards = 3}).result.points)
      of_shards.push_back(point.key);
  std::sort(keys.begin(), keys.end());
  std::sort(of_shards.begin(), of_shards.end());
  CHECK(keys == of_shards);
}

TEST_CASE("a sweep's file survives a line that a kill has cut, and refuses what is no sweep") {
  const testing::TempDir folder;
  const std::string path = folder.file("points.jsonl");
  Point point;
  point.key = "0123456789abcdef";
  point.set = {"a.b=1"};
  point.status = Status::predicted;
  point.step_ms = 1.25;
  point.mfu = 0.5;
  {
    Journal journal(path, false);
    journal.add(point);
    // Two sweeps on one file would write each point twice.
    const std::string locked = testing::message_of([&] { Journal second(path, true); });
    CHECK(locked.find("points.jsonl: another sweep writes this file") != std::string::npos);
    CHECK(locked.find("(process " + std::to_string(::getpid()) + ")") != std::string::npos);
  }
  CHECK(testing::message_of([&] { Journal again(path, false); }).find("--resume") != std::string::npos);
  std::ofstream(path, std::ios::app) << line_of(point).substr(0, 40);
  {
    Journal journal(path, true);
    CHECK(journal.cut() == 1);
    REQUIRE(journal.find(point.key) != nullptr);
    CHECK(line_of(*journal.find(point.key)) == line_of(point));
    point.key = "fedcba9876543210";
    journal.add(point);
  }
  CHECK(Journal(path, true).known() == 2);
  std::ofstream(path, std::ios::app) << "step,ms\n";
  CHECK(testing::message_of([&] { Journal again(path, true); }).find("points.jsonl:3") !=
        std::string::npos);  // the cut line has gone
}

}  // namespace stretto::sweep
