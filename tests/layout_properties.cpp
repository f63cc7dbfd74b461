#include "tests/layout_properties.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "model/lower/optimizer.hpp"
#include "model/schedule/residency.hpp"
#include "model/verify/dataflow.hpp"
#include "tests/draw.hpp"
#include "tests/simulate.hpp"
#include "tests/single_rank.hpp"

namespace stretto::testing {
namespace {

constexpr int kLayoutSteps = 2;
constexpr double kExact = 1e-10, kExactParameters = 1e-8;
// The bound in low precision: kTimesOneRank times the distance of a single rank from fp64, plus kUnits units in the
// last place.
constexpr double kUnitOfBf16 = 1.0 / 256, kUnitOfF32 = 1.0 / (1 << 23), kUnitOfF64 = 0x1p-52, kTimesOneRank = 4,
                 kUnits = 8;
// A larger distance is allowed up to kTimesSensitivity times the distance that a single rank moves when its weights
// change by a unit, the farthest of kDraws draws. 500 layouts differed by at most 1.3 times that distance, which was
// between 1e-15 and 1e-4.
constexpr double kTimesSensitivity = 4;
constexpr int kDraws = 8;

// With parameters in fp8 these tiny models compute something else, which needs ranks to gather from. So the reference
// keeps the replicas and cuts of tensors, and leaves out stages, instances and overlap.
Scenario without_stages(Scenario scenario) {
  const Parallel& given = scenario.parallel;
  Parallel parallel;
  parallel.data_parallel_size = given.data_parallel_size;
  parallel.tensor_model_parallel_size = given.tensor_model_parallel_size;
  parallel.sequence_parallel = given.sequence_parallel;
  parallel.context_parallel_size = given.context_parallel_size;
  parallel.cp_comm_type = given.cp_comm_type;
  parallel.hierarchical_context_parallel_sizes = given.hierarchical_context_parallel_sizes;
  Overlap overlap;
  overlap.fp8_param_gather = true;
  overlap.grad_reduce_in_fp32 = scenario.overlap.grad_reduce_in_fp32;
  scenario.parallel = parallel;
  scenario.overlap = overlap;
  scenario.cluster = {};
  return scenario;
}

// The distance between two runs, in their reports of each step and in their final state.
struct Distance {
  double loss = 0, gradient_norm = 0, gradients = 0, parameters = 0;
};

// Returns the larger one; a NaN is the largest.
double larger(double a, double b) { return std::isnan(b) || b > a ? b : a; }

// Returns the larger distance in every member.
Distance farther(const Distance& a, const Distance& b) {
  return {larger(a.loss, b.loss), larger(a.gradient_norm, b.gradient_norm), larger(a.gradients, b.gradients),
          larger(a.parameters, b.parameters)};
}

double relative(double got, double expected) { return std::abs(got - expected) / std::abs(expected); }

// Returns ‖a − b‖ / ‖b‖ over all tensors together. In low precision a tensor whose gradient is near zero has no
// meaningful value of its own.
double overall_difference(const std::vector<exec::FullTensor>& a, const std::vector<exec::FullTensor>& b) {
  if (a.size() != b.size()) return 1;
  double difference = 0, norm = 0;
  for (std::size_t t = 0; t < a.size(); ++t)
    for (std::size_t i = 0; i < a[t].values.size(); ++i) {
      const double by = a[t].values[i] - b[t].values[i];
      difference += by * by;
      norm += b[t].values[i] * b[t].values[i];
    }
  return std::sqrt(difference / norm);
}

using TensorDistance = double (*)(const std::vector<exec::FullTensor>&, const std::vector<exec::FullTensor>&);
Distance distance(const Trained& a, const Trained& b, TensorDistance of_tensors) {
  Distance result;
  for (std::size_t step = 0; step < kLayoutSteps; ++step) {
    result.loss = larger(result.loss, relative(a.losses[step], b.losses[step]));
    result.gradient_norm = larger(result.gradient_norm, relative(a.norms[step], b.norms[step]));
  }
  result.gradients = of_tensors(a.gradients, b.gradients);
  result.parameters = of_tensors(a.parameters, b.parameters);
  return result;
}

bool reduces_in_bf16(const Scenario& scenario) {
  return !scenario.overlap.grad_reduce_in_fp32 && scenario.parallel.replicas() > 1;
}

// Returns the unit in the last place of the lowest precision to which anything is rounded.
double unit_of(const Scenario& scenario) {
  const std::string& precision = scenario.training.precision;
  if (precision == "bf16" || reduces_in_bf16(scenario)) return kUnitOfBf16;
  return precision == "fp32" ? kUnitOfF32 : kUnitOfF64;
}

// Returns how far a single rank in fp64 moves when each of its weights changes by `unit`, up or down. Rounding moves
// its results about as far, in any order of computation: in a model of hidden size 2 or 4 a norm divides the difference
// of nearly equal numbers by little more than sqrt(epsilon), layer after layer.
Distance sensitivity(const Scenario& scenario, const Trained& exact, double unit, TensorDistance of_tensors) {
  Distance most;
  for (int draw = 0; draw < kDraws; ++draw) {
    Draw signs(static_cast<std::uint64_t>(draw));
    const auto move = [&](exec::FullTensor& weights) {
      for (double& weight : weights.values) weight *= signs.coin() ? 1 + unit : 1 - unit;
    };
    const Trained moved = train(on_single_rank(scenario, "fp64"), kLayoutSteps, false, 1, move);
    most = farther(most, distance(moved, exact, of_tensors));
  }
  return most;
}

// A NaN is within no bound.
bool is_within(const Distance& a, const Distance& b) {
  return a.loss <= b.loss && a.gradient_norm <= b.gradient_norm && a.gradients <= b.gradients &&
         a.parameters <= b.parameters;
}

}  // namespace

std::vector<std::string> differences_from_one_rank(const Scenario& scenario, const Trained& trained) {
  const std::string& precision = scenario.training.precision;
  const double unit = unit_of(scenario);
  const Trained exact = train(on_single_rank(scenario, "fp64"), kLayoutSteps, false);
  const TensorDistance of_tensors = unit == kUnitOfF64 ? worst_relative_difference : overall_difference;
  Distance got = distance(trained, exact, of_tensors), most{kExact, kExact, kExact, kExactParameters};
  if (unit != kUnitOfF64) {
    // Fusions omit roundings, which a badly conditioned model shows, so the single rank has the fusions that act in the
    // layout.
    Scenario alone_too = on_single_rank(scenario, precision);
    alone_too.training.gelu_fusion = scenario.training.gelu_fusion;
    alone_too.training.attention_backend = scenario.training.attention_backend;
    alone_too.training.residual_fusion =
        scenario.training.residual_fusion && scenario.parallel.tensor_model_parallel_size == 1;
    const Trained rounded = train(alone_too, kLayoutSteps, false);
    const Distance alone = distance(rounded, exact, of_tensors);
    const auto widened = [&](double error) { return kTimesOneRank * error + kUnits * unit; };
    // Rounding may leave the norm unchanged by chance; its error is at most that of the gradients (triangle
    // inequality).
    const double alone_norm = std::max(alone.gradient_norm, alone.gradients);
    most = {widened(alone.loss), widened(alone_norm), widened(alone.gradients), widened(alone.parameters)};
    if (gathers_fp8(scenario))
      got = distance(trained, train(without_stages(scenario), kLayoutSteps, false), of_tensors);
  }
  if (!is_within(got, most)) {
    const Distance moved = sensitivity(scenario, exact, unit, of_tensors);
    most = farther(most, {kTimesSensitivity * moved.loss, kTimesSensitivity * moved.gradient_norm,
                          kTimesSensitivity * moved.gradients, kTimesSensitivity * moved.parameters});
  }
  std::vector<std::string> lines;
  const auto check = [&](const char* what, double difference, double limit) {
    if (difference <= limit) return;
    std::ostringstream line;
    line << what << " by " << difference << ", at most " << limit << " (" << precision
         << (reduces_in_bf16(scenario) ? ", reduced in bf16)" : ")");
    lines.push_back(line.str());
  };
  check("loss", got.loss, most.loss);
  check("gradient norm", got.gradient_norm, most.gradient_norm);
  check("gradients", got.gradients, most.gradients);
  check("parameters", got.parameters, most.parameters);
  return lines;
}

namespace {

// Returns the layout in a precision in which rounding hides nothing.
Scenario in_fp64(Scenario scenario) {
  scenario.training.precision = "fp64";
  scenario.overlap.grad_reduce_in_fp32 = true;
  scenario.overlap.fp8_param_gather = false;
  return scenario;
}

// Tensor-parallel overlap cuts GEMMs, which is another computation, so it stays. Messages of pairs of passes must
// overlap.
Scenario without_overlap(Scenario scenario) {
  Overlap& overlap = scenario.overlap;
  overlap.overlap_grad_reduce = overlap.overlap_param_gather = false;
  overlap.overlap_param_gather_with_optimizer_step = false;
  if (!overlap.overlap_moe_expert_parallel_comm)
    overlap.overlap_p2p_comm = overlap.overlap_p2p_comm_warmup_flush = false;
  overlap.align_grad_reduce = overlap.align_param_gather = false;
  overlap.fsdp_comm_overlap = false;
  overlap.batch_p2p_comm = !overlap.overlap_p2p_comm;
  return scenario;
}

// A machine on which every operation takes time and interferes with every other.
sim::Costs random_costs(const Schedule& schedule, Draw& draw) {
  sim::Costs costs;
  costs.link_bytes_per_s = 1e9;
  costs.cores_per_device = static_cast<int>(draw.between(0, 3));
  const bool resides = std::any_of(schedule.communicators.begin(), schedule.communicators.end(),
                                   [](const Communicator& of) { return resident_cores(of) > 0; });
  if (resides && costs.cores_per_device > 0) costs.cores_per_device += static_cast<int>(cores_needed(schedule)) - 1;
  costs.op_overhead = draw.between(0, 500);
  costs.wake = draw.between(0, 500);
  costs.timer_overshoot = draw.between(0, 500);
  for (auto& row : costs.slowdown)
    for (double& by : row) by = 0.1 * static_cast<double>(draw.between(0, 3));
  const auto demand = [&] {
    return sim::Demand{draw.between(0, 9000), static_cast<int>(draw.between(0, std::min(1, costs.cores_per_device))),
                       static_cast<sim::DemandClass>(draw.between(0, sim::kDemandClasses - 1))};
  };
  for (const Operation& operation : schedule.operations) {
    costs.compute.emplace_back();
    costs.collective.emplace_back();
    if (is_communication(operation.work)) {
      const Communicator& communicator = schedule.communicators[communicator_of(operation.work)];
      sim::CollectiveCost& cost = costs.collective.back();
      cost = {draw.between(0, 3000),
              draw.between(0, 9),
              demand(),
              std::holds_alternative<Collective>(operation.work) ? 2 : 1,
              resident_cores(communicator),
              1e8 * static_cast<double>(draw.between(0, 20))};
      if (cost.cores > 0) cost.movement.cores = 0;
    } else {
      costs.compute.back() = demand();
    }
  }
  return costs;
}

// Makes ranks different for fold_ranks.
void forbid_folding(Schedule& schedule) {
  for (const Coord axis : {Coord::dp_instance, Coord::dp, Coord::cp, Coord::cp_exchange, Coord::tp}) {
    View view;
    view.slot = Expr(axis) * Expr(3);
    schedule.operations.front().accesses.push_back({AccessMode::read, view});
  }
}

// Checks that folding changes no time, and that a period that was taken as steady stays.
std::string broken_simulation(const Schedule& schedule, Draw& draw) {
  const sim::Costs costs = random_costs(schedule, draw);
  Schedule unfolded = schedule;
  forbid_folding(unfolded);
  const sim::SimResult some = sim::simulate(schedule, costs), all = sim::simulate(unfolded, costs);
  std::ostringstream line;
  if (static_cast<std::int64_t>(all.programs.size()) != schedule.mesh.ranks() && schedule.mesh.size(Coord::pp) > 1)
    line << "folding was not forbidden";
  if (some.step != all.step)
    line << "simulated step is " << some.step << " ps of " << some.programs.size() << " ranks, " << all.step
         << " ps of all " << all.programs.size();
  // The last step of a simulation has no step after it; two of them differ by a period.
  sim::SimOptions to_the_end;
  to_the_end.stops_when_steady = false;
  const auto end_of = [&](int steps) {
    to_the_end.max_steps = steps;
    return sim::simulate(schedule, costs, to_the_end).timeline.step_end;
  };
  const auto period = static_cast<double>(end_of(8) - end_of(7));
  if (some.steady && std::abs(static_cast<double>(some.step) - period) > 1e-5 * period)
    line << "the steady period is " << some.step << " ps, that after 7 steps " << period;
  return line.str();
}

}  // namespace

std::vector<std::string> broken_properties(const Scenario& scenario, bool threaded, std::uint64_t seed) {
  std::vector<std::string> broken;
  try {
    const Schedule schedule = build_schedule(scenario);
    const MemoryPlan plan = plan_memory(schedule);
    if (const auto lines = verify_equivalent(build_schedule(without_overlap(scenario)), schedule, SumOrder::any);
        !lines.empty())
      broken.push_back("not what is computed without overlap: " + lines.front());
    Draw draw(seed);
    if (const std::string line = broken_simulation(schedule, draw); !line.empty()) broken.push_back(line);

    const Trained trained = train(scenario, kLayoutSteps, threaded, seed);
    for (const std::string& line : differences_from_one_rank(scenario, trained)) broken.push_back(line);
    if (unit_of(scenario) != kUnitOfF64) {
      const Scenario exact = in_fp64(scenario);
      for (const std::string& line : differences_from_one_rank(exact, train(exact, kLayoutSteps, threaded, seed)))
        broken.push_back("in fp64: " + line);
    }
    for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank) {
      const std::int64_t planned = plan.roles[schedule.role_of(schedule.mesh.coordinates_of(rank))].bytes,
                         allocated = trained.allocated_bytes[static_cast<std::size_t>(rank)];
      if (planned != allocated)
        broken.push_back("rank " + std::to_string(rank) + " allocates " + std::to_string(allocated) + " bytes of " +
                         std::to_string(planned) + " planned");
    }
  } catch (const std::exception& error) {
    broken.push_back(error.what());
  }
  return broken;
}

}  // namespace stretto::testing
