// Tests attention, positions and losses by document: against documents that are sequences of their own, in layouts, and
// when a training is resumed.
#include "exec/documents.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "exec/cuda/cuda.hpp"
#include "exec/trainer.hpp"
#include "tests/message_of.hpp"
#include "tests/small_mixture.hpp"
#include "tests/temp_dir.hpp"

namespace stretto::testing {
namespace {

constexpr std::int64_t kEnd = 3;

Scenario by_document(Scenario scenario) {
  scenario.training.reset_attention_mask = scenario.training.reset_position_ids = scenario.training.eod_mask_loss =
      true;
  scenario.training.eod_token = kEnd;
  return scenario;
}

// Trains for a step on these tokens, in a random legal order.
Trained train_on(const Scenario& scenario, const exec::TokenSource& tokens) {
  const Schedule schedule = build_schedule(scenario);
  const MemoryPlan plan = plan_memory(schedule);
  require_verified(schedule, &plan);
  serial::SerialExecutor serial(schedule, plan);
  const exec::MemoryOf memory_of = [&](std::int64_t rank) -> host::RankMemory& { return serial.memory(rank); };
  exec::initialise_state(schedule, scenario, memory_of);
  exec::write_batch(schedule, scenario, tokens, 0, memory_of);
  exec::write_hyper(schedule, scenario, 0, memory_of);
  serial.run(1, 5);
  const exec::StepMetrics metrics = exec::read_metrics(schedule, memory_of);
  return {
      {metrics.loss}, {metrics.gradient_norm}, exec::gather_state(schedule, memory_of, StatePart::gradients), {}, {}};
}

std::byte token_at(std::uint64_t seed, std::uint64_t index) { return std::byte(4 + random_bits(seed, 9, index) % 27); }

// Documents of `length` tokens, as many as fit a window, and a token that only ends the window.
exec::TokenSource packed(std::int64_t documents, std::int64_t of_window, std::int64_t length) {
  std::vector<std::byte> bytes;
  for (std::int64_t d = 0; d < documents; ++d) {
    for (std::int64_t i = 0; i + 1 < length; ++i) bytes.push_back(token_at(11, std::uint64_t(d * length + i)));
    bytes.push_back(std::byte(kEnd));
    if ((d + 1) % of_window == 0) bytes.push_back(std::byte(9));
  }
  return exec::TokenSource::parse(std::move(bytes), "documents.txt");
}

// Every fourth token or so ends a document.
exec::TokenSource short_documents() {
  std::vector<std::byte> bytes;
  for (std::uint64_t i = 0; i < 4096; ++i)
    bytes.push_back(random_bits(1, 2, i) % 4 == 0 ? std::byte(kEnd) : token_at(12, i));
  return exec::TokenSource::parse(std::move(bytes), "short.txt");
}

void check_equal(const Trained& trained, const Trained& expected) {
  CHECK(trained.losses.back() == Approx(expected.losses.back()).epsilon(1e-12));
  CHECK(worst_relative_difference(trained.gradients, expected.gradients) < 1e-10);
}

// Two sequences' worth of windows are the whole data, so that a step trains on all documents however they are packed.
void check_packed(Scenario scenario, std::int64_t length) {
  constexpr std::int64_t kOfWindow = 3, kWindows = 2;
  Scenario apart = by_document(scenario);
  apart.model.seq_length = length;
  apart.model.max_position_embeddings = scenario.model.max_position_embeddings = kOfWindow * length;
  apart.training.global_batch_size = kOfWindow * kWindows;
  apart.training.reset_attention_mask = apart.training.reset_position_ids = false;
  scenario = by_document(scenario);
  scenario.model.seq_length = kOfWindow * length;
  scenario.training.global_batch_size = scenario.training.micro_batch_size = kWindows;
  check_equal(train_on(scenario, packed(kOfWindow * kWindows, kOfWindow, length)),
              train_on(apart, packed(kOfWindow * kWindows, 1, length)));
  scenario.training.reset_attention_mask = false;  // a test that cannot fail would pass now
  CHECK(train_on(scenario, packed(kOfWindow * kWindows, kOfWindow, length)).losses.back() !=
        Approx(train_on(apart, packed(kOfWindow * kWindows, 1, length)).losses.back()).epsilon(1e-6));
}

}  // namespace

TEST_CASE("documents packed into one sequence train what they train as sequences of their own", "[serial]") {
  const Scenario gpt = tiny_scenario(1, "plain"), llama = with_llama(gpt);
  check_packed(gpt, 5);
  check_packed(llama, 5);
  check_packed(llama, 45);  // documents begin and end within blocks of queries
  for (const bool is_llama : {false, true}) {
    Scenario unfused = is_llama ? llama : gpt;
    unfused.training.attention_backend = AttentionBackend::unfused;
    check_packed(unfused, 5);
  }
  Scenario latent = small_mixture({}, 1, Mixture::latent, "plain", "fp64", 1);
  latent.model.experts.moe_z_loss_coeff = latent.model.experts.moe_aux_loss_coeff = 0;  // means over sequences
  check_packed(latent, 5);
}

TEST_CASE("every layout trains documents as one rank does", "[serial]") {
  const exec::TokenSource tokens = short_documents();
  const auto in = [](const Layout& layout, const std::string& mode, bool llama) {
    return by_document(layout_scenario(layout, mode, llama, "fp64", layout.pp > 1 ? 1 : 2));
  };
  using enum CpCommType;
  const std::pair<Layout, const char*> layouts[] = {
      {{3}, "overlap_grad_reduce"},
      {{1, 2, true}, "tp_comm_overlap"},
      {{1, 3}, "plain"},
      {{2, 1, false, 2, 3}, "overlap_p2p_comm"},
      {{1, 1, false, 1, 1, "", 0, 2}, "cp_comm_overlap"},
      {{1, 1, false, 1, 1, "", 0, 3, {all_gather}}, "plain"},
      {{1, 2, true, 1, 1, "", 0, 2, {a2a}}, "cp_flash_overlap"},
      {{1, 1, false, 1, 1, "", 0, 4, {a2a_p2p, p2p}}, "cp_comm_overlap"},
  };
  Cases cases;
  for (const bool llama : {false, true})
    for (const auto& [layout, mode] : layouts) {
      if (!cases.takes_next()) continue;
      INFO(layout.text() << " " << mode);
      Scenario scenario = in(layout, mode, llama), single = in({}, "plain", llama);
      single.model = scenario.model;
      check_equal(train_on(scenario, tokens), train_on(single, tokens));
      scenario.training.recompute.granularity = Recompute::Granularity::full;
      check_equal(train_on(scenario, tokens), train_on(single, tokens));
    }
  Scenario sharded = in({2}, "fsdp_comm_overlap", true);
  sharded.parallel.data_parallel_sharding_strategy = Sharding::optim_grads_params;
  check_equal(train_on(sharded, tokens), train_on(in({}, "plain", true), tokens));
  Scenario dropped = in({1, 1, false, 1, 1, "", 0, 2, {a2a}}, "cp_flash_overlap", true), one = dropped;
  dropped.model.attention_dropout = one.model.attention_dropout = 0.3;
  one.parallel = {};
  check_equal(train_on(dropped, tokens), train_on(one, tokens));
}

TEST_CASE("a resumed training by document goes on bit for bit") {
  const TempDir folder;
  std::string text;
  for (std::uint64_t i = 0; i < 4096; ++i) text += random_bits(1, 2, i) % 9 == 0 ? char(kEnd) : char(token_at(12, i));
  Scenario scenario = by_document(layout_scenario({1, 2, true, 1, 1, "", 0, 2}, "plain", true, "bf16"));
  scenario.training.data = {folder.write("text.txt", text)};
  scenario.training.train_iters = scenario.training.lr_decay_iters = 4;
  const auto losses = [&] {
    const Schedule schedule = build_schedule(scenario);
    const VerifiedSchedule verified = plan_and_verify(schedule);
    host::HostExecutor executor(verified, {});
    std::vector<double> result;
    for (const exec::TrainStep& step : exec::train(scenario, schedule, executor, {}).steps) result.push_back(step.loss);
    return result;
  };
  const std::vector<double> whole = losses();
  scenario.training.checkpoint_dir = folder.file("run");
  scenario.training.train_iters = 2;
  const std::vector<double> first = losses();
  scenario.training.train_iters = 4;
  const std::vector<double> second = losses();
  REQUIRE((first.size() == 2 && second.size() == 2));
  CHECK(whole == std::vector{first[0], first[1], second[0], second[1]});
  scenario.training.eod_mask_loss = false;
  CHECK_THAT(message_of([&] { losses(); }), Catch::Contains("eod_mask_loss"));
}

TEST_CASE("pairs of one document are those that random documents have") {
  constexpr std::int64_t kSeq = 480, kDraws = 4000;
  constexpr double kMean = 60;
  for (const auto& [of, queries, keys, count] :
       {std::array<std::int64_t, 4>{1, 0, 0, 1}, {2, 0, 0, 1}, {2, 0, 1, 1}, {2, 1, 0, 1}, {3, 0, 0, 3}}) {
    Attention work{Pass::forward, 1, 1, 1, kSeq, 4, true};
    work.queries = {of, queries, 1};
    work.keys = {of, keys, count};
    work.kv_apart = of > 1;
    work.by_document = true;
    work.document_tokens = kMean;
    double pairs = 0, multiplied = 0;
    for (std::uint64_t draw = 0; draw < kDraws; ++draw) {
      std::vector<std::int64_t> first(kSeq, 0);
      for (std::size_t i = 1; i < kSeq; ++i)
        first[i] = uniform(draw, 5, i) < 1 / kMean ? std::int64_t(i) : first[i - 1];
      for (const SequenceRun& q : runs_of(work.queries, kSeq, 1, 0))
        for (const SequenceRun& k : runs_of(work.keys, kSeq, 1, 0))
          for (std::int64_t i = 0; i < q.length; ++i) {
            const std::int64_t at = q.position + i, block = at - i % kAttentionQueryBlock,
                               last = std::min(block + kAttentionQueryBlock, q.position + q.length) - 1;
            const auto seen = [&](std::int64_t from, std::int64_t to) {
              return double(
                  std::max<std::int64_t>(0, std::min(to + 1, k.position + k.length) - std::max(from, k.position)));
            };
            pairs += seen(first[std::size_t(at)], at);
            multiplied += seen(first[std::size_t(block)], last);
          }
    }
    INFO("part " << queries << " of " << of << ", keys from " << keys);
    const AttentionPairs expected = attention_pairs(work);
    CHECK(expected.count == Approx(pairs / double(kDraws)).epsilon(0.05));
    CHECK(expected.multiplied == Approx(multiplied / double(kDraws)).epsilon(0.05));
  }
}

TEST_CASE("documents need their last token, and a host") {
  Scenario scenario = by_document(layout_scenario({}, "plain", true, "fp32"));
  CHECK_THAT(message_of([&] { cuda::make_cuda_executor(plan_and_verify(build_schedule(scenario)), {}); }),
             Catch::Contains("reset_attention_mask"));
  const std::string text = "[model]\npreset = \"gpt2-124m\"\n[training]\neod_mask_loss = true\ndata = \"x.bin\"\n";
  CHECK_THAT(message_of([&] { parse_scenario(text, "s.toml"); }), Catch::Contains("eod_token"));
  CHECK_THAT(message_of([&] { parse_scenario(text, "s.toml", {"training.eod_token=50257"}); }),
             Catch::Contains("below vocab_size = 50257"));
  CHECK(parse_scenario(text, "s.toml", {"training.eod_token=50256"}).training.eod_mask_loss);
  const TempDir folder;
  scenario.training.data = {folder.write("a.txt", std::string("ab\3abcdefg\3"))};
  CHECK(exec::with_measured_documents(scenario).training.mean_document_tokens == 5.5);
}

}  // namespace stretto::testing
