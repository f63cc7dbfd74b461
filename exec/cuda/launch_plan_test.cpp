// Runs a launch plan on the processor as a device would: streams in order, events as in CUDA, everything else in any
// order. Its results must be those of the schedule.
#include "exec/cuda/launch_plan.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <random>

#include "exec/comm/local.hpp"
#include "model/schedule/partners.hpp"
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

  // Calls all steps first, like a host far ahead of its device.
  void run(int steps, std::uint64_t seed, bool waits = true) {
    std::vector<std::deque<Pending>> streams(plan_.streams);
    std::vector<int> recorded(2 * plan_.events), happened(2 * plan_.events);
    for (int step = 0; step < steps; ++step)
      for (const cuda::LaunchAction& action : plan_.actions) {
        if (action.kind == Kind::begin || action.kind == Kind::end) continue;
        if (action.kind == Kind::wait && !waits) continue;
        if (action.kind == Kind::launch) {
          streams[action.stream].push_back({action, 0, 0});
          continue;
        }
        const bool other = action.kind == Kind::wait && action.of_step_before;
        const auto event = 2 * action.event + static_cast<std::uint32_t>((step + other) % 2);
        if (action.kind == Kind::record) ++recorded[event];
        // cudaStreamWaitEvent waits for the latest record at the time of its call.
        streams[action.stream].push_back({action, event, recorded[event]});
      }
    std::mt19937_64 random(seed);
    std::vector<std::uint32_t> ready;
    while (true) {
      ready.clear();
      bool done = true;
      for (std::uint32_t s = 0; s < plan_.streams; ++s) {
        done = done && streams[s].empty();
        if (!streams[s].empty() && can_run(streams[s].front(), happened)) ready.push_back(s);
      }
      if (done) return;
      REQUIRE_FALSE(ready.empty());
      auto& stream = streams[ready[random() % ready.size()]];
      const Pending next = stream.front();
      stream.pop_front();
      if (next.action.kind == Kind::record) ++happened[next.event];
      if (next.action.kind == Kind::launch) launch(next.action);
    }
  }

 private:
  struct Pending {
    cuda::LaunchAction action;
    std::uint32_t event;
    int count;
  };
  static bool can_run(const Pending& next, const std::vector<int>& happened) {
    return next.action.kind != Kind::wait || happened[next.event] >= next.count;
  }

  void launch(const cuda::LaunchAction& action) {
    const BoundProgram& program = programs_[action.rank];
    const Work& work = program.work_of(action.op);
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
        buffers.push_back({operands_[rank].of(op).front().data, operands_[rank].of(op).back().data});
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
