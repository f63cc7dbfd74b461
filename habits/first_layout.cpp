#include "habits/first_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "base/toml.hpp"
#include "model/scenario.hpp"

namespace stretto::habits {
namespace {

constexpr std::int64_t kGpusOfNode = 8;  // of DGX and HGX machines
// Mixed-precision Adam: weights and gradients in 16 and 32 bits; master, momentum and variance in 32, which the
// distributed optimizer shards (arXiv 1910.02054, 3.1, with gradients in 32 bits).
constexpr double kReplicated = 2 + 4, kSharded = 12;
constexpr double kShareOfMemory = 0.5;  // the rest is for activations

struct Sizes {
  std::int64_t tp = 1, pp = 1, ep = 1, cp = 1;
  bool says_tp = false, says_pp = false, says_ep = false;
};

Sizes sizes_in(const std::vector<std::string>& set) {
  Sizes sizes;
  const auto read = [&](const std::string& one, const char* key, std::int64_t& size, bool* says) {
    const std::string begin = std::string("parallel.") + key + "_model_parallel_size=";
    const std::string text = one.starts_with(begin) ? one.substr(begin.size()) : "";
    if (text.empty() || text.size() > 6 || text.find_first_not_of("0123456789") != std::string::npos) return;
    size = std::max<std::int64_t>(1, std::stoll(text));
    if (says != nullptr) *says = true;
  };
  for (const std::string& one : set) {
    read(one, "tensor", sizes.tp, &sizes.says_tp);
    read(one, "pipeline", sizes.pp, &sizes.says_pp);
    read(one, "expert", sizes.ep, &sizes.says_ep);
  }
  const std::string begin = "parallel.context_parallel_size=";
  for (const std::string& one : set)
    if (one.starts_with(begin) && one.size() < begin.size() + 6 &&
        one.find_first_not_of("0123456789", begin.size()) == std::string::npos && one.size() > begin.size())
      sizes.cp = std::max<std::int64_t>(1, std::stoll(one.substr(begin.size())));
  return sizes;
}

double memory_of(const std::string& platform) {
  TomlTable root = read_toml(is_data_name(platform) ? data_file("platforms", platform) : platform);
  return value_or<double>(root, "memory_bytes", 0);
}

// Bytes of state on the fullest rank, embeddings counted as spread over the stages.
double state_bytes(const Transformer& model, const Sizes& s, std::int64_t gpus) {
  double dense = 0, expert = 0;
  for (const Parameter& parameter : parameters(model))
    (parameter.experts > 0 ? expert : dense) += double(parameter.elements());
  const double of_ranks = double(s.tp * s.pp), dense_here = dense / of_ranks,
               expert_here = expert / double(s.ep * s.pp);
  return kReplicated * (dense_here + expert_here) + kSharded * (dense + expert) / double(gpus);
}

}  // namespace

FirstLayout first_layout(const std::string& keys, const std::string& platform, std::int64_t gpus,
                         const std::string& profile, const std::vector<std::string>& set) {
  const Scenario alone = parse_scenario("[model]\n" + keys, "the model");
  const Transformer& model = alone.model;
  const bool has_experts = model.experts.any();
  FirstLayout first;
  first.profile = !profile.empty() ? profile : has_experts ? "megatron-bridge-moe" : "nemo-dgxc";
  const Scenario framework =
      parse_scenario(fmt::format("profile = \"{}\"\n[model]\n{}", first.profile, keys), "the model");
  const bool shards = framework.parallel.shards_gradients();
  Sizes s = sizes_in(set);
  const double room = kShareOfMemory * memory_of(platform);
  const auto divides = [&](const Sizes& one) {
    const std::int64_t of_stage = one.tp * one.cp;
    return gpus % (std::lcm(of_stage, one.ep) * one.pp) == 0;
  };
  const auto fits = [&](const Sizes& one) { return shards || state_bytes(model, one, gpus) <= room; };
  if (has_experts && !s.says_ep)
    while (s.ep < kGpusOfNode && model.experts.num_moe_experts % (2 * s.ep) == 0) {
      Sizes more = s;
      more.ep *= 2;
      if (!divides(more)) break;
      s = more;
    }
  while (!fits(s)) {
    Sizes more = s;
    more.tp *= 2;
    const bool is_possible = !s.says_tp && more.tp <= kGpusOfNode && model.num_attention_heads % more.tp == 0 &&
                             model.kv_heads() % more.tp == 0 && divides(more) && !has_experts;
    if (!is_possible) {
      more = s;
      more.pp *= 2;
      if (s.says_pp || model.num_layers % more.pp != 0 || !divides(more)) break;
    }
    s = more;
  }
  const std::int64_t unit = std::lcm(s.tp * s.cp, s.ep) * s.pp;
  if (gpus % unit != 0)
    throw input_error(fmt::format("--gpus {}: the groups of --set need a multiple of {} GPUs; the nearest {}{}", gpus,
                                  unit, gpus > unit ? fmt::format("are {} and ", gpus / unit * unit) : "is ",
                                  (gpus / unit + 1) * unit));
  const std::int64_t replicas = gpus / (s.tp * s.cp * s.pp);
  const std::int64_t wanted = std::max<std::int64_t>(1, kTokensOfStep / model.seq_length);
  const std::int64_t each = std::max<std::int64_t>(s.pp > 1 ? 4 * s.pp : 1, wanted / replicas);
  const auto put = [&](const char* key, std::int64_t size) { first.keys[key] = std::to_string(size); };
  put("parallel.data_parallel_size", replicas);
  put("parallel.tensor_model_parallel_size", s.tp);
  put("parallel.pipeline_model_parallel_size", s.pp);
  if (s.ep > 1) {
    put("parallel.expert_model_parallel_size", s.ep);
    put("parallel.expert_tensor_parallel_size", 1);
  }
  put("training.micro_batch_size", 1);
  put("training.global_batch_size", each * replicas);
  first.because =
      "the fewest ranks of a model whose state takes at most half of the memory, and 4 million tokens a step";
  first.source = "arXiv 1910.02054, 3.1; arXiv 2407.21783, 3.4.1";
  return first;
}

}  // namespace stretto::habits
