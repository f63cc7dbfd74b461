#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace stretto::habits {

// Tokens of a step with which Llama 3 405B began (arXiv 2407.21783, 3.4.1).
constexpr std::int64_t kTokensOfStep = 4 << 20;

// A layout to begin with where no recipe has one.
struct FirstLayout {
  std::map<std::string, std::string> keys;  // ["section.key"] value in TOML
  std::string profile;                      // of Megatron-core, or of its library for experts
  std::string because, source;
};

// Returns the layout with fewest ranks of a model whose state takes at most half of a GPU's memory: experts among the
// GPUs of a node first, tensor parallelism within a node next, then stages. With FSDP (a profile that shards) no rank
// is of a model. `keys` are those of [model], one a line; `set` are overrides, only sizes of groups count.
// Throws Error(input) with the nearest numbers of GPUs where the groups of `set` do not divide `gpus`.
FirstLayout first_layout(const std::string& keys, const std::string& platform, std::int64_t gpus,
                         const std::string& profile, const std::vector<std::string>& set);

}  // namespace stretto::habits
