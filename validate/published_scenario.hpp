#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "validate/published_words.hpp"

namespace stretto::validate {

// The contents of a row of published steps, its words understood. A number that the row does not give is 0.
struct PublishedRun {
  std::string id, platform, profile, model_name;
  std::int64_t gpus = 0;
  std::int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, vocab = 0, seq_len = 0;
  std::int64_t gbs = 0, mbs = 0, tp = 0, pp = 0, chunks = 0, cp = 0, ep = 0, dp = 0;
  std::int64_t moe_layers = 0;  // the last of the layers that have experts; 0: as the model says
  bool has_experts = false;
  std::string dispatcher;      // "deepep", "hybridep"; "": NCCL's messages
  bool sizes_by_name = false;  // the row has no sizes, but its model's name determines them
  // Name of an entry of [[recompute]]; "" where the row has none.
  std::string recompute;
  std::vector<std::string> recompute_modules = {};  // empty: the scenario's default
  bool sequence_parallel = false, hybrid_shard = false;
  std::string task;
  std::int64_t document_tokens = 0;  // of fine-tuning; 0: a sequence is one document
  PublishedWords::Framework framework;
  PublishedWords::Model model;
  std::map<std::string, std::string> habits;  // section → keys
  // Section → keys that the row itself states: columns of keys, modes in its notes. They come before habits and the
  // model's keys.
  std::map<std::string, std::string> columns;

  std::int64_t ranks_of_model() const;  // tp · cp · pp
};

// Returns the run as the TOML of a scenario. Values that the row does not give are added to the assumptions.
std::string scenario_text(const PublishedRun& run, std::vector<std::string>& assumptions);

}  // namespace stretto::validate
