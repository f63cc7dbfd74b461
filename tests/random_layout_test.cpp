// Tests that layouts drawn at random train what one rank trains. scripts/soak runs many more.
#include "tests/random_layout.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <set>

#include "model/acting_overlap.hpp"
#include "model/expert_slots.hpp"
#include "tests/cases.hpp"
#include "tests/layout_properties.hpp"

namespace stretto::testing {
namespace {

void check_layouts(std::uint64_t first_seed, int count, bool threaded) {
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t seed = first_seed + static_cast<std::uint64_t>(i);
    const RandomLayout layout = random_layout(seed);
    refused += layout.refused;
    const std::vector<std::string> broken = broken_properties(layout.scenario, threaded, seed);
    INFO("seed " << seed << (threaded ? ", on threads" : ", serially") << "\n" << layout.toml);
    for (const std::string& line : broken) UNSCOPED_INFO(line);
    CHECK(broken.empty());
  }
  INFO(refused << " draws were refused");
  CHECK(refused <= 4 * count + 20);
}

}  // namespace

// A sanitizer's build is many times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSerial = 2, kThreaded = 1;
#else
constexpr int kSerial = 6, kThreaded = 3;
#endif

TEST_CASE("random layouts equal the single rank, serially", "[serial]") { check_layouts(1, share_of(kSerial), false); }
TEST_CASE("random layouts equal the single rank, on threads") { check_layouts(1001, share_of(kThreaded), true); }

TEST_CASE("many random layouts equal the single rank", "[.][soak]") {
  const std::uint64_t seed = from_environment("STRETTO_LAYOUT_SEED", 10'000);
  check_layouts(seed, static_cast<int>(from_environment("STRETTO_SERIAL_LAYOUTS", 300)), false);
  check_layouts(seed, static_cast<int>(from_environment("STRETTO_THREADED_LAYOUTS", 60)), true);
}

TEST_CASE("many random layouts verify", "[.][soak]") {
  const std::uint64_t first = from_environment("STRETTO_LAYOUT_SEED", 10'000),
                      count = from_environment("STRETTO_VERIFIED_LAYOUTS", 2000);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const RandomLayout layout = random_layout(seed);
    INFO("seed " << seed << "\n" << layout.toml);
    CHECK_NOTHROW(plan_and_verify(build_schedule(layout.scenario)));
  }
}

namespace {

void check_layouts_in_codes(std::uint64_t first, std::uint64_t count) {
  int refused = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const RandomLayout layout = random_layout_in_codes(seed);
    refused += layout.refused;
    INFO("seed " << seed << "\n" << layout.toml);
    CHECK_NOTHROW(plan_and_verify(build_schedule(layout.scenario)));
  }
  INFO(refused << " draws were refused");
  CHECK(refused <= 8 * static_cast<int>(count) + 20);
}

}  // namespace

TEST_CASE("random layouts in low precision verify") { check_layouts_in_codes(1, is_fast_suite() ? 5 : 20); }
TEST_CASE("many random layouts in low precision verify", "[.][soak]") {
  check_layouts_in_codes(from_environment("STRETTO_LAYOUT_SEED", 10'000),
                         from_environment("STRETTO_VERIFIED_LAYOUTS", 2000));
}

TEST_CASE("random layouts are everywhere", "[serial]") {
  if (is_fast_suite() || kCaseStride > 1) return;  // the generator itself: once is enough
  std::set<std::string> seen, drawn;
  for (std::uint64_t seed = 0; seed < 6'000; ++seed) {
    const RandomLayout layout = random_layout(seed);
    const Scenario& scenario = layout.scenario;
    drawn.insert(layout.keys.begin(), layout.keys.end());
    const Parallel& p = scenario.parallel;
    const Overlap& o = scenario.overlap;
    const auto see = [&](const char* what, bool there) {
      if (there) seen.insert(what);
    };
    const std::int64_t group = p.microbatch_group_size_per_vp_stage, count = scenario.num_microbatches();
    const std::vector<ModelChunk> chunks = model_chunks(scenario.model, p);
    see("dropout of attention alone", scenario.model.attention_dropout > 0 && scenario.model.hidden_dropout == 0);
    see("dropout of residuals alone", scenario.model.attention_dropout == 0 && scenario.model.hidden_dropout > 0);
    const bool pipeline = p.pipeline_model_parallel_size > 1, interleaved = p.virtual_pipeline_model_parallel_size > 1;
    CHECK(p.ranks() <= 16);
    see("16 ranks", p.ranks() == 16);
    see("all axes", p.data_parallel_size > 1 && p.tensor_model_parallel_size > 1 && pipeline);
    see("interleaved", interleaved);
    see("a ring and stages", p.has_cp_ring() && pipeline && o.cp_comm_overlap);
    const auto is_any = [&](auto is) { return std::any_of(p.cp_comm_type.begin(), p.cp_comm_type.end(), is); };
    const bool exchanges = is_any([&](CpCommType type) { return p.cp_exchange_size(type) > 1; }),
               queries = o.cp_flash_overlap && p.context_parallel_size > 1 && p.has_cp_comm_type(CpCommType::a2a);
    see("attention by queries, stages", queries && pipeline);
    see("a ring, not overlapped", p.has_cp_ring() && !o.cp_comm_overlap);
    see("a ring, sequence parallel", p.has_cp_ring() && p.sequence_parallel && p.tensor_model_parallel_size > 1);
    see("keys gathered", p.context_parallel_size > 2 && p.has_cp_comm_type(CpCommType::all_gather));
    see("heads exchanged", p.context_parallel_size > 2 && p.has_cp_comm_type(CpCommType::a2a) && pipeline);
    see("heads exchanged, grouped queries",
        exchanges && scenario.model.kv_heads() != scenario.model.num_attention_heads);
    see("a ring of exchanges",
        is_any([&](CpCommType type) { return p.cp_exchange_size(type) > 1 && p.has_cp_ring(type); }));
    const bool is_mixed = p.context_parallel_size > 1 && p.cp_comm_types().size() > 1;
    const Recompute::Granularity recomputed = scenario.training.recompute.granularity;
    see("types of layers, one for each", p.context_parallel_size > 1 && p.cp_comm_type.size() > 1 && !is_mixed);
    see("four types of layers", is_mixed && p.cp_comm_types().size() == 4);
    see("types of layers, interleaved", is_mixed && interleaved && !is_zero_bubble(p.pipeline_schedule));
    see("types of layers, weight gradients apart, dropout",
        is_mixed && exchanges && is_zero_bubble(p.pipeline_schedule) && scenario.model.attention_dropout > 0);
    see("types of layers, both overlapped", is_mixed && queries && p.has_cp_ring() && o.cp_comm_overlap);
    see("types of layers, sequence parallel",
        is_mixed && o.tp_comm_overlap && p.sequence_parallel && p.tensor_model_parallel_size > 1);
    see("types of layers, all-reduces overlapped", is_mixed && o.async_tensor_model_parallel_allreduce &&
                                                       !p.sequence_parallel && p.tensor_model_parallel_size > 1);
    see("types of layers, recomputed", is_mixed && recomputed == Recompute::Granularity::full);
    see("types of layers, attention recomputed",
        is_mixed && queries && recomputed == Recompute::Granularity::selective);
    see("types of layers, sharded parameters", is_mixed && p.shards_parameters() && o.fsdp_comm_overlap);
    see("types of layers, replicas", is_mixed && p.data_parallel_size > 1 && o.overlap_param_gather);
    see("dropout and a ring", p.has_cp_ring() && scenario.model.attention_dropout > 0);
    see("sequence parallel in a pipeline", p.sequence_parallel && p.tensor_model_parallel_size > 1 && pipeline);
    see("scattered messages",
        p.scatter_gather_tensors_in_pipeline && !p.sequence_parallel && p.tensor_model_parallel_size > 1 && pipeline);
    see("optimizer in full", !p.shards_optimizer() && p.data_parallel_size > 1 && o.overlap_grad_reduce);
    const bool in_units = p.shards_gradients() && p.replicas() > 1;
    see("gradients sharded", in_units && !p.shards_parameters() && o.fsdp_comm_overlap);
    see("parameters sharded", in_units && p.shards_parameters() && !o.fsdp_comm_overlap);
    see("parameters sharded, gathered ahead", in_units && p.shards_parameters() && o.fsdp_comm_overlap &&
                                                  o.fsdp_prefetch_depth > 1 && p.tensor_model_parallel_size > 1 &&
                                                  p.sequence_parallel && count > 1);
    see("parameters sharded and kept", in_units && !p.reshard_after_forward && p.context_parallel_size > 1);
    see("sharded and recomputed", in_units && p.shards_parameters() &&
                                      scenario.training.recompute.granularity == Recompute::Granularity::full &&
                                      scenario.training.recompute.num_layers > 1);
    const bool staged = in_units && pipeline, apart = is_zero_bubble(p.pipeline_schedule);
    see("gradients sharded, stages", staged && !p.shards_parameters());
    see("parameters sharded, interleaved", staged && p.shards_parameters() && p.reshard_after_forward && interleaved &&
                                               !apart && o.fsdp_comm_overlap && o.fsdp_prefetch_depth > 1);
    see("parameters kept, stages", staged && !p.reshard_after_forward && !apart && count > 1);
    see("parameters sharded, weight gradients apart", staged && p.shards_parameters() && apart && o.overlap_p2p_comm);
    see("sharded, tied over stages", staged && !scenario.model.untie_embeddings_and_output_weights &&
                                         p.pipeline_schedule != PipelineSchedule::zb_v &&
                                         p.pipeline_schedule != PipelineSchedule::dualpipe_v &&
                                         p.tensor_model_parallel_size > 1);
    see("sharded, stages, weight gradients of the head put off",
        staged && o.defer_embedding_wgrad_compute && !apart && !p.reshard_after_forward);
    see("sharded, stages, instances", staged && p.num_distributed_optimizer_instances > 1);
    see("sharded, stages, recomputed",
        staged && p.shards_parameters() && scenario.training.recompute.granularity == Recompute::Granularity::full);
    const bool has_instances = p.num_distributed_optimizer_instances > 1;
    see("instances in a pipeline", has_instances && pipeline && o.overlap_grad_reduce);
    see("instances of three", p.num_distributed_optimizer_instances == 3);
    see("instances over a ring", has_instances && p.context_parallel_size > 1 && !in_units);
    see("instances of sharded parameters", has_instances && in_units && p.shards_parameters() && o.fsdp_comm_overlap);
    const bool sums_in_fp32 =
        o.reduce_scatter_with_fp32_accumulation && !o.grad_reduce_in_fp32 && p.shards_optimizer() && !in_units;
    see("summed in fp32", sums_in_fp32 && p.replicas() > 2 && o.overlap_grad_reduce);
    see("gathered in fp8", o.fp8_param_gather && p.replicas() > 1 && !in_units);
    see("gathered in fp8 ahead", o.fp8_param_gather && p.replicas() > 1 && o.overlap_param_gather && pipeline);
    see("gathered with the update",
        o.overlap_param_gather_with_optimizer_step && p.replicas() > 1 && !o.fp8_param_gather);
    see("ranks in another order", p.order != Parallel{}.order && pipeline && p.ranks() > p.model_ranks());
    see("first stage", p.num_layers_in_first_pipeline_stage > 0);
    see("last stage", p.num_layers_in_last_pipeline_stage > 0);
    see("embedding counts", p.account_for_embedding_in_pipeline_split && pipeline);
    see("head counts", p.account_for_loss_in_pipeline_split && pipeline);
    see("layout", pipeline && !p.pipeline_model_parallel_layout.empty());
    see("embedding alone", chunks.front().layers() == 0);
    see("head alone", chunks.back().layers() == 0);
    see("remainder of groups", interleaved && group > 0 && count % group != 0);
    see("fewer micro-batches than stages", count < p.pipeline_model_parallel_size);
    see("batched", pipeline && o.batch_p2p_comm);
    see("side by side", pipeline && !o.batch_p2p_comm && !o.overlap_p2p_comm);
    see("overlapped", pipeline && o.overlap_p2p_comm && !o.overlap_p2p_comm_warmup_flush);
    see("overlapped warm-up", interleaved && o.overlap_p2p_comm_warmup_flush);
    see("tied over stages", pipeline && !scenario.model.untie_embeddings_and_output_weights);
    see("channels", !scenario.cluster.max_ctas.empty());
    see("copy engines", !scenario.cluster.zero_cta_groups.empty());
    see("some weight gradients of the head put off", o.defer_embedding_wgrad_compute && o.wgrad_deferral_limit > 0 &&
                                                         o.wgrad_deferral_limit < count && interleaved && group > 0 &&
                                                         count % group != 0);
    see("bf16", scenario.training.precision == "bf16" && pipeline);
    see("reduced in bf16", !o.grad_reduce_in_fp32 && p.replicas() > 1);
    see("one queue", scenario.cluster.cuda_device_max_connections == 1);
    see("recomputed", scenario.training.recompute.granularity == Recompute::Granularity::full && pipeline);
    see("norms' gradients at once", scenario.training.norm_gradient_fusion && p.sequence_parallel && pipeline);
    see("unfused attention", scenario.training.attention_backend == AttentionBackend::unfused &&
                                 scenario.model.attention_dropout > 0 && p.tensor_model_parallel_size > 1 && pipeline);
    see("residuals in products", scenario.training.residual_fusion && scenario.model.hidden_dropout == 0 &&
                                     p.tensor_model_parallel_size == 1 && pipeline);
    const bool is_h1 = p.pipeline_schedule == PipelineSchedule::zb_h1,
               is_v = p.pipeline_schedule == PipelineSchedule::zb_v;
    const Training& t = scenario.training;
    see("GELU's gradient with that of its bias, weight gradients apart",
        t.gelu_bias_gradient_fusion && t.gelu_fusion && !scenario.model.swiglu && scenario.model.add_bias_linear &&
            !o.tp_comm_overlap && is_zero_bubble(p.pipeline_schedule));
    see("zb-h1, fewer micro-batches than stages", is_h1 && count < p.pipeline_model_parallel_size);
    see("zb-h1, sequence parallel", is_h1 && p.sequence_parallel && p.tensor_model_parallel_size > 1);
    see("zb-h1, selective", is_h1 && scenario.training.recompute.granularity == Recompute::Granularity::selective);
    see("zb-v, overlapped", is_v && o.overlap_p2p_comm);
    see("zb-v, side by side", is_v && !o.overlap_p2p_comm && !o.batch_p2p_comm);
    see("zb-v, buckets", is_v && o.overlap_param_gather && p.replicas() > 1);
    see("zb-v, tied", is_v && !scenario.model.untie_embeddings_and_output_weights && o.overlap_grad_reduce);
    see("zb-v, embedding alone", is_v && chunks.front().layers() == 0);
    see("zb-v, heads exchanged", is_v && exchanges);
    see("zb-v, no dropout", is_v && scenario.model.hidden_dropout == 0);
    const bool is_dual = p.pipeline_schedule == PipelineSchedule::dualpipe_v;
    see("dualpipev, overlapped", is_dual && o.overlap_p2p_comm);
    see("dualpipev, batched, buckets", is_dual && o.batch_p2p_comm && o.overlap_grad_reduce && p.replicas() > 1);
    see("dualpipev, sequence parallel", is_dual && p.sequence_parallel && p.tensor_model_parallel_size > 1);
    const bool pairs = o.overlap_moe_expert_parallel_comm, shared = scenario.model.experts.has_shared();
    see("pairs of passes", pairs && !o.delay_wgrad_compute && count > 2);
    see("pairs of passes, interleaved, weight gradients apart", pairs && interleaved && o.delay_wgrad_compute);
    see("pairs of passes, early attention, sequence parallel",
        pairs && o.ep_overlap_early_attn_memory_release && p.tensor_model_parallel_size > 1);
    see("pairs of passes, weight gradients of a shared expert apart", pairs && shared && o.delay_wgrad_compute);
    const bool is_linear = scenario.model.gated_delta.any(), is_hybrid = scenario.model.mamba.any();
    see("linear attention, sequence parallel",
        is_linear && p.sequence_parallel && p.tensor_model_parallel_size > 1 && pipeline);
    see("linear attention, weight gradients apart", is_linear && apart);
    see("linear attention, recomputed", is_linear && recomputed == Recompute::Granularity::full);
    see("a hybrid, sequence parallel",
        is_hybrid && p.sequence_parallel && p.tensor_model_parallel_size > 1 && pipeline);
    see("a hybrid, parameters sharded", is_hybrid && in_units && p.shards_parameters());
    const bool has_experts = scenario.model.experts.any();
    see("zero-bubble with experts", has_experts && is_h1);
    see("zero-bubble in a V with experts of several ranks",
        has_experts && (is_v || is_dual) && p.expert_model_parallel_size > 1);
    see("zero-bubble with latent attention", scenario.model.latent.any() && is_zero_bubble(p.pipeline_schedule));
    see("a shared expert overlapped", o.moe_shared_expert_overlap && shared);
    see("weight gradients of experts last", o.overlap_dispatch_backward_with_experts_wgrad);
    const bool in_shards = cuts_exchanges(scenario);
    see("experts in shards of one rank", in_shards && o.ep_flash_shards >= p.expert_model_parallel_size);
    see("experts in slots without padding", exchanges_in_slots(scenario));
    see("experts in shards of several ranks", in_shards && o.ep_flash_shards < p.expert_model_parallel_size);
  }
  CHECK(seen.size() == 105);

  // A new key must be drawn, or listed in keys_not_drawn() with the reason.
  const std::vector<std::string> known = scenario_keys(), excepted = keys_not_drawn();
  CHECK(known.size() > 100);
  for (const std::string& key : known) {
    INFO(key << " is a key of scenarios that random layouts neither draw nor except");
    CHECK((drawn.contains(key) || std::count(excepted.begin(), excepted.end(), key) == 1));
  }
  for (const std::string& key : excepted) {
    INFO(key << " is excepted for nothing");
    CHECK((std::count(known.begin(), known.end(), key) == 1 && !drawn.contains(key)));
  }
}

}  // namespace stretto::testing
