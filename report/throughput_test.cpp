#include "report/throughput.hpp"

#include <catch2/catch.hpp>

#include "model/training_flops.hpp"

using namespace stretto;

TEST_CASE("MFU is the model's arithmetic over the peak of all devices", "[report]") {
  const std::string text = R"([model]
num_layers = 2
hidden_size = 64
num_attention_heads = 4
seq_length = 128
vocab_size = 256
[training]
global_batch_size = 8
)";
  Scenario scenario = parse_scenario(text, "throughput");
  const Flops flops = training_flops_per_sequence(scenario.model);
  // 8 sequences in 2 s on 4 devices, whose peak is twice the model's rate.
  const PeakRate peak{8 * flops.model, ""};
  const Throughput t = throughput_of(scenario, 2000, 4, peak);
  CHECK(t.tokens_per_s == Approx(8 * 128 / 2.0));
  CHECK(t.tokens_per_s_per_device == Approx(128));
  CHECK(t.FLOPs_per_s == Approx(4 * flops.model));
  CHECK(t.TFLOPs_per_device == Approx(flops.model * 1e-12));
  CHECK(t.mfu.value() == Approx(0.5));
  CHECK(t.hfu.value() == Approx(0.5 * flops.hardware / flops.model));
  // Recomputation is executed, but is not part of the model.
  scenario.training.recompute.granularity = Recompute::Granularity::full;
  CHECK(throughput_of(scenario, 2000, 4, peak).mfu == t.mfu);
  CHECK(throughput_of(scenario, 2000, 4, peak).hfu.value() > t.hfu.value());
  CHECK_FALSE(throughput_of(scenario, 2000, 4, {}).mfu);
  // The step is faster than its yardstick: no share is given, but the doubt.
  const Throughput fast = throughput_of(scenario, 990, 4, {peak.FLOPs_per_s, "sgemm"});
  CHECK_FALSE(fast.mfu);
  CHECK_FALSE(fast.mfu_full_attention);
  CHECK(fast.doubt.starts_with("MFU is left out: "));
  CHECK(fast.doubt.find("of sgemm, which is too low (docs/mfu.md)") != std::string::npos);
  // The FLOPs with recomputation alone may exceed the peak.
  const Throughput recomputing = throughput_of(scenario, 1100, 4, peak);
  CHECK(recomputing.mfu);
  CHECK_FALSE(recomputing.hfu);
  CHECK(recomputing.doubt.starts_with("HFU is left out: "));
  CHECK(t.doubt.empty());
}

TEST_CASE("with several documents in a sequence, what is counted and what is executed differ", "[report]") {
  Scenario scenario = parse_scenario(R"([model]
num_layers = 2
hidden_size = 64
num_attention_heads = 4
seq_length = 8192
vocab_size = 256
[training]
global_batch_size = 8
eod_token = 0
reset_attention_mask = true
mean_document_tokens = 100
)",
                                     "documents");
  const Flops flops = training_flops_per_sequence(scenario.model, false, AttentionBackend::fused, 100);
  CHECK(training_flops_per_sequence(scenario.model).model == flops.model);
  CHECK(flops.model_within_documents < 0.3 * flops.model);
  CHECK(flops.hardware < 0.5 * flops.model);
  // A query sees 100 keys of its document on average, and 4096.5 of a whole sequence.
  const double attention = 6.0 * 2 * 8192 * 8192 * 64;
  CHECK(flops.model - flops.model_within_documents == Approx(attention * (1 - 100 / 4096.5)).epsilon(1e-2));
  // No kernel executes the pairs across documents, so the count of whole sequences may exceed the peak: the yardstick
  // is right.
  const PeakRate peak{8 * flops.model, "the peak"};
  const Throughput t = throughput_of(scenario, 500, 4, peak);
  CHECK_FALSE(t.mfu);
  CHECK(t.mfu_within_documents.value() == Approx(2 * flops.model_within_documents / flops.model));
  CHECK(t.hfu.value() == Approx(2 * flops.hardware / flops.model));
  CHECK(t.doubt.starts_with(
      "MFU of whole sequences is left out: it would be 200.0 %, because it counts pairs of tokens"));
  const Throughput slow = throughput_of(scenario, 2000, 4, peak);
  CHECK(slow.mfu.value() == Approx(0.5));
  CHECK(slow.doubt.empty());
  // A step that is faster than a true peak within documents too has a wrong yardstick.
  CHECK(throughput_of(scenario, 50, 4, peak).doubt.starts_with("MFU within documents is left out: "));
  scenario.training.mean_document_tokens = 0;
  scenario.training.packed_sequences = {};
  CHECK_FALSE(throughput_of(scenario, 2000, 4, peak).mfu_within_documents);
}
