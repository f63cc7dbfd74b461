#include "diagnose/diagnose.hpp"

#include <catch2/catch.hpp>
#include <map>

#include "base/data_folder.hpp"
#include "model/build_schedule.hpp"
#include "report/trace.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "tests/kineto.hpp"
#include "tests/message_of.hpp"
#include "tests/temp_dir.hpp"

namespace stretto::diagnose {
namespace {

using Catch::Matchers::Contains;
using testing::kineto_json;
using testing::KinetoOptions;
using testing::message_of;

Scenario scenario_of(const std::vector<std::string>& set = {}) {
  return parse_scenario(R"(platform = "h100-sxm"
[model]
preset = "llama3-8b"
num_layers = 4
seq_length = 2048
[parallel]
data_parallel_size = 2
tensor_model_parallel_size = 2
sequence_parallel = true
[overlap]
overlap_grad_reduce = true
overlap_param_gather = true
[training]
precision = "bf16"
global_batch_size = 4
)",
                        "traced", set);
}

sim::Platform platform() { return sim::read_platform(data_file("platforms", "h100-sxm")); }

// A run with other costs, or of another scenario, than the prediction.
struct Run {
  VerifiedSchedule verified;
  sim::Costs costs;
  sim::SimResult result;
  explicit Run(const Scenario& scenario, const std::function<void(const Schedule&, sim::Costs&)>& change = {})
      : verified(plan_and_verify(build_schedule(scenario))) {
    costs =
        sim::cost_schedule(verified.schedule, platform(), scenario.cluster, 1, scenario.framework, scenario.training);
    if (change) change(verified.schedule, costs);
    result = sim::simulate(verified.schedule, static_cast<const BoundStep&>(verified), costs);
  }
  std::string trace(std::int64_t rank, const KinetoOptions& options = {}) const {
    return kineto_json(verified.schedule, result, rank, options);
  }
  // Returns [operation] when the host issues it, which it does without waiting, from the beginning of the step on.
  std::vector<double> launched_us(std::int64_t rank) const {
    const BoundProgram& program = result.programs[result.folding.index_of(rank)];
    std::vector<double> launched;
    Picoseconds now = costs.host.step;
    std::int32_t begun = 0;
    for (const BoundOp& op : program.ops) {
      if (op.micro_batch == begun && verified.schedule.operations[op.op].phase == Phase::forward)
        now += costs.host.micro_batch, ++begun;
      now += costs.host.issue[op.op];
      launched.push_back(to_us(now));
    }
    return launched;
  }
};

Diagnosis diagnosed(const Scenario& scenario, const std::vector<std::string>& traces) {
  const testing::TempDir folder;
  std::vector<std::string> files;
  for (const std::string& text : traces) files.push_back(folder.write(fmt::format("rank-{}.json", files.size()), text));
  const Traces read = read_traces(files, -1, "");
  const predict::PredictedStep step = predict::predict_step(scenario, platform());
  return diagnose(step, read, scenario.name).diagnosis;
}

double sum_of(const Diagnosis& diagnosis) {
  double sum = 0;
  for (const Gap& gap : diagnosis.gaps) sum += gap.gap_ms;
  return sum;
}

// The fault is named first, and its size is the step's growth within a share of it.
void check_first(const Diagnosis& diagnosis, Cause cause, const std::string& name, double expected_ms,
                 double within = 0.1) {
  REQUIRE(!diagnosis.gaps.empty());
  const Gap& first = diagnosis.gaps.front();
  CAPTURE(first.name, first.gap_ms, expected_ms, diagnosis.gap_ms(), diagnosis.matched);
  CHECK(name_of(first.cause) == std::string(name_of(cause)));
  CHECK_THAT(first.name, Contains(name));
  CHECK(first.gap_ms == Approx(expected_ms).epsilon(within));
  CHECK(diagnosis.matched >= 0.95);
  CHECK(sum_of(diagnosis) == Approx(diagnosis.gap_ms()).margin(1e-6));
}

}  // namespace

TEST_CASE("a trace of the predicted step has no gap, with and without marks of steps", "[diagnose]") {
  const Scenario scenario = scenario_of();
  const Run run(scenario);
  for (const bool marks : {true, false}) {
    KinetoOptions options;
    options.marks_steps = marks;
    options.steps = 4;
    const Diagnosis diagnosis = diagnosed(scenario, {run.trace(0, options)});
    CAPTURE(marks);
    CHECK(diagnosis.is_whole);
    CHECK(diagnosis.matched >= 0.99);
    CHECK(diagnosis.matched_operations >= 0.99 * double(diagnosis.operations));
    CHECK(std::abs(diagnosis.gap_ms()) < 0.01 * diagnosis.predicted_ms);
    for (const Gap& gap : diagnosis.gaps) CHECK(std::abs(gap.gap_ms) < 0.01 * diagnosis.predicted_ms);
  }
}

TEST_CASE("a slower kernel is named first", "[diagnose]") {
  const Scenario scenario = scenario_of();
  const Run plain(scenario), slow(scenario, [](const Schedule&schedule, sim::Costs&costs) {
    costs.compute[*schedule.find_operation("fc1.fprop")].alone *= 3;
  });
  const double growth = to_ms(slow.result.step - plain.result.step);
  check_first(diagnosed(scenario, {slow.trace(0)}), Cause::slower_kernel, "fc1.fprop", growth);
  check_first(diagnosed(scenario, {slow.trace(0), slow.trace(1)}), Cause::slower_kernel, "fc1.fprop", growth);
}

TEST_CASE("a lost overlap is exposed communication", "[diagnose]") {
  const Scenario scenario = scenario_of();
  const Run with(scenario), without(scenario_of({"overlap.overlap_param_gather=false"}));
  const double growth = to_ms(without.result.step - with.result.step);
  // Kernels that ran concurrently with the gathers are faster without them, so that the step grows by less than what is
  // exposed.
  check_first(diagnosed(scenario, {without.trace(0)}), Cause::exposed_communication, "dp all_gather", growth, 0.5);
}

// The host runs ahead while exposed communication moves, so that the step grows by less than what is exposed.
TEST_CASE("a lost overlap is named first where the host binds the step", "[diagnose]") {
  // With one hardware queue there is no overlap of reductions to lose.
  const std::vector<std::string> host = {"profile=megatron-core-te", "model.seq_length=512",
                                         "cluster.cuda_device_max_connections=8"};
  const Scenario scenario = scenario_of(host);
  const predict::PredictedStep step = predict::predict_step(scenario, platform());
  REQUIRE(step.prediction.host_bound_pct() > 25);
  KinetoOptions options;
  const Run with(scenario);
  options.launched_us = with.launched_us(0);
  for (const Gap& gap : diagnosed(scenario, {with.trace(0, options)}).gaps)
    CHECK(std::abs(gap.gap_ms) < 0.005 * step.prediction.step_ms);
  for (const char* lost : {"overlap.overlap_param_gather=false", "overlap.overlap_grad_reduce=false"}) {
    CAPTURE(lost);
    std::vector<std::string> without_it = host;
    without_it.emplace_back("overlap.overlap_param_gather=false");
    without_it.emplace_back(lost);
    const Run without(scenario_of(without_it));
    const auto exposed_of = [](const Run& run) {
      const Breakdown mean = mean_breakdown(run.verified.schedule, run.result.programs, run.result.timeline);
      return to_ms(mean.exposed_total);
    };
    options.launched_us = without.launched_us(0);
    const Diagnosis diagnosis = diagnosed(scenario, {without.trace(0, options)});
    CAPTURE(diagnosis.gaps.front().name, diagnosis.gap_ms(), diagnosis.of_cause);
    CHECK(diagnosis.matched >= 0.95);
    CHECK(sum_of(diagnosis) == Approx(diagnosis.gap_ms()).margin(1e-6));
    CHECK(diagnosis.gaps.front().cause == Cause::exposed_communication);
    CHECK_THAT(diagnosis.gaps.front().name, Contains("dp "));
    // Gathers of parameters are too short here for one rank to be the mean of all.
    const double exposed = diagnosis.of_cause[static_cast<std::size_t>(Cause::exposed_communication)];
    CHECK(exposed == Approx(exposed_of(without) - exposed_of(with)).epsilon(0.1).margin(0.3));
  }
}

TEST_CASE("a late rank is named where its peers are traced", "[diagnose]") {
  const Scenario scenario = scenario_of();
  const Run late(scenario, [](const Schedule&, sim::Costs& costs) { sim::set_apart(costs, 1, 1.5); });
  // The rank computes longer by this than a rank of the other group, which is not concurrent with kernels that wait for
  // it. The step grows by less, because communication is hidden then.
  const auto computing = [&](std::int64_t rank) {
    const BoundProgram& program = late.result.programs[late.result.folding.index_of(rank)];
    Picoseconds sum = 0;
    for (const TimelineRow& row : late.result.timeline.rows)
      if (row.rank == program.rank && !is_communication(program.work_of(row.op))) sum += row.end - row.start;
    return sum;
  };
  const double growth = to_ms(computing(1) - computing(2));
  std::vector<std::string> traces;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    KinetoOptions options;
    options.clock_us += 1e5 * double(rank);  // clocks of hosts differ
    traces.push_back(late.trace(rank, options));
  }
  check_first(diagnosed(scenario, traces), Cause::straggler, "rank 1", growth);
  // Rank 0 alone cannot say who is late, only that its communication takes longer.
  const Diagnosis alone = diagnosed(scenario, {traces.front()});
  const Cause cause = alone.gaps.front().cause;
  CHECK((cause == Cause::straggler || cause == Cause::exposed_communication));
  CHECK_THAT(alone.gaps.front().name, Contains("tp "));
}

TEST_CASE("a kernel that the schedule does not have, and waiting for the host", "[diagnose]") {
  const Scenario scenario = scenario_of();
  const Run run(scenario);
  KinetoOptions options;
  options.inserted_at = 0.4;
  options.inserted_us = 2000;
  options.inserted_kernel = "void cub::DeviceRadixSortOnesweepKernel<long>(int*)";
  check_first(diagnosed(scenario, {run.trace(0, options)}), Cause::unscheduled_kernel, "cub::DeviceRadixSort", 2);
  options.inserted_kernel = "";
  check_first(diagnosed(scenario, {run.trace(0, options)}), Cause::waiting_for_host, "host", 2);
}

TEST_CASE("a kernel of a kind that is missing elsewhere is moved, and no kernel to remove", "[diagnose]") {
  const Scenario scenario = scenario_of();
  const Run run(scenario);
  // Attention's backward kernels are one kernel at the beginning of the step, which takes as long as all of them.
  double backward_us = 0;
  const BoundProgram& program = run.result.programs[run.result.folding.index_of(0)];
  for (const TimelineRow& row : run.result.timeline.rows)
    if (row.rank == program.rank) {
      const Work& work = run.verified.schedule.operations[program.ops[row.op].op].work;
      if (const auto* a = std::get_if<Attention>(&work); a != nullptr && a->pass != Pass::forward)
        backward_us += to_us(row.end - row.start);
    }
  REQUIRE(backward_us > 0);
  KinetoOptions options;
  options.left_out = "flash_bwd";
  options.inserted_at = 0.02;
  options.inserted_us = backward_us;
  options.inserted_kernel = "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128>>(P)";
  const Diagnosis diagnosis = diagnosed(scenario, {run.trace(0, options)});
  int moved = 0;
  for (const Gap& gap : diagnosis.gaps) {
    CAPTURE(gap.name, gap.gap_ms, name_of(gap.cause));
    CHECK(gap.cause != Cause::unscheduled_kernel);
    if (gap.cause != Cause::moved_kernel) continue;
    ++moved;
    CHECK(std::abs(gap.gap_ms) < 0.1 * backward_us * 1e-3);
    CHECK_THAT(gap.detail, Contains("runs in another place of the step"));
  }
  CHECK(moved == 1);
  CHECK(sum_of(diagnosis) == Approx(diagnosis.gap_ms()).margin(1e-6));
}

TEST_CASE("products that run whole where the prediction cuts them are one line", "[diagnose]") {
  const Scenario cut = scenario_of({"overlap.tp_comm_overlap=true"});
  const Diagnosis diagnosis = diagnosed(cut, {Run(scenario_of()).trace(0)});
  std::map<std::string, int> lines;
  for (const Gap& gap : diagnosis.gaps) {
    CAPTURE(gap.name, gap.gap_ms, name_of(gap.cause), gap.detail);
    // Pieces that have no kernel and a kernel that has grown by them are not two opposite lines.
    if (gap.cause == Cause::slower_kernel || gap.cause == Cause::missing_kernel) CHECK(++lines[gap.name] == 1);
    if (gap.cause == Cause::missing_kernel) CHECK(std::abs(gap.gap_ms) < 0.05 * diagnosis.predicted_ms);
  }
  CHECK(sum_of(diagnosis) == Approx(diagnosis.gap_ms()).margin(1e-6));
}

TEST_CASE("faults in a trace of Stretto's are named first", "[diagnose]") {
  const Scenario scenario = scenario_of();
  const testing::TempDir folder;
  const predict::PredictedStep step = predict::predict_step(scenario, platform());
  const auto diagnosed_run = [&](const Run& run) {
    const std::string path = folder.file("run.json");
    write_trace(path, {{"measured run", &run.verified.schedule, &run.result, &run.result.timeline}});
    return diagnose(step, read_traces({path}, -1, ""), scenario.name).diagnosis;
  };
  const auto growth_of = [&](const Run& run) { return to_ms(run.result.step - step.result.step); };
  const Diagnosis same = diagnosed_run(Run(scenario));
  CHECK(same.matched == 1);
  CHECK(same.matched_operations == same.operations);
  CHECK(same.gap_ms() == Approx(0).margin(1e-6));
  const Run slow(scenario, [](const Schedule& schedule, sim::Costs& costs) {
    costs.compute[*schedule.find_operation("fc1.fprop")].alone *= 3;
  });
  check_first(diagnosed_run(slow), Cause::slower_kernel, "fc1.fprop", growth_of(slow));
  // One bucket takes the place of several.
  const Run lost(scenario_of({"overlap.overlap_grad_reduce=false", "overlap.overlap_param_gather=false"}));
  const Diagnosis exposed = diagnosed_run(lost);
  CHECK(exposed.gaps.front().cause == Cause::exposed_communication);
  CHECK_THAT(exposed.gaps.front().name, Contains("dp "));
  // Other causes make up for a part: kernels are faster without concurrent communication.
  double all = 0;
  for (const double of_cause : exposed.of_cause) all += of_cause;
  CAPTURE(exposed.of_cause);
  CHECK(all == Approx(growth_of(lost)).epsilon(0.02));
  const Run late(scenario, [](const Schedule&, sim::Costs& costs) { sim::set_apart(costs, 1, 1.5); });
  const Diagnosis straggler = diagnosed_run(late);
  CHECK(straggler.gaps.front().cause == Cause::straggler);
  CHECK(straggler.gaps.front().name == "rank 1");
  CHECK(straggler.rank == 1);
}

TEST_CASE("a part of a step is compared kernel by kernel", "[diagnose]") {
  const Scenario scenario = scenario_of();
  KinetoOptions options;
  options.steps = 1;
  options.marks_steps = false;
  const Diagnosis diagnosis = diagnosed(scenario, {Run(scenario).trace(0, options)});
  CHECK(!diagnosis.is_whole);
  CHECK(diagnosis.matched >= 0.95);
  for (const Gap& gap : diagnosis.gaps) CHECK(std::abs(gap.gap_ms) < 0.01 * diagnosis.predicted_ms);
}

TEST_CASE("one layer is an excerpt, and less than one is refused", "[diagnose]") {
  const Scenario scenario = scenario_of({"model.num_layers=16"});
  const Run run(scenario);
  KinetoOptions options;
  options.steps = 1;
  options.marks_steps = false;
  const double step = to_us(run.result.step);
  options.from_us = 0.2 * step;
  options.until_us = 0.2 * step + 0.04 * step;  // a forward pass of a layer takes a fiftieth
  const Diagnosis layer = diagnosed(scenario, {run.trace(0, options)});
  CHECK(!layer.is_whole);
  CHECK(layer.matched >= 0.95);
  options.until_us = 0.2 * step + 0.01 * step;
  CHECK_THAT(message_of([&] { diagnosed(scenario, {run.trace(0, options)}); }), Contains("no whole layer"));
}

TEST_CASE("a few products of another model are refused, and kernels of another GPU", "[diagnose]") {
  const Scenario scenario = scenario_of();
  // One layer of a model of hidden size `k` as an excerpt without steps.
  const auto layer = [](int k, int count) {
    std::string events;
    for (int i = 0; i < count; ++i)
      events += fmt::format(
          R"({}{{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":{},"dur":5,"args":{{"External id":{},)"
          R"("Input Dims":[[32768,{}],[{},2048]],"Input type":["c10::BFloat16","c10::BFloat16"]}}}},)"
          R"({{"ph":"X","cat":"kernel","name":"nvjet_hsh_256x128_64x4_TNT","pid":0,"tid":0,"ts":{},"dur":560,)"
          R"("args":{{"stream":7,"correlation":{},"device":0,"External id":{}}}}})",
          i == 0 ? "" : ",", 600 * i, 10 + i, k, k, 600 * i + 50, 10 + i, 10 + i);
    return R"({"deviceProperties":[{"id":0,"name":"NVIDIA H100 80GB HBM3"}],"traceEvents":[)" + events + "]}";
  };
  CHECK_THAT(message_of([&] { diagnosed(scenario, {layer(2048, 7)}); }),
             Contains("expected a trace of this model and layout"));

  const testing::TempDir folder;
  const auto message = [&](const std::string& device) {
    std::string text = layer(2048, 7);
    text.replace(text.find("NVIDIA H100 80GB HBM3"), 21, device);
    const Traces traces = read_traces({folder.write("trace.json", text)}, -1, "");
    return message_of([&] { require_same_gpu(traces, platform()); });
  };
  CHECK_THAT(message("AMD Instinct MI300X"),
             Contains("is of a GPU \"AMD Instinct MI300X\", and platform h100-sxm of \"NVIDIA H100-SXM5-80GB\""));
  CHECK_THAT(message("NVIDIA H200"), Contains("--platform"));
  for (const char* fits : {"NVIDIA H100 80GB HBM3", "NVIDIA H100", "", "Graphics Device"})
    CHECK(message(fits) == "no error");
}

TEST_CASE("traces that do not fit are refused", "[diagnose]") {
  const Scenario scenario = scenario_of();
  const Run run(scenario);
  CHECK_THAT(message_of([&] { diagnosed(scenario_of({"model.num_layers=32"}), {run.trace(0)}); }),
             Contains("computation") && Contains("expected a trace of this model"));
  CHECK_THAT(message_of([&] { diagnosed(scenario_of({"training.fp8_format=hybrid"}), {run.trace(0)}); }),
             Contains("products have another precision") && Contains("2 bytes an element"));
  CHECK_THAT(message_of([&] { diagnosed(scenario_of({"training.global_batch_size=16"}), {run.trace(0)}); }),
             Contains("has kernels"));
  KinetoOptions slow;
  slow.inserted_at = 0.5;
  slow.inserted_us = 5 * to_us(run.result.step);
  CHECK_THAT(message_of([&] { diagnosed(scenario, {run.trace(0, slow)}); }), Contains("within a factor of 3"));
  CHECK_THAT(message_of([&] { diagnosed(scenario, {run.trace(0), run.trace(0)}); }), Contains("as another trace is"));
  CHECK_THAT(message_of([&] {
               diagnosed(scenario_of({"parallel.data_parallel_size=1", "parallel.tensor_model_parallel_size=1",
                                      "parallel.sequence_parallel=false"}),
                         {run.trace(3)});
             }),
             Contains("is of rank 3"));
}

}  // namespace stretto::diagnose
