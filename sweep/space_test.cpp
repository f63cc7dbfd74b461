#include "sweep/space.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "tests/message_of.hpp"

namespace stretto::sweep {
namespace {

Scenario of_gpus() {
  return parse_scenario(
      "[model]\nnum_layers = 12\nhidden_size = 48\nnum_attention_heads = 6\nseq_length = 64\n"
      "vocab_size = 256\n[parallel]\ndata_parallel_size = 16\n[training]\nglobal_batch_size = 32\n",
      "s.toml");
}

Space space_of(const std::string& table, const std::vector<std::string>& over = {}) {
  return read_space(parse_toml(table, "s.toml").section("sweep"), over, of_gpus(), {});
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

TEST_CASE("a point with pairs of passes has the messages that they need") {
  const std::string pairs = "overlap.overlap_moe_expert_parallel_comm", messages = "overlap.overlap_p2p_comm=true";
  const auto added = [&](const std::vector<std::string>& over, const std::vector<std::string>& values) {
    const auto point = settings_of(space_of("", over), values, of_gpus());
    REQUIRE(point);
    return std::count(point->set.begin(), point->set.end(), messages);
  };
  const std::string stages = "pipeline_model_parallel_size=1,4";
  CHECK(added({stages, pairs + "=legal"}, {"4", "true"}) == 1);
  CHECK(added({stages, pairs + "=legal"}, {"4", "false"}) == 0);
  CHECK(added({stages, pairs + "=legal"}, {"1", "true"}) == 0);
  CHECK(added({stages, pairs + "=legal", "overlap_p2p_comm=legal"}, {"4", "true", "false"}) == 0);
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
  CHECK(message_of([] { space_of("[sweep]\nmicro_batch_size = []\n"); }).find("one value or more") !=
        std::string::npos);
  CHECK(message_of([] { space_of("[sweep]\nmicro_batch_size = 3\n"); }).find("a list of values") != std::string::npos);
}

}  // namespace stretto::sweep
