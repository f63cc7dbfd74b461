// Tests of reduce_scatter_with_fp32_accumulation: bf16 messages, sums in f32, and the buffer that buckets share.
#include <algorithm>
#include <catch2/catch.hpp>

#include "base/bf16.hpp"
#include "base/error.hpp"
#include "model/verify/dataflow.hpp"
#include "tests/ideal.hpp"

namespace stretto::testing {
namespace {

Scenario summed_scenario(const Layout& layout, const std::string& mode, bool in_fp32 = true,
                         const std::string& precision = "fp64") {
  Scenario scenario = layout_scenario(layout, mode, true, precision, 1, 12);
  if (layout.pp > 1) {
    scenario.model.untie_embeddings_and_output_weights = false;
    scenario.model.num_layers = 4;
  }
  scenario.overlap.grad_reduce_in_fp32 = false;
  scenario.overlap.reduce_scatter_with_fp32_accumulation = in_fp32;
  return scenario;
}

std::vector<Layout> layouts() {
  return {{2, 1}, {3, 1}, {4, 1}, {2, 2, true}, {.dp = 2, .cp = 2}, {2, 1, false, 2}, {2, 1, false, 2, 2}};
}

double distance(const std::vector<exec::FullTensor>& a, const std::vector<exec::FullTensor>& b) {
  double difference = 0, norm = 0;
  for (std::size_t t = 0; t < a.size(); ++t)
    for (std::size_t i = 0; i < a[t].values.size(); ++i) {
      difference += (a[t].values[i] - b[t].values[i]) * (a[t].values[i] - b[t].values[i]);
      norm += b[t].values[i] * b[t].values[i];
    }
  return std::sqrt(difference / norm);
}

}  // namespace

TEST_CASE("fp32 accumulation: nearer to exact gradients than sums in bf16, and not rounded to it", "[serial]") {
  for (const Layout& layout : layouts()) {
    INFO(layout.text());
    Scenario exact = summed_scenario(layout, "plain");
    exact.overlap.grad_reduce_in_fp32 = true;
    const Trained expected = train(exact, 1, false), wide = train(summed_scenario(layout, "plain"), 1, false),
                  narrow = train(summed_scenario(layout, "plain", false), 1, false);
    CHECK(wide.losses == expected.losses);
    const double of_wide = distance(wide.gradients, expected.gradients),
                 of_narrow = distance(narrow.gradients, expected.gradients);
    CHECK(of_wide < 1.0 / 256);
    CHECK(of_wide < of_narrow);
    std::size_t unrounded = 0;
    for (const exec::FullTensor& tensor : wide.gradients)
      for (const double value : tensor.values) unrounded += to_float(to_bf16(value)) != value;
    CHECK(unrounded > 0);
  }
}

TEST_CASE("fp32 accumulation: overlap moves operations: the same bits and data flow", "[serial]") {
  for (const Layout& layout : layouts())
    for (const char* precision : {"fp64", "bf16"}) {
      INFO(layout.text() << " " << precision);
      const Trained expected = train(summed_scenario(layout, "plain", true, precision), 2, false);
      for (const char* mode : {"overlap_grad_reduce", "overlap_param_gather"}) {
        INFO(mode);
        const Trained trained = train(summed_scenario(layout, mode, true, precision), 2, false, 4);
        CHECK(trained.losses.front() == expected.losses.front());
        CHECK(trained.losses.back() == Approx(expected.losses.back()).epsilon(1e-12));
        CHECK(same_bits(trained.gradients, expected.gradients));
        // The norm, by which gradients are clipped, is summed bucket by bucket.
        CHECK(worst_relative_difference(trained.parameters, expected.parameters) < 1e-12);
        CHECK(verify_equivalent(build_schedule(summed_scenario(layout, "plain", true, precision)),
                                build_schedule(summed_scenario(layout, mode, true, precision)),
                                SumOrder::any) == std::vector<std::string>{});
      }
    }
}

TEST_CASE("fp32 accumulation on threads, in as much memory as planned") {
  for (const Layout& layout : layouts()) {
    const Scenario scenario = summed_scenario(layout, "overlap_grad_reduce");
    INFO(layout.text());
    const Trained expected = train(scenario, 2, false), trained = train(scenario, 2, true);
    CHECK(trained.losses == expected.losses);
    CHECK(same_bits(trained.gradients, expected.gradients));
    const MemoryPlan plan = plan_memory(build_schedule(scenario));
    CHECK(*std::max_element(trained.allocated_bytes.begin(), trained.allocated_bytes.end()) == plan.peak_bytes());
  }
}

TEST_CASE("fp32 accumulation: f_b = max(r_b, f_(b-1)) + c_b, r_b after the sum of bucket b - 1", "[closed]") {
  for (const Time transfer : {100, 5'000, 40'000}) {
    INFO("transfers of " << transfer);
    Scenario scenario = tiny_scenario(4, "overlap_grad_reduce", "fp32", 8);
    scenario.model.num_layers = 3;
    scenario.cluster.ranks_per_device = 1;
    scenario.overlap.bucket_size = 500;
    scenario.overlap.grad_reduce_in_fp32 = false;
    scenario.overlap.reduce_scatter_with_fp32_accumulation = true;
    Ideal ideal(scenario);
    const Schedule& schedule = ideal.schedule;
    for (OpId op = 0; op < schedule.operations.size(); ++op)
      if (!is_communication(schedule.operations[op].work)) ideal.set(op, 1000 + 37 * (op % 11));
    std::vector<Time> takes;
    while (schedule.find_operation("dp.all_to_all.b" + std::to_string(takes.size()))) {
      takes.push_back(transfer + 11 * static_cast<Time>(takes.size() % 3));
      ideal.set("dp.all_to_all.b" + std::to_string(takes.size() - 1), takes.back());
    }
    REQUIRE(takes.size() > 4);
    const sim::SimResult result = ideal.run();
    const auto row_of = [&](const std::string& name) {
      const OpId id = schedule.find_operation(name).value();
      for (const TimelineRow& row : result.timeline.rows)
        if (result.programs[0].ops[row.op].op == id) return row;
      throw std::logic_error("no row of " + name);
    };
    for (std::size_t b = 0; b < takes.size(); ++b) {
      const std::string number = ".b" + std::to_string(b), before = ".b" + std::to_string(b - 1);
      const TimelineRow exchange = row_of("dp.all_to_all" + number), cast = row_of("dp.cast_to_bf16" + number);
      Time ready = cast.end;
      if (b > 0) {
        // The sum follows the cast on the compute lane, and waits for the previous exchange.
        const TimelineRow sum = row_of("dp.local_sum" + before);
        CHECK(sum.start == std::max(cast.end, row_of("dp.all_to_all" + before).end));
        ready = sum.end;
      }
      CHECK(exchange.end == ready + takes[b]);
    }
    const TimelineRow last = row_of("dp.local_sum.b" + std::to_string(takes.size() - 1));
    CHECK(last.start >= row_of("dp.all_to_all.b" + std::to_string(takes.size() - 1)).end);
    CHECK(row_of("norm.sum_squares.b0").start >= last.end);
  }
}

TEST_CASE("gates of fp32 accumulation") {
  const auto notes = [](auto change) {
    Scenario scenario = summed_scenario({2, 1}, "plain");
    change(scenario);
    std::string all;
    for (const std::string& note : build_schedule(scenario).notes) all += note + "\n";
    return all;
  };
  CHECK_THAT(notes([](Scenario&) {}), !Catch::Contains("reduce_scatter_with_fp32_accumulation"));
  CHECK_THAT(notes([](Scenario& s) { s.overlap.grad_reduce_in_fp32 = true; }),
             Catch::Contains("grad_reduce_in_fp32 is on"));
  CHECK_THAT(notes([](Scenario& s) { s.parallel.data_parallel_sharding_strategy = Sharding::no_shard; }),
             Catch::Contains("gradients are all-reduced"));
  CHECK_THAT(notes([](Scenario& s) { s.parallel.data_parallel_sharding_strategy = Sharding::optim_grads; }),
             Catch::Contains("reduce_scatter_with_fp32_accumulation is off"));
  try {
    parse_scenario(
        "[model]\npreset = \"gpt2-124m\"\n[parallel]\ndata_parallel_size = 4\n"
        "num_distributed_optimizer_instances = 2\n[overlap]\n"
        "reduce_scatter_with_fp32_accumulation = true\n[training]\nglobal_batch_size = 4\n",
        "test");
    FAIL("expected an error");
  } catch (const Error& error) {
    CHECK_THAT(error.what(), Catch::Contains("num_distributed_optimizer_instances = 1 as well"));
  }
}

}  // namespace stretto::testing
