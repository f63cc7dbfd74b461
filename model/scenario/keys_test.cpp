#include "model/scenario/keys.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/random_layout.hpp"

using namespace stretto;
using Catch::Matchers::Contains;

namespace {

struct Anything {
  template <class T>
  operator T() const;
};
// Returns the number of an aggregate's fields.
template <class T, class... Given>
constexpr std::size_t fields_of() {
  if constexpr (requires { T{Given{}..., Anything{}}; })
    return fields_of<T, Given..., Anything>();
  else
    return sizeof...(Given);
}

const void* place_of(const Field& field) {
  return std::visit(
      [](const auto& to) -> const void* {
        if constexpr (std::is_same_v<std::decay_t<decltype(to)>, WordField>)
          return to.value;
        else
          return to;
      },
      field);
}

// Returns the number of fields of `part` of a scenario that rows read, each counted once.
template <class Part>
std::size_t fields_with_row(const char* section, Scenario& scenario, const Part& part) {
  std::set<const void*> places;
  for (const ScenarioKey& key : scenario_keys_of(section)) {
    if (key.field == nullptr) continue;
    const void* place = place_of(key.field(scenario));
    INFO(key.name);
    CHECK((place >= &part && place < &part + 1));
    CHECK(places.insert(place).second);
  }
  return places.size();
}

}  // namespace

TEST_CASE("every field of a section is read by a row or is named here", "[keys]") {
  Scenario s;
  // padded_vocab_size follows from make_vocab_size_divisible_by; no key says `layers` yet, and none
  // num_nextn_predict_layers and left_out.
  CHECK(fields_with_row("model", s, s.model) ==
        fields_of<Transformer>() - 9 + fields_of<RopeScaling>() + fields_of<Experts>() + fields_of<LatentAttention>() -
            1 + fields_of<YarnScaling>() + fields_of<GatedDelta>() + fields_of<Mamba>());
  // cp_comm_type and hierarchical_context_parallel_sizes are arrays, tp_comm_overlap_cfg is a table.
  CHECK(fields_with_row("parallel", s, s.parallel) == fields_of<Parallel>() - 2);
  CHECK(fields_with_row("overlap", s, s.overlap) == fields_of<Overlap>() - 1);
  // max_ctas, zero_cta_groups and high_priority_stream_groups are no plain values, nor are modes and ranks.
  CHECK(fields_with_row("cluster", s, s.cluster) == fields_of<Cluster>() - 3);
  CHECK(fields_with_row("compare", s, s.compare) == fields_of<Compare>() - 2);
  // recompute_modules, cuda_graph_modules, data, validation_data and data_weights are arrays, a file has the measured
  // loads, and sequences_of_replica is set by code alone.
  CHECK(fields_with_row("training", s, s.training) ==
        fields_of<Training>() - 10 + fields_of<DocumentLengths>() - 1 + fields_of<Recompute>() - 1 +
            fields_of<ExpertLoads>() - 1 + fields_of<LowPrecision>() + fields_of<OptimizerPrecision>() - 1);
}

TEST_CASE("the reader of scenarios knows the rows' keys and no others", "[keys]") {
  const std::vector<std::string> read = testing::scenario_keys();
  for (const char* section : kSectionsOfKeys) {
    std::set<std::string> known, rows;
    for (const std::string& key : read)
      if (key.starts_with(std::string(section) + ".") && std::count(key.begin(), key.end(), '.') == 1)
        known.insert(key);
    for (const ScenarioKey& key : scenario_keys_of(section)) {
      rows.insert(key.full_name());
      for (const char* other : key.also) rows.insert(std::string(section) + "." + other);
    }
    known.erase("overlap.grad_sync_dtype");  // names a type; equivalent to grad_reduce_in_fp32
    for (const char* table : {"overlap.tp_comm_overlap_cfg", "cluster.nccl_communicator_config"}) rows.erase(table);
    CHECK(known == rows);
  }
}

// The page shows a row alone, and its search picks some out.
TEST_CASE("a row's meaning needs no other row and is no other's", "[keys]") {
  std::set<std::string> meanings;
  for (const char* section : kSectionsOfKeys)
    for (const ScenarioKey& key : scenario_keys_of(section)) {
      INFO(key.full_name());
      CHECK(meanings.insert(key.meaning).second);
      for (const char* relative : {"the same", "so ", "also ", "that ", "as above"})
        CHECK_FALSE(std::string(key.meaning).starts_with(relative));
    }
}

TEST_CASE("docs/scenario.md has the rows", "[keys]") {
  std::ifstream file(std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "docs/scenario.md");
  std::stringstream text;
  text << file.rdbuf();
  INFO("stretto show --keys prints them");
  for (const char* section : kSectionsOfKeys) CHECK_THAT(text.str(), Contains(keys_reference(section)));
  CHECK_THAT(text.str(), Contains(hf_reference()));
  for (const char* section : kSectionsOfKeys)
    for (const ScenarioKey& key : scenario_keys_of(section))
      for (const char* other : key.also)
        CHECK_THAT(text.str(), Contains("| `" + std::string(other) + "` | `[" + section + "]` | `" + key.name + "` |"));
}
