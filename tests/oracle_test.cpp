// Tests the verifier against its oracle: an edit that changes the result of a schedule must be rejected, a correct
// schedule accepted.
#include <catch2/catch.hpp>
#include <random>

#include "tests/mutations.hpp"
#include "tests/training.hpp"

namespace stretto::testing {

TEST_CASE("a verified schedule gives the same bits in every legal order") {
  Cases cases;
  for (const OverlapMode& mode : data_parallel_modes())
    for (const bool bf16 : {false, true}) {
      if (!cases.takes_next()) continue;
      INFO(mode.name << (bf16 ? ", reduced in bf16" : ""));
      Scenario scenario = tiny_scenario(3, mode.name, "fp32", 6, 1);
      scenario.overlap.grad_reduce_in_fp32 = !bf16;
      const Trained reference = train(scenario, 2, false, 1);
      for (const std::uint64_t seed : {100, 200, 300, 400, 500})
        CHECK(same_bits(train(scenario, 2, false, seed).parameters, reference.parameters));
    }
  for (const OverlapMode& mode : data_parallel_modes()) {
    if (!cases.takes_next()) continue;
    INFO(mode.name << ", Llama's style");
    const Scenario scenario = with_llama(tiny_scenario(3, mode.name, "fp32", 6, 1));
    const Trained reference = train(scenario, 2, false, 1);
    for (const std::uint64_t seed : {100, 200, 300})
      CHECK(same_bits(train(scenario, 2, false, seed).parameters, reference.parameters));
  }
}

// At least 1,000 mutations can run; a sanitizer's build runs a few, for its own kind of fault.
#ifdef __SANITIZE_ADDRESS__
constexpr int kMutations = 84, kOfInstances = 1;
#else
constexpr int kMutations = 1400, kOfInstances = 14;
#endif
int count_of_mutations() { return is_fast_suite() ? 44 : kMutations; }

TEST_CASE("every mutation that changes the result is rejected") {
  const int mutations = count_of_mutations();
  const MutationReport report = run_mutations(mutations, 1);
  CAPTURE(report.mutations, report.malformed, report.harmful, report.rejected, report.rejected_by_flow,
          report.rejected_unchanged, report.of_instances);
  for (const std::string& missed : report.missed) UNSCOPED_INFO("accepted although the result changes: " << missed);
  CHECK(report.missed.empty());
  for (const std::string& alarm : report.false_alarms) UNSCOPED_INFO("false alarm: " << alarm);
  CHECK(report.false_alarms.empty());
  // The mutations are useful: most of them could run, many changed the result, some are races and some are not.
  CHECK(report.mutations - report.malformed >= mutations * 5 / 7);
  CHECK(report.harmful >= mutations / 3);
  CHECK(report.rejected - report.malformed - report.rejected_by_flow >= mutations / 5);
  CHECK(report.rejected_by_flow >= mutations / 50);
  CHECK(report.of_instances >= share_of(kOfInstances) / 2);  // a short list may draw few by chance
}

TEST_CASE("mutations of what only folded ranks do are rejected") {
  const MutationReport report = run_folded_mutations(count_of_mutations() * 3 / 7, 1);
  CAPTURE(report.mutations, report.malformed, report.harmful, report.rejected, report.rejected_by_flow);
  for (const std::string& missed : report.missed) UNSCOPED_INFO("accepted although the result changes: " << missed);
  CHECK(report.missed.empty());
  CHECK(report.harmful >= report.mutations / 2);
  // These are found without looking at all ranks; the others read a finished value that is not their own.
  CHECK(report.rejected - report.rejected_by_flow >= report.mutations * 3 / 4);
}

}  // namespace stretto::testing
