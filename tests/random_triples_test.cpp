// Trains triples of an overlap mode, a pipeline schedule and an order of experts' rows against one rank. All triples
// are drawn equally often, however seldom a layout drawn at random has them; the rest of the layout is random.
// scripts/soak runs many more.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "model/overlap/gates.hpp"
#include "tests/draw.hpp"
#include "tests/single_rank.hpp"

namespace stretto::testing {
namespace {

constexpr std::array kSchedules = {"", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipev"};
constexpr std::array kRows = {"none",     "whole experts", "as routed", "padded",          "padded, one expert a rank",
                              "in slots", "gathered",      "flex",      "flex and padded", "cut experts"};

struct Triple {
  std::string mode, schedule, rows;
  std::string text() const { return mode + ", " + (schedule.empty() ? "one stage" : schedule) + ", rows " + rows; }
};

std::vector<Triple> all_triples() {
  std::vector<Triple> all;
  for (const OverlapMode& mode : overlap_modes())
    for (const char* schedule : kSchedules)
      for (const char* rows : kRows) all.push_back({mode.name, schedule, rows});
  return all;
}

// Returns the text of a scenario with the triple; the reader may refuse it.
std::string layout_of(const Triple& triple, Draw& draw) {
  const auto is = [](const std::string& of, const char* what) { return of.find(what) != std::string::npos; };
  const auto line = [](const char* key, auto value) {
    std::string text;
    if constexpr (std::is_same_v<decltype(value), bool>)
      text = value ? "true" : "false";
    else if constexpr (std::is_arithmetic_v<decltype(value)>)
      text = std::to_string(value);
    else
      text = value;
    return std::string(key) + " = " + text + "\n";
  };
  const bool in_shards = triple.mode == "ep_flash_overlap", is_async = is(triple.mode, "async"),
             has_experts = triple.rows != "none", shares = has_experts && !is(triple.rows, "whole"),
             one_local = is(triple.rows, "one expert");
  const std::int64_t tp = is(triple.mode, "tp_") || is_async || draw.seldom() ? 2 : 1,
                     cp = is(triple.mode, "cp_comm") || is(triple.mode, "cp_flash") ? 2 : 1,
                     pp = triple.schedule.empty() ? 1 : 2, dp = draw.one_of({1, 2, 2, 4}), ranks = tp * cp * dp,
                     cut = is(triple.rows, "cut") ? 2 : 1;
  const std::int64_t ep = shares
                              ? std::min<std::int64_t>(draw.one_of({2, 4, 4}), std::max<std::int64_t>(2, ranks / cut))
                              : 1,
                     local = one_local ? 1 : draw.between(2, 3);
  const bool is_latent = draw.seldom();
  std::string model =
      "[model]\nnum_layers = 4\nhidden_size = 16\nnum_attention_heads = 4\nffn_hidden_size = 20\n"
      "vocab_size = 31\nadd_bias_linear = false\n";
  model += line("seq_length", cp > 1 ? 8 : 4) + line("swiglu", draw.coin()) +
           line("untie_embeddings_and_output_weights", draw.coin());
  if (draw.coin() || is_latent) model += "normalization = \"RMSNorm\"\nposition_embedding_type = \"rope\"\n";
  if (has_experts) {
    model += line("num_moe_experts", ep * local) +
             line("moe_router_topk", draw.between(1, std::min<std::int64_t>(2, ep * local))) +
             "moe_ffn_hidden_size = 12\nmoe_router_score_function = \"sigmoid\"\n";
    if (is(triple.mode, "shared_expert") || draw.seldom()) model += "moe_shared_expert_intermediate_size = 8\n";
    if (draw.seldom()) model += "moe_layer_freq = [0, 1, 1, 1]\n";
  }
  std::string parallel = "[parallel]\n" + line("data_parallel_size", dp) + line("context_parallel_size", cp) +
                         line("tensor_model_parallel_size", tp) + line("sequence_parallel", tp > 1 && !is_async);
  if (cp > 1) parallel += line("cp_comm_type", is(triple.mode, "flash") ? "\"a2a\"" : "\"p2p\"");
  if (pp > 1) parallel += line("pipeline_model_parallel_size", pp);
  if (triple.schedule == "interleaved")
    parallel += "virtual_pipeline_model_parallel_size = 2\n";
  else if (pp > 1)
    parallel += line("pipeline_schedule", "\"" + triple.schedule + "\"");
  if (shares) {
    const bool pads = is(triple.rows, "padded") || (is(triple.rows, "cut") && draw.coin() && !in_shards);
    const std::string backend = draw.one_of({"deepep", "hybridep", "ncclep"});
    parallel += line("expert_model_parallel_size", ep) + line("expert_tensor_parallel_size", cut) +
                line("moe_token_dispatcher_type", is(triple.rows, "flex")       ? "\"flex\""
                                                  : is(triple.rows, "gathered") ? "\"allgather\""
                                                                                : "\"alltoall\"");
    if (is(triple.rows, "flex"))
      parallel += line("moe_flex_dispatcher_backend", "\"" + (pads ? "hybridep" : backend) + "\"");
    if (pads)
      parallel +=
          line("moe_expert_capacity_factor", double(ep * local)) + line("moe_pad_expert_input_to_capacity", true);
    if (is(triple.rows, "slots")) parallel += line("moe_expert_rank_capacity_factor", double(ep));
  }
  if (is(triple.mode, "fsdp"))
    parallel += "data_parallel_sharding_strategy = \"optim_grads_params\"\n";
  else if (draw.seldom())
    parallel += line("data_parallel_sharding_strategy", draw.one_of({"\"no_shard\"", "\"optim_grads\""}));
  std::string overlap = "[overlap]\n" + line("bucket_size", 300);
  if (in_shards) overlap += line("ep_flash_shards", draw.between(1, 4));
  std::string training = "[training]\nprecision = \"fp64\"\nlr = 1e-2\ninit_method_std = 0.3\n" +
                         line("global_batch_size", dp * (pp > 1 ? 4 : draw.between(1, 3)));
  if (draw.seldom()) training += "recompute_granularity = \"full\"\nrecompute_method = \"uniform\"\n";
  return model + parallel + overlap + training;
}

// Sets the mode's knobs, and draws those of some other modes. Returns whether a gate leaves the mode on.
bool set_knobs(Scenario& scenario, const OverlapMode& mode, Draw& draw) {
  Overlap& overlap = scenario.overlap;
  set_mode(overlap, mode);
  if (draw.coin()) overlap.overlap_grad_reduce = true;
  if (overlap.overlap_grad_reduce && draw.coin()) overlap.overlap_param_gather = true;
  if (draw.seldom()) overlap.cp_comm_overlap = true;
  if (draw.seldom()) overlap.overlap_dispatch_backward_with_experts_wgrad = !overlap.ep_flash_overlap;
  const Gates gates = gates_of(scenario);
  return gates.refused({}) == nullptr && mode.applies(scenario.parallel) &&
         (mode.knob.empty() || gates.acts(mode.knob));
}

// Checks `count` triples, from a place in their shuffled list on that the seed decides.
void check_triples(std::uint64_t seed, int count) {
  std::vector<Triple> triples = all_triples();
  std::shuffle(triples.begin(), triples.end(), std::mt19937_64(seed));
  SingleRank single(1);
  constexpr int kMostDraws = 12;  // of a layout that the reader accepts, with the triple
  int checked = 0, round = 0;
  for (; checked < count && round < 100; ++round)
    for (std::size_t i = 0; i < triples.size() && checked < count; ++i) {
      const Triple& triple = triples[i];
      Draw draw(seed * 1'000'003 + static_cast<std::uint64_t>(round) * triples.size() + i);
      for (int draws = 0; draws < kMostDraws; ++draws) {
        const std::string toml = layout_of(triple, draw);
        std::optional<Scenario> scenario;
        try {
          scenario = parse_scenario(toml, "triple.toml");
          if (!set_knobs(*scenario, find_overlap_mode(triple.mode), draw)) continue;
        } catch (const Error&) {
          continue;
        }
        INFO("seed " << seed << ", " << triple.text() << "\n" << toml);
        try {
          single.check(*scenario);
        } catch (const std::exception& error) {
          FAIL_CHECK(error.what());
        }
        ++checked;
        break;
      }
    }
  CHECK(checked == count);
}

}  // namespace

// A sanitizer's build is many times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kTriples = 6;
#else
constexpr int kTriples = 300;
#endif

TEST_CASE("triples of mode, pipeline and order of rows equal the single rank", "[serial]") {
  check_triples(1, share_of(kTriples));
}
TEST_CASE("many triples of mode, pipeline and order of rows equal the single rank", "[.][soak]") {
  check_triples(from_environment("STRETTO_TRIPLE_SEED", 2),
                static_cast<int>(from_environment("STRETTO_TRIPLES", 2000)));
}

}  // namespace stretto::testing
