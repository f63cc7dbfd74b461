#include "compare/turns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/steal.hpp"
#include "base/time_left.hpp"
#include "exec/launch/timelines.hpp"
#include "model/overlap/overlap.hpp"
#include "model/schedule/json.hpp"

namespace stretto::compare {
namespace {

// Returns a schedule without its name and notes.
nlohmann::json content_of(const Schedule& schedule) {
  nlohmann::json content = write_schedule_json(schedule);
  content.erase("name");
  content.erase("notes");
  return content;
}

constexpr int kSteps = 2;  // back to back: the second of two is timed, the steady period

void warm_up(Contender& contender) {
  contender.executor->run(kSteps);
  contender.executor->download(exec::Executor::Contents::results);
  const std::int64_t here = contender.executor->programs().front().rank;
  contender.loss = exec::read_metrics(contender.schedule, exec::memory_of(*contender.executor), here).loss;
}

}  // namespace

double step_ms(const Timeline& timeline) { return to_ms(timeline.step_end - timeline.step_begin); }

std::vector<std::unique_ptr<Contender>> contenders_of(Grid& grid, std::size_t at, const exec::Machine& machine,
                                                      const exec::TokenSource& tokens) {
  std::vector<std::unique_ptr<Contender>> contenders;
  std::vector<nlohmann::json> contents;
  const auto add = [&](const std::string& mode, Schedule schedule) {
    Scenario scenario = with_mode(grid.scenario, mode, grid.ranks[at]);
    const exec::RunOptions options = exec::run_options(scenario);
    contenders.push_back(
        std::make_unique<Contender>(std::move(scenario), std::move(schedule), machine, options, tokens));
    contenders.back()->mode = mode;
  };
  for (std::size_t m = 0; m < grid.modes.size(); ++m) {
    Schedule schedule = std::move(grid.schedules[at][m]);
    nlohmann::json content = content_of(schedule);
    if (const auto equal = std::find(contents.begin(), contents.end(), content); equal != contents.end()) {
      contenders[static_cast<std::size_t>(equal - contents.begin())]->equal_modes.push_back(grid.modes[m]);
      continue;
    }
    add(grid.modes[m], std::move(schedule));
    contents.push_back(std::move(content));
  }
  add(grid.modes.front(), contenders.front()->schedule);
  return contenders;
}

void CoreMonitor::add(const Reading& reading) {
  sgemm_GFLOPs_.push_back(reading.sgemm_GFLOPs);
  detours_of_turns_.back() += reading.detours;
}

Turns run_turns(std::vector<std::unique_ptr<Contender>>& contenders, std::int64_t turns,
                launch::ProcessGroup* processes, CoreMonitor* cores,
                const std::function<void(const std::string&)>& progress, const std::function<bool()>& stop) {
  Turns done;
  // Processes run equally many steps, so none is repeated when one of them was disturbed.
  Undisturbed measure(processes ? 0 : turns * std::ssize(contenders));
  const auto time = [&](Contender& contender) {
    // The step and the reading of the cores are kept, or measured again, together.
    Timeline timeline;
    CoreMonitor::Reading reading;
    measure([&] {
      timeline = contender.executor->run(kSteps);
      if (cores) reading = cores->read();
    });
    if (processes) timeline = launch::gather_timeline(*processes, std::move(timeline), contender.all.programs);
    contender.measured.push_back(std::move(timeline));
    if (cores) cores->add(reading);
  };
  TimeLeft time_left;
  for (std::int64_t turn = -1; turn < turns && done.complete; ++turn) {
    if (turn == 0) time_left.restart();
    done.complete = !(processes ? processes->any(stop()) : stop());
    if (!done.complete) break;
    progress(fmt::format(
        "ranks {}: {}", contenders.front()->schedule.mesh.ranks(),
        turn < 0 ? "warming up" : fmt::format("turn {} of {}{}", turn + 1, turns, time_left.after(turn, turns))));
    if (cores && turn >= 0) cores->begin_turn();
    // The first contender changes from turn to turn: the first of a turn meets caches that the last one left.
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      Contender& contender = *contenders[(i + static_cast<std::size_t>(turn + 1)) % contenders.size()];
      if (turn < 0)
        warm_up(contender);
      else
        time(contender);
    }
    if (cores && turn >= 0) cores->end_turn();
  }
  done.runs = measure.runs();
  done.set_aside = measure.set_aside();
  return done;
}

}  // namespace stretto::compare
