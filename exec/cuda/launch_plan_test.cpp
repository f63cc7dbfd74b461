// Runs a launch plan on the processor as a device would: streams in order, events as in CUDA, everything else in any
// order. Its results must be those of the schedule.
#include "exec/cuda/launch_plan.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <map>
#include <random>

#include "exec/comm/local.hpp"
#include "model/schedule/partners.hpp"
#include "tests/small_mixture.hpp"
#include "tests/training.hpp"

namespace stretto::testing {
namespace {

using Kind = cuda::LaunchAction::Kind;

class FakeDevice {
 public:
  FakeDevice(const Schedule& schedule, const MemoryPlan& memory) : schedule_(schedule) {
    BoundStep step = bind_step(schedule, Folding(schedule.mesh));
    plan_ = cuda::plan_launches(schedule, step);
    programs_ = std::move(step.programs);
    for (const BoundProgram& program : programs_) {
      memories_.push_back(std::make_unique<host::RankMemory>(schedule, memory.roles[program.role]));
      operands_.push_back(host::bind_operands(schedule, program, *memories_.back()));
    }
  }
  host::RankMemory& memory(std::int64_t rank) { return *memories_[static_cast<std::size_t>(rank)]; }
  const cuda::LaunchPlan& plan() const { return plan_; }

  // Calls all steps first, like a host far ahead of its device, except where the host waits.
  void run(int steps, std::uint64_t seed, bool waits = true) {
    std::vector<std::deque<Pending>> streams(plan_.streams);
    std::vector<int> recorded(2 * plan_.events), happened(2 * plan_.events);
    std::mt19937_64 random(seed);
    // Runs one thing that can run; returns whether any is left.
    const auto advance = [&] {
      std::vector<std::uint32_t> ready;
      bool done = true;
      for (std::uint32_t s = 0; s < plan_.streams; ++s) {
        done = done && streams[s].empty();
        if (!streams[s].empty() && can_run(streams[s].front(), happened)) ready.push_back(s);
      }
      if (done) return false;
      REQUIRE_FALSE(ready.empty());
      auto& stream = streams[ready[random() % ready.size()]];
      const Pending next = std::move(stream.front());
      stream.pop_front();
      if (next.action.kind == Kind::record) ++happened[next.event];
      if (next.action.kind == Kind::copy) copy_counts(next.action);
      if (next.action.kind == Kind::launch) launch(next);
      return true;
    };
    for (int step = 0; step < steps; ++step)
      for (const cuda::LaunchAction& action : plan_.actions) {
        if (action.kind == Kind::begin || action.kind == Kind::end) continue;
        if (action.kind == Kind::wait && !waits) continue;
        if (action.kind == Kind::launch || action.kind == Kind::copy) {
          streams[action.stream].push_back({action, 0, 0, {}});
          if (action.kind == Kind::launch) streams[action.stream].back().counts = known_counts(action);
          continue;
        }
        if (action.kind == Kind::host_wait) {
          const std::size_t event = 2 * action.event + static_cast<std::size_t>(step % 2);
          while (happened[event] < recorded[event]) REQUIRE(advance());
          ++host_waits;
          continue;
        }
        const bool other = action.kind == Kind::wait && action.of_step_before;
        const auto event = 2 * action.event + static_cast<std::uint32_t>((step + other) % 2);
        if (action.kind == Kind::record) ++recorded[event];
        // cudaStreamWaitEvent waits for the latest record at the time of its call.
        streams[action.stream].push_back({action, event, recorded[event], {}});
      }
    while (advance()) {
    }
  }
  int host_waits = 0;

 private:
  struct Pending {
    cuda::LaunchAction action;
    std::uint32_t event;
    int count;
    std::vector<std::int32_t> counts;  // numbers of rows that the host knew when it launched
  };
  static bool can_run(const Pending& next, const std::vector<int>& happened) {
    return next.action.kind != Kind::wait || happened[next.event] >= next.count;
  }

  static std::vector<std::int32_t> read(const host::Operand& counts) {
    const auto* begin = static_cast<const std::int32_t*>(counts.data);
    return {begin, begin + counts.rows * counts.cols};
  }
  void copy_counts(const cuda::LaunchAction& action) {
    const Work& work = programs_[action.rank].work_of(action.op);
    const host::Operand& made = operands_[action.rank].of(action.op)[*cuda::made_counts_of(work)];
    on_host_[made.data] = read(made);
  }
  std::vector<std::int32_t> known_counts(const cuda::LaunchAction& action) const {
    const auto at = cuda::counts_of(programs_[action.rank].work_of(action.op));
    if (!at) return {};
    const auto found = on_host_.find(operands_[action.rank].of(action.op)[*at].data);
    REQUIRE(found != on_host_.end());
    return found->second;
  }

  void launch(const Pending& next) {
    const cuda::LaunchAction& action = next.action;
    const BoundProgram& program = programs_[action.rank];
    const Work& work = program.work_of(action.op);
    // The host launches with what the device has.
    if (const auto at = cuda::counts_of(work)) REQUIRE(next.counts == read(operands_[action.rank].of(action.op)[*at]));
    if (std::holds_alternative<PointToPoint>(work)) {
      const cuda::LaunchPlan::Participant sender = plan_.rendezvous[action.rendezvous].front();
      const host::Operand& from = operands_[sender.rank].of(sender.op)[0];
      const host::Operand& to = operands_[action.rank].of(action.op)[0];
      std::memcpy(to.data, from.data, static_cast<std::size_t>(to.rows * to.cols * bytes_of(to.dtype)));
    } else if (const auto* collective = std::get_if<Collective>(&work)) {
      std::vector<local::Buffers> buffers;
      int self = 0;
      for (const auto& [rank, op] : plan_.rendezvous[action.rendezvous]) {
        if (rank == action.rank) self = static_cast<int>(buffers.size());
        buffers.push_back(local::buffers_of(*collective, operands_[rank].of(op)));
      }
      local::run_share(*collective, operands_[action.rank].of(action.op).front().dtype, self, buffers, action.phase);
    } else {
      host::run_work(work, operands_[action.rank].of(action.op));
    }
  }

  const Schedule& schedule_;
  std::vector<BoundProgram> programs_;
  std::vector<std::unique_ptr<host::RankMemory>> memories_;
  std::vector<host::BoundOperands> operands_;
  cuda::LaunchPlan plan_;
  std::map<const void*, std::vector<std::int32_t>> on_host_;  // by place on the device
};

Trained train_on_fake_device(const Scenario& scenario, int steps, std::uint64_t seed, bool waits = true) {
  const Schedule schedule = build_schedule(scenario);
  const MemoryPlan plan = plan_and_verify(schedule).plan;
  FakeDevice device(schedule, plan);
  const exec::MemoryOf memory_of = [&](std::int64_t rank) -> host::RankMemory& { return device.memory(rank); };
  exec::initialise_state(schedule, scenario, memory_of);
  // The batch is equal in every step, so that steps can be issued without the host changing inputs in between.
  exec::write_batch(schedule, scenario, tiny_tokens(scenario.model.vocab_size), 0, memory_of);
  exec::write_hyper(schedule, scenario, 0, memory_of);
  device.run(steps, seed, waits);
  Trained trained;
  trained.losses.push_back(exec::read_metrics(schedule, memory_of).loss);
  trained.parameters = exec::gather_state(schedule, memory_of, StatePart::parameters);
  return trained;
}

Trained train_serially(const Scenario& scenario, int steps) {
  const Schedule schedule = build_schedule(scenario);
  const MemoryPlan plan = plan_and_verify(schedule).plan;
  serial::SerialExecutor executor(schedule, plan);
  const exec::MemoryOf memory_of = [&](std::int64_t rank) -> host::RankMemory& { return executor.memory(rank); };
  exec::initialise_state(schedule, scenario, memory_of);
  exec::write_batch(schedule, scenario, tiny_tokens(scenario.model.vocab_size), 0, memory_of);
  exec::write_hyper(schedule, scenario, 0, memory_of);
  executor.run(steps, 1);
  Trained trained;
  trained.losses.push_back(exec::read_metrics(schedule, memory_of).loss);
  trained.parameters = exec::gather_state(schedule, memory_of, StatePart::parameters);
  return trained;
}

}  // namespace

TEST_CASE("a launch plan computes what the schedule does, in every mode", "[cuda]") {
  Cases cases;
  for (const Layout& layout : {Layout{1, 1}, Layout{3, 1}, Layout{1, 2}, Layout{2, 2, true}, Layout{1, 1, false, 2, 3},
                               Layout{2, 1, false, 3}, Layout{2, 2, true, 2}})
    for (const OverlapMode& mode : overlap_modes()) {
      const Scenario scenario = layout_scenario(layout, mode.name, false);
      if (!mode.applies(scenario.parallel) || !cases.takes_next()) continue;
      const Trained expected = train_serially(scenario, 3);
      for (const std::uint64_t seed : {1, 2}) {
        INFO(layout.text() << ", " << mode.name << ", seed " << seed);
        const Trained trained = train_on_fake_device(scenario, 3, seed);
        CHECK(trained.losses == expected.losses);
        CHECK(same_bits(trained.parameters, expected.parameters));
      }
    }
}

TEST_CASE("a launch plan of experts computes what the schedule does, and the host knows the numbers of rows",
          "[cuda]") {
  Cases cases;
  for (const auto& [layout, ep] : {std::pair{Layout{1, 1}, 1}, std::pair{Layout{2, 1}, 2}, std::pair{Layout{4, 1}, 2},
                                   std::pair{Layout{2, 2, true}, 4}, std::pair{Layout{2, 1, false, 2}, 2}})
    for (const bool pads : {false, true})
      for (const char* mode : {"plain", "overlap_grad_reduce", "overlap_moe_expert_parallel_comm",
                               "delay_wgrad_compute", "moe_shared_expert_overlap"}) {
        Scenario scenario = small_mixture(layout, ep, Mixture::sigmoid, mode, "fp64", 8);
        if (pads) pad_experts(scenario);
        if (!find_overlap_mode(mode).applies(scenario.parallel) || !cases.takes_next()) continue;
        const Trained expected = train_serially(scenario, 3);
        for (const std::uint64_t seed : {1, 2}) {
          INFO(layout.text() << ", ep " << ep << ", " << mode << (pads ? ", padded" : "") << ", seed " << seed);
          const Trained trained = train_on_fake_device(scenario, 3, seed);
          CHECK(trained.losses == expected.losses);
          CHECK(same_bits(trained.parameters, expected.parameters));
        }
      }
}

TEST_CASE("the host waits once for each layer's numbers of rows, and for none of padded rows", "[cuda]") {
  for (const auto& [layout, ep] : {std::pair{Layout{1, 1}, 1}, std::pair{Layout{2, 1}, 2}})
    for (const bool pads : {false, true}) {
      Scenario scenario = small_mixture(layout, ep, Mixture::softmax, "plain", "fp64", 4);
      if (pads) pad_experts(scenario);
      const Schedule schedule = build_schedule(scenario);
      const BoundProgram program = bind(schedule, 0);
      const cuda::LaunchPlan plan = cuda::plan_launches_of_rank(schedule, program);
      std::int64_t waits = 0, copies = 0;
      for (std::size_t i = 0; i < plan.actions.size(); ++i) {
        waits += plan.actions[i].kind == Kind::host_wait;
        copies += plan.actions[i].kind == Kind::copy;
      }
      // Waits for the numbers of all ranks, for the exchange, and for those of this rank's experts, for their products.
      const std::int64_t layers = scenario.model.num_layers * scenario.num_microbatches(),
                         expected = pads ? 0 : layers * (ep > 1 ? 2 : 1);
      CHECK(waits == expected);
      CHECK(copies == expected);
      CHECK(plan.waits_on_host() == !pads);
    }
}

// NCCL connects ranks when they call collectives, and the host waits for that: in the order of each rank's calls some
// rank must always be able to go on.
TEST_CASE("ranks on devices of their own call collectives in orders that meet", "[cuda]") {
  Cases cases;
  for (const Layout& layout : {Layout{3, 1}, Layout{1, 2, true}, Layout{2, 2, true}, Layout{1, 1, false, 2, 3},
                               Layout{2, 1, false, 3}, Layout{2, 2, true, 2}, Layout{2, 2, true, 2, 3}})
    for (const OverlapMode& mode : overlap_modes()) {
      const Scenario scenario = layout_scenario(layout, mode.name, false);
      if (!mode.applies(scenario.parallel) || !cases.takes_next()) continue;
      INFO(layout.text() << ", " << mode.name);
      const Schedule schedule = build_schedule(scenario);
      std::vector<std::deque<std::uint32_t>> calls;  // [rank]: communicators, in the order of the calls
      for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank) {
        const BoundProgram program = bind(schedule, rank);
        calls.emplace_back();
        for (const cuda::LaunchAction& action : cuda::plan_launches_of_rank(schedule, program).actions)
          if (action.kind == Kind::launch)
            if (const auto* c = std::get_if<Collective>(&program.work_of(action.op)))
              calls.back().push_back(c->communicator);
      }
      for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t rank = 0; rank < calls.size(); ++rank) {
          if (calls[rank].empty()) continue;
          const std::uint32_t next = calls[rank].front();
          const std::vector<std::int64_t> members =
              members_of(schedule, schedule.communicators[next], static_cast<std::int64_t>(rank));
          const auto calls_of = [&](std::int64_t member) -> auto& { return calls[static_cast<std::size_t>(member)]; };
          if (!std::all_of(members.begin(), members.end(), [&](std::int64_t member) {
                return !calls_of(member).empty() && calls_of(member).front() == next;
              }))
            continue;
          for (const std::int64_t member : members) calls_of(member).pop_front();
          moved = true;
        }
      }
      for (const auto& left : calls) CHECK(left.empty());
    }
}

TEST_CASE("without its events a launch plan computes something else", "[cuda]") {
  const Scenario scenario = layout_scenario({2, 2, true}, "overlap_param_gather", false);
  const Trained expected = train_serially(scenario, 3);
  int differ = 0;
  for (const std::uint64_t seed : {1, 2, 3})
    differ += !same_bits(train_on_fake_device(scenario, 3, seed, false).parameters, expected.parameters);
  CHECK(differ == 3);
}

TEST_CASE("a launch plan holds what is needed and no more", "[cuda]") {
  const Scenario one = layout_scenario({1, 1}, "plain", false);
  const Schedule schedule = build_schedule(one);
  FakeDevice device(schedule, plan_memory(schedule));
  // One lane needs no events, only the operations of the step in order.
  CHECK(device.plan().streams == 1);
  CHECK(device.plan().events == 0);
  const BoundProgram program = bind(schedule, 0);
  REQUIRE(device.plan().actions.size() == 3 * program.ops.size());
  for (std::uint32_t i = 0; i < device.plan().actions.size(); ++i) {
    constexpr Kind kinds[] = {Kind::begin, Kind::launch, Kind::end};
    CHECK(device.plan().actions[i].kind == kinds[i % 3]);
    CHECK(device.plan().actions[i].op == i / 3);
  }
}

}  // namespace stretto::testing
