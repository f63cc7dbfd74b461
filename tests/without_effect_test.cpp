// Tests that no key is ignored in silence: a value other than the default, in a scenario that has none of what the key
// needs and in one that has much of it, changes the schedule or the training, is refused, or a note names the key.
#include "model/without_effect.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "model/build_schedule.hpp"
#include "model/scenario/keys.hpp"
#include "model/schedule/json.hpp"

namespace stretto::testing {
namespace {

constexpr const char* kSmall = R"([model]
num_layers = 2
hidden_size = 64
num_attention_heads = 2
seq_length = 32
vocab_size = 64
[training]
global_batch_size = 2
)";
constexpr const char* kLarge = R"([model]
num_layers = 4
hidden_size = 64
num_attention_heads = 4
seq_length = 64
vocab_size = 64
normalization = "RMSNorm"
position_embedding_type = "rope"
swiglu = true
add_bias_linear = false
num_moe_experts = 4
moe_router_topk = 2
[parallel]
data_parallel_size = 2
tensor_model_parallel_size = 2
sequence_parallel = true
pipeline_model_parallel_size = 2
expert_model_parallel_size = 2
expert_tensor_parallel_size = 1
[training]
precision = "bf16"
global_batch_size = 8
)";

// Keys that a schedule does not show: costs of the host, the executor's business, and what only predictions on GPUs
// read.
const std::set<std::string> kElsewhere = {"cluster.bind_cores_to_rank",
                                          "cluster.cores_per_device",
                                          "cluster.link_GBps",
                                          "cluster.link_latency_us",
                                          "cluster.ranks_per_device",
                                          "cluster.nccl_ub",
                                          "compare.repeats",
                                          "training.cudnn_attention_dropout",
                                          "training.enable_cuda_graph",
                                          "training.moe_expert_loads",
                                          "training.moe_expert_loads_exponent",
                                          "training.fp8_transposes",
                                          "training.timeout_s",
                                          "training.train_iters"};

// Returns values that are not the default one.
std::vector<std::string> values_of_key(const ScenarioKey& key, const Scenario& scenario) {
  const KeyValue now = value_of(key, scenario);
  std::vector<std::string> values;
  for (const KeyValue& value : key.drawn) values.push_back(value.dump());
  for (const char* choice : key.choices) values.push_back(KeyValue(choice).dump());
  Scenario changed = scenario;
  if (key.field != nullptr) {
    const Field field = key.field(changed);
    if (const auto* word = std::get_if<WordField>(&field)) {
      for (std::uint8_t i = 0; i < 8; ++i)
        if (const char* name = word->name(i); name != nullptr && *name != '\0' && *name != '?')
          values.push_back(KeyValue(name).dump());
    } else if (now.is_boolean()) {
      values.push_back(now.get<bool>() ? "false" : "true");
    } else if (now.is_number()) {
      for (const char* number : {"2", "3", "0.5", "1"}) values.push_back(number);
    }
  }
  std::erase(values, now.dump());
  return values;
}

std::string schedule_text(const Scenario& scenario, std::vector<std::string>& notes) {
  Schedule schedule = build_schedule(scenario);
  notes = schedule.notes;
  schedule.notes.clear();
  return write_schedule_json(schedule).dump();
}

TEST_CASE("no key is ignored in silence") {
  std::set<std::string> silent;
  for (const char* text : {kSmall, kLarge}) {
    const Scenario base = parse_scenario(text, "base.toml");
    std::vector<std::string> notes;
    const std::string plain = schedule_text(base, notes);
    for (const char* section : kSectionsOfKeys)
      for (const ScenarioKey& key : scenario_keys_of(section)) {
        if (key.record != Record::none && key.acts == nullptr) continue;  // another training
        bool shows = false, is_idle = false;
        for (const std::string& value : values_of_key(key, base)) {
          try {
            const Scenario changed = parse_scenario(text, "base.toml", {key.full_name() + "=" + value});
            if (value_of(key, changed) == value_of(key, base)) continue;
            const std::string schedule = schedule_text(changed, notes);
            const auto names = [&](const std::string& note) { return note.find(key.name) != std::string::npos; };
            (schedule != plain || std::any_of(notes.begin(), notes.end(), names) ? shows : is_idle) = true;
          } catch (const Error&) {
            shows = true;  // refused, which is a word
          }
        }
        if (is_idle && !shows && !kElsewhere.contains(key.full_name())) silent.insert(key.full_name());
      }
  }
  for (const std::string& key : silent) UNSCOPED_INFO(key);
  CHECK(silent.empty());
}

TEST_CASE("a recipe without a format of codes is said to be off, and says what it needs") {
  for (const char* recipe : {"tensorwise", "blockwise", "mxfp8"}) {
    const Scenario scenario = parse_scenario(kSmall, "base.toml", {std::string("training.fp8_recipe=") + recipe});
    const std::vector<std::string> lines = keys_without_effect(scenario), notes = build_schedule(scenario).notes;
    REQUIRE(lines.size() == 1);
    CHECK(lines.front().find("fp8_recipe has no effect here: acts with fp8_format") == 0);
    CHECK(notes == std::vector<std::string>{"fp8_recipe is off: it needs fp8_format"});
  }
}

}  // namespace
}  // namespace stretto::testing
