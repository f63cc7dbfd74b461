// Tests of training in low precision: losses compared with those of bf16, and going on from a checkpoint.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>

#include "exec/state/checkpoint.hpp"
#include "exec/state/saved_state.hpp"
#include "tests/low_precision_layers.hpp"
#include "tests/temp_dir.hpp"

namespace stretto::testing {
namespace {

// Bytes in which each byte is followed by one of four: their entropy is ln 4.
exec::TokenSource learnable_tokens(std::int64_t count, std::uint64_t seed) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count));
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    last = random_bits(1, last, random_bits(seed, 2, i) % 4) % 61;
    bytes[i] = std::byte(last);
  }
  return exec::TokenSource::parse(std::move(bytes), "learnable.txt");
}

std::vector<double> losses_of(const Scenario& scenario, int steps) {
  const Schedule schedule = build_schedule(scenario);
  const VerifiedSchedule verified = plan_and_verify(schedule);
  host::HostExecutor executor(verified, {});
  const exec::MemoryOf memory_of = [&](std::int64_t rank) -> host::RankMemory& { return executor.memory(rank); };
  exec::initialise_state(schedule, scenario, memory_of);
  const exec::TokenSource tokens = learnable_tokens(1 << 16, scenario.training.seed);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    exec::write_batch(schedule, scenario, tokens, step, memory_of);
    exec::write_hyper(schedule, scenario, step, memory_of);
    executor.run(1);
    losses.push_back(exec::read_metrics(schedule, memory_of).loss);
  }
  return losses;
}

// A GPT of two layers; with blockwise scales wide enough for a block.
Scenario learner(std::uint64_t seed, std::int64_t steps, std::int64_t hidden, std::int64_t batch) {
  Scenario scenario = tiny_scenario(1, "plain", "bf16", batch, batch);
  scenario.model = {2, hidden, 4, 4 * hidden, 64, 64, 64, 64};
  scenario.training.seed = seed;
  scenario.training.lr = 2e-3;
  scenario.training.lr_warmup_iters = 10;
  scenario.training.train_iters = steps;
  scenario.training.init_method_std = 0.02;
  return scenario;
}

double mean_of_last(const std::vector<double>& losses, std::size_t count) {
  double sum = 0;
  for (std::size_t i = losses.size() - count; i < losses.size(); ++i) sum += losses[i];
  return sum / double(count);
}

void compare_training(LowRecipe recipe, std::uint64_t seed, int steps, double bound, std::int64_t batch = 2) {
  const std::int64_t hidden = recipe == LowRecipe::blockwise ? 128 : 64;
  Scenario scenario = learner(seed, steps, hidden, batch);
  const double expected = mean_of_last(losses_of(scenario, steps), static_cast<std::size_t>(steps) / 4);
  set_recipe(scenario, recipe);
  const double got = mean_of_last(losses_of(scenario, steps), static_cast<std::size_t>(steps) / 4);
  std::printf("%s, seed %d, %d steps: %.4f, bf16 %.4f, difference %+.4f\n", name_of(recipe), static_cast<int>(seed),
              steps, got, expected, got - expected);
  CHECK(expected < std::log(64) - (steps >= 160 ? 1.0 : 0.1));
  CHECK(got == Approx(expected).margin(bound));
  CHECK(got != expected);
}

}  // namespace

TEST_CASE("a small model trains in every recipe as in bf16") {
  for (const LowRecipe recipe : kLowRecipes) {
    if (is_fast() && recipe == LowRecipe::blockwise) continue;
    if (kIsSanitized && recipe != LowRecipe::mxfp8) continue;
    INFO(name_of(recipe));
    compare_training(recipe, 1, 24, recipe == LowRecipe::nvfp4 ? 0.03 : 0.01);
  }
}
TEST_CASE("a small model with experts and latent attention trains in mxfp8 as in bf16, ranks share experts or not",
          "[experts]") {
  const auto last = [](bool in_codes, std::int64_t ep, bool sends = false) {
    Scenario scenario = learner(1, 24, 64, 2);
    Transformer& model = scenario.model;
    model = in_llama_style(model);
    model.latent = {.multi_latent_attention = true,
                    .q_lora_rank = 0,
                    .kv_lora_rank = 32,
                    .qk_head_dim = 16,
                    .qk_pos_emb_head_dim = 32,
                    .v_head_dim = 16};
    model.qk_layernorm = true;
    model.experts.num_moe_experts = 4;
    model.experts.moe_router_topk = 2;
    model.experts.moe_ffn_hidden_size = 64;
    scenario.parallel.data_parallel_size = 2;
    scenario.parallel.expert_model_parallel_size = ep;
    scenario.training.micro_batch_size = 1;
    if (in_codes) set_recipe(scenario, LowRecipe::mxfp8, false);
    if (sends) send_codes(scenario, true, true);
    return losses_of(scenario, is_fast() ? 12 : 24);
  };
  const std::vector<double> expected = last(false, 1), whole = last(true, 1), shared = last(true, 2);
  CHECK(mean_of_last(whole, 6) == Approx(mean_of_last(expected, 6)).margin(0.01));
  CHECK(whole != expected);
  CHECK(shared.front() == whole.front());  // an expert's rows become codes by themselves
  CHECK(mean_of_last(shared, 6) == Approx(mean_of_last(whole, 6)).margin(0.01));
  const std::vector<double> sent = last(true, 2, true);
  CHECK(sent.front() == shared.front());
  CHECK(mean_of_last(sent, 6) == Approx(mean_of_last(shared, 6)).margin(0.01));
}
TEST_CASE("a small model trains for long in every recipe of fp8 as in bf16", "[.][soak]") {
  for (const LowRecipe recipe : kLowRecipes)
    for (const std::uint64_t seed : {1, 2})
      if (recipe != LowRecipe::nvfp4) compare_training(recipe, seed, 160, 0.003);
}
// The measured differences are 0.012, and 0.010 with 512 tokens in a step in place of 128.
TEST_CASE("a small model trains for long in nvfp4 as in bf16", "[.][soak]") {
  for (const std::uint64_t seed : {1, 2}) compare_training(LowRecipe::nvfp4, seed, 160, 0.015);
}

TEST_CASE("training in low precision goes on from a checkpoint bit for bit") {
  for (const LowRecipe recipe : {LowRecipe::delayed, LowRecipe::nvfp4}) {
    if (kIsSanitized && recipe == LowRecipe::nvfp4) continue;
    INFO(name_of(recipe));
    Scenario scenario = low_precision_scenario(recipe, {1, 2, true, 2}, 2);
    scenario.training.low_precision.fp8_amax_history_len = 3;
    scenario.training.low_precision.fp8_amax_compute_algo = LowPrecision::AmaxAlgo::max;
    const Schedule schedule = build_schedule(scenario);
    const VerifiedSchedule verified = plan_and_verify(schedule);
    const TempDir folder;
    const auto losses = [&](int from, int to) {
      host::HostExecutor executor(verified, {});
      const exec::MemoryOf memory_of = [&](std::int64_t rank) { return &executor.memory(rank); };
      exec::clear_state(schedule, memory_of);
      if (from == 0)
        exec::initialise_state(schedule, scenario, memory_of);
      else
        exec::read_saved_state(schedule, memory_of, *exec::find_latest(folder.path().string()).file);
      const exec::TokenSource tokens = tiny_tokens(scenario.model.vocab_size);
      std::vector<double> all;
      for (int step = from; step < to; ++step) {
        exec::write_batch(schedule, scenario, tokens, step, memory_of);
        exec::write_hyper(schedule, scenario, step, memory_of);
        executor.run(1);
        all.push_back(exec::read_metrics(schedule, memory_of).loss);
        if (from == 0 && step == 2)
          exec::write_checkpoint(folder.path().string(), 3, -1, {}, exec::saved_state(schedule, memory_of));
      }
      return all;
    };
    std::vector<double> whole = losses(0, 6);
    whole.erase(whole.begin(), whole.begin() + 3);
    CHECK(losses(3, 6) == whole);
  }
}

}  // namespace stretto::testing
