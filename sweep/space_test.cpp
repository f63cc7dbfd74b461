#include "sweep/space.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "sweep/legal.hpp"
#include "sweep/names.hpp"
#include "sweep/settings.hpp"
#include "tests/message_of.hpp"

namespace stretto::sweep {
namespace {

Scenario of_gpus() {
  return parse_scenario(
      "[model]\nnum_layers = 12\nhidden_size = 48\nnum_attention_heads = 6\nseq_length = 64\n"
      "vocab_size = 256\n[parallel]\ndata_parallel_size = 16\n[training]\nglobal_batch_size = 32\n",
      "s.toml");
}

Space space_of(const std::string& table, const std::vector<std::string>& over = {},
               const Scenario& scenario = of_gpus()) {
  return read_space(parse_toml(table, "s.toml").section("sweep"), over, scenario, {});
}

Scenario of_experts() {
  return parse_scenario(
      "[model]\npreset = \"mixtral-8x7b\"\nnum_layers = 8\n[parallel]\ndata_parallel_size = 16\n[training]\n"
      "global_batch_size = 32\n",
      "s.toml");
}

std::vector<std::string> keys_of_axes(const Space& space) {
  std::vector<std::string> keys;
  for (const Axis& axis : space.axes) keys.push_back(short_name(axis.key));
  return keys;
}

std::vector<std::string> values_of(const Space& space, const std::string& key) {
  for (const Axis& axis : space.axes)
    if (axis.key == key) return axis.values;
  return {};
}

}  // namespace

TEST_CASE("axes come from [sweep] and from --over, which replaces them") {
  const Space space =
      space_of("[sweep]\ntensor_model_parallel_size = [1, 2]\n\"overlap.overlap_grad_reduce\" = \"legal\"\n",
               {"parallel.tensor_model_parallel_size=3", "gpus=16,32"});
  CHECK(space.points() == 1 * 2 * 2);
  CHECK(values_of(space, "parallel.tensor_model_parallel_size") == std::vector<std::string>{"3"});
  CHECK(values_of(space, "overlap.overlap_grad_reduce") == std::vector<std::string>{"false", "true"});
  CHECK(space.at(3) != space.at(2));
}

TEST_CASE("without axes every layout that may be legal is searched") {
  const Space space = space_of("");
  CHECK(values_of(space, "parallel.tensor_model_parallel_size") == std::vector<std::string>{"1", "2", "3", "6"});
  CHECK(values_of(space, "parallel.pipeline_model_parallel_size") ==
        std::vector<std::string>{"1", "2", "3", "4", "6", "8", "12"});
  CHECK(values_of(space, "training.recompute_granularity").size() == 4);
  CHECK(values_of(space, "parallel.expert_model_parallel_size").empty());
  // Experts' layouts have their own two sizes.
  CHECK(keys_of_axes(space_of("", {"gpus=16,32"}, of_experts())) ==
        std::vector<std::string>{"gpus", "tp", "pp", "vp", "cp", "ep", "etp", "mbs", "recompute"});
  CHECK(keys_of_axes(space_of("", {"etp=legal"}, of_experts())) == std::vector<std::string>{"etp"});
}

TEST_CASE("short names stand for keys, layout and overlap for several") {
  CHECK(values_of(space_of("", {"sharding=legal"}), kSharding) ==
        std::vector<std::string>{"no_shard", "optim", "optim_grads", "optim_grads_params"});
  CHECK(values_of(space_of("[sweep]\nschedule = \"legal\"\n"), kSchedule).size() == 4);
  const Space layouts = space_of("", {"layout=legal", "tp=2", "sharding=optim"});
  CHECK(keys_of_axes(layouts) == std::vector<std::string>{"tp", "sharding", "pp", "vp", "cp", "mbs", "recompute"});
  CHECK(values_of(layouts, kTp) == std::vector<std::string>{"2"});
  // Switches that some layout of the axes can use.
  using Keys = std::vector<std::string>;
  CHECK(keys_of_axes(space_of("", {"overlap=legal"})) == Keys{"overlap_grad_reduce", "overlap_param_gather"});
  CHECK(keys_of_axes(space_of("", {"overlap=legal", "tp=1,2", "pp=1,4", "overlap_p2p_comm=true"})) ==
        Keys{"tp", "pp", "overlap_p2p_comm", "overlap_grad_reduce", "overlap_param_gather",
             "async_tensor_model_parallel_allreduce"});
  const Keys of_experts_layouts = keys_of_axes(space_of("", {"overlap=legal", "ep=legal"}, of_experts()));
  CHECK(std::count(of_experts_layouts.begin(), of_experts_layouts.end(), "overlap_moe_expert_parallel_comm") == 1);
  CHECK(std::count(of_experts_layouts.begin(), of_experts_layouts.end(), "moe_shared_expert_overlap") == 0);
}

TEST_CASE("a sharding strategy comes with what it needs, and no point is there twice") {
  Scenario overlapped = of_gpus();
  overlapped.overlap.overlap_grad_reduce = overlapped.overlap.overlap_param_gather = true;
  const Space space = space_of("", {"sharding=legal"});
  const auto has = [&](const char* strategy, const char* setting) {
    const auto point = settings_of(space, {strategy}, overlapped);
    REQUIRE(point);
    return std::count(point->set.begin(), point->set.end(), setting) == 1;
  };
  CHECK(has("no_shard", "parallel.use_distributed_optimizer=false"));
  CHECK(has("no_shard", "overlap.overlap_param_gather=false"));
  CHECK_FALSE(has("optim", "overlap.fsdp_comm_overlap=true"));
  CHECK(has("optim_grads", "overlap.fsdp_comm_overlap=true"));
  CHECK(has("optim_grads_params", "overlap.fsdp_comm_overlap=true"));
  CHECK_FALSE(has("optim_grads_params", "parallel.use_distributed_optimizer=true"));
  // One replica has nothing to shard, and one rank of tensor parallelism has no sums to overlap.
  const Space alone = space_of("", {"gpus=1", "sharding=legal"});
  CHECK(settings_of(alone, {"1", "no_shard"}, overlapped));
  CHECK_FALSE(settings_of(alone, {"1", "optim"}, overlapped));
  const Space layouts = space_of("", {"sharding=optim,optim_grads", "tp=1,2", "pp=1,4", "overlap=legal"});
  REQUIRE(keys_of_axes(layouts) ==
          std::vector<std::string>{"sharding", "tp", "pp", "overlap_grad_reduce", "overlap_param_gather",
                                   "async_tensor_model_parallel_allreduce", "overlap_p2p_comm", "fsdp_comm_overlap"});
  const auto is_point = [&](const std::vector<std::string>& values) {
    return settings_of(layouts, values, of_gpus()).has_value();
  };
  CHECK(is_point({"optim", "2", "1", "true", "true", "true", "false", "false"}));
  CHECK_FALSE(is_point({"optim", "1", "1", "true", "true", "true", "false", "false"}));
  CHECK(is_point({"optim", "1", "1", "true", "true", "false", "false", "false"}));
  CHECK_FALSE(is_point({"optim", "1", "1", "true", "true", "false", "false", "true"}));
  CHECK(is_point({"optim_grads", "1", "4", "false", "false", "false", "true", "true"}));
}

TEST_CASE("a line names the axes that are left out") {
  const Scenario scenario = of_gpus();
  CHECK(not_searched(space_of(""), scenario) ==
        "not searched: sharding, schedule, overlap (--over overlap=legal searches it too); all other keys have their "
        "defaults");
  CHECK(not_searched(space_of("", {"sharding=legal", "schedule=legal", "layout=legal", "overlap=legal"}), scenario) ==
        "all other keys have their defaults");
  Scenario own = scenario;
  own.parallel.scatter_gather_tensors_in_pipeline = true;
  const std::string line = not_searched(space_of("", {"tp=legal", "pp=2"}), own);
  CHECK(line.find("not searched: pp, vp, cp, mbs, recompute, sharding, schedule, overlap") == 0);
  CHECK(line.find("as in the scenario: scatter_gather_tensors_in_pipeline true;") != std::string::npos);
}

TEST_CASE("a point has all sizes, or none where they do not divide") {
  const Space space = space_of("", {"tensor_model_parallel_size=1,3", "pipeline_model_parallel_size=4"});
  const auto one = settings_of(space, {"1", "4"}, of_gpus());
  REQUIRE(one);
  CHECK(std::count(one->set.begin(), one->set.end(), "parallel.data_parallel_size=4") == 1);
  CHECK(std::count(one->set.begin(), one->set.end(), "training.global_batch_size=32") == 1);
  CHECK_FALSE(settings_of(space, {"3", "4"}, of_gpus()));
  // Twelve layers on eight stages are too uneven, sixty-one on four are not.
  const Space stages = space_of("", {"pipeline_model_parallel_size=4,8"});
  CHECK_FALSE(settings_of(stages, {"8"}, of_gpus()));
  Scenario prime = of_gpus();
  prime.model.num_layers = 61;
  const auto uneven = settings_of(stages, {"4"}, prime);
  REQUIRE(uneven);
  const std::string layout = "parallel.pipeline_model_parallel_layout=E" + std::string(15, 't') + "|" +
                             std::string(16, 't') + "|" + std::string(15, 't') + "|" + std::string(15, 't') + "L";
  CHECK(std::count(uneven->set.begin(), uneven->set.end(), layout) == 1);
}

TEST_CASE("ranks of a stage divide by those that share experts") {
  const Space space = space_of("", {"tp=1,2", "ep=1,8", "etp=1,2,4"}, of_experts());
  const auto is_point = [&](const std::vector<std::string>& values) {
    return settings_of(space, values, of_experts()).has_value();
  };
  CHECK(is_point({"1", "8", "2"}));
  CHECK_FALSE(is_point({"1", "8", "4"}));
  // Experts are cut as all else is, unless etp says otherwise. Eight heads of keys are for eight ranks at most.
  const Space as_others = space_of("", {"tp=legal", "pp=1,2", "ep=8"}, of_experts());
  CHECK(values_of(as_others, kTp) == std::vector<std::string>{"1", "2", "4", "8"});
  CHECK(settings_of(as_others, {"2", "1", "8"}, of_experts()));
  CHECK_FALSE(settings_of(as_others, {"2", "2", "8"}, of_experts()));
}

TEST_CASE("a point with pairs of passes has the messages that they need") {
  const std::string pairs = "overlap.overlap_moe_expert_parallel_comm", messages = "overlap.overlap_p2p_comm=true";
  const auto added = [&](const std::vector<std::string>& over, const std::vector<std::string>& values) {
    std::vector<std::string> all = {"pp=1,4", "vp=1,2", "ep=2"};
    all.insert(all.end(), over.begin(), over.end());
    const auto point = settings_of(space_of("", all, of_experts()), values, of_experts());
    REQUIRE(point);
    return std::count(point->set.begin(), point->set.end(), messages);
  };
  CHECK(added({pairs + "=legal"}, {"4", "2", "2", "true"}) == 1);
  CHECK(added({pairs + "=legal"}, {"4", "2", "2", "false"}) == 0);
  CHECK(added({pairs + "=legal"}, {"1", "1", "2", "true"}) == 0);
  CHECK(added({pairs + "=legal", "overlap_p2p_comm=legal"}, {"4", "2", "2", "true", "false"}) == 0);
}

TEST_CASE("axes that cannot be searched are named") {
  using testing::message_of;
  CHECK(message_of([] {
          space_of("", {"tensor_model_parallel_siz=2"});
        }).find("did you mean \"tensor_model_parallel_size\"") != std::string::npos);
  CHECK(message_of([] { space_of("", {"hidden_size=legal"}); }).find("has no list of its own") != std::string::npos);
  CHECK(message_of([] { space_of("", {"gpus=0"}); }).find("whole number from 1 on") != std::string::npos);
  CHECK(message_of([] { space_of("", {"gpus=8,8"}); }).find("8 twice") != std::string::npos);
  CHECK(message_of([] { space_of("", {"gpus"}); }).find("KEY=VALUE") != std::string::npos);
  CHECK(message_of([] { space_of("", {"gpus=8", "gpus=16"}); }).find("twice") != std::string::npos);
  CHECK(message_of([] { space_of("", {"overlap=true"}); }).find("stands for several keys") != std::string::npos);
  CHECK(message_of([] { space_of("[sweep]\nmicro_batch_size = []\n"); }).find("one value or more") !=
        std::string::npos);
  CHECK(message_of([] { space_of("[sweep]\nmicro_batch_size = 3\n"); }).find("a list of values") != std::string::npos);
}

}  // namespace stretto::sweep
