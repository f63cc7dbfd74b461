#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "validate/published_words.hpp"

namespace stretto::validate {

// What a row of published steps says of its run, its words understood. A number that the row does not say is 0.
struct PublishedRun {
  std::string id, platform, profile, model_name;
  std::int64_t gpus = 0;
  std::int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, vocab = 0, seq_len = 0;
  std::int64_t gbs = 0, mbs = 0, tp = 0, pp = 0, chunks = 0, cp = 0, ep = 0, dp = 0;
  bool sizes_by_name = false;  // the row does not have them, but its model's name says them
  // As the entries of [[recompute]] call it; "" where the row says nothing.
  std::string recompute;
  bool sequence_parallel = false, hybrid_shard = false;
  std::string task;
  PublishedWords::Framework framework;
  PublishedWords::Model model;
  std::map<std::string, std::string> habits;  // section → keys
  std::map<std::string, std::string>
      columns;  // likewise: what columns say that are a key's value (ScenarioKey::column)

  std::int64_t ranks_of_model() const;  // tp · cp · pp
};

// The run as the TOML of a scenario. What the row does not say is added to the assumptions.
std::string scenario_text(const PublishedRun& run, std::vector<std::string>& assumptions);

}  // namespace stretto::validate
