#include "api/stretto.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "ask/run/compare.hpp"
#include "ask/run/diagnose.hpp"
#include "ask/run/train.hpp"
#include "ask/settings.hpp"
#include "ask/show.hpp"
#include "ask/simulate.hpp"
#include "ask/swept.hpp"
#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "base/memory.hpp"
#include "base/printable.hpp"
#include "cli/version.hpp"
#include "compare/compare.hpp"
#include "exec/machine.hpp"
#include "exec/trainer.hpp"
#include "exec/training_json.hpp"
#include "model/overlap/overlap.hpp"
#include "model/verify/verify.hpp"
#include "predict/inputs.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sweep/search.hpp"

namespace stretto::api {
namespace {

// Calls `act` and turns every exception into an api::Error, so that no internal type leaves the library. Control
// characters in a message are made printable.
template <class Act>
auto guarded(Act act) -> decltype(act()) {
  try {
    return act();
  } catch (const stretto::Error& error) {
    throw Error(printable(error.what()), error.exit_code() == 2);
  } catch (const std::bad_alloc&) {
    throw Error("out of memory", false);
  } catch (const std::exception& error) {
    throw Error(printable(error.what()), false);
  }
}

// Refuses a name that is longer than a path can be, so that the name does not come back in a message.
void require_short(const std::string& what, const std::string& name) {
  constexpr std::size_t kMost = 4096;  // PATH_MAX of Linux
  if (name.size() > kMost)
    throw input_error(
        fmt::format("{}: expected a name or a path of at most {} bytes, got {}", what, kMost, name.size()));
}

ask::Request asked_of(const Request& request) {
  return ask::checked({request.scenario, request.set, request.platform});
}
Scenario scenario_of(const Request& request) { return ask::Asked(asked_of(request)).scenario; }

}  // namespace

std::string simulate(const Request& request, const SimulateOptions& options) {
  return guarded([&] {
    require_short("engine", options.engine);
    ask::Asked asked(asked_of(request));
    return ask::json_of(ask::simulate(asked, {.engine = options.engine,
                                              .backbone_GBps = options.backbone_GBps,
                                              .modes = options.modes,
                                              .limits = options.limits,
                                              .fit = options.fit}))
        .dump();
  });
}

namespace {

std::string json_text(const Translation& made) {
  return nlohmann::json{{"text", made.text}, {"notes", made.notes}}.dump();
}

}  // namespace

std::string import_settings(const ImportRequest& request) {
  return guarded([&] {
    require_short("file", request.file);
    require_short("format", request.format);
    return json_text(
        ask::imported({request.file, request.flags, request.format, request.set, request.environment, request.gpus}));
  });
}

std::string export_settings(const Request& request, const std::string& format) {
  return guarded([&] {
    require_short("format", format);
    return json_text(ask::exported(asked_of(request), format));
  });
}

std::string diagnose(const Request& request, const TraceRequest& trace) {
  return guarded([&] {
    require_short("trace", trace.trace);
    require_short("model", trace.model);
    const ask::TraceRequest of{trace.trace, trace.section, trace.window, trace.rank, trace.model, request.platform};
    if (request.scenario.empty()) {
      if (!request.set.empty()) throw input_error("set: expected a scenario to set it in, got none");
      return ask::json_of(ask::recognised(of)).dump();
    }
    if (!trace.model.empty()) throw input_error("model: expected no scenario, which has the model");
    ask::Asked asked(asked_of(request));
    asked.read_platform();
    return ask::json_of(*ask::explained(asked, of)).dump();
  });
}

struct Sweep::State {
  ask::SweptSpace space;
  sweep::Looker looker;
  std::int64_t place = 0;
  struct Open {
    std::vector<std::string> values;
    sweep::Point point;
  };
  // The window so far has points that are decided, and those that are not, the lowest bound last.
  std::deque<sweep::Point> decided = {};
  std::vector<Open> open = {};

  State(const Request& request, const std::vector<std::string>& over, std::size_t best, bool all)
      : space({asked_of(request), over, best, all, !request.platform.empty()}, ask::swept_of(asked_of(request))),
        looker(best, all) {}

  void look_at_window() {
    constexpr std::int64_t kWindow = sweep::kWindow / 10;  // the first points are wanted soon
    const std::int64_t end = std::min(space.space().points(), place + kWindow);
    for (; place < end; ++place) {
      std::vector<std::string> values = space.space().at(sweep::number_at(space.space(), place));
      const auto settings = sweep::settings_of(space.space(), values, space.scenario());
      if (!settings) continue;
      sweep::Point point = looker.look_at(
          *settings, [&] { return space.read(*settings); },
          [&]() -> const sim::Platform& { return space.platform(*settings); });
      point.key = space.key(*settings);
      if (point.status == sweep::Status::open)
        open.push_back({std::move(values), std::move(point)});
      else
        decided.push_back(std::move(point));
    }
    std::stable_sort(open.begin(), open.end(),
                     [](const Open& a, const Open& b) { return a.point.bound_ms > b.point.bound_ms; });
  }

  // Returns nullopt after the last point.
  std::optional<sweep::Point> next() {
    while (decided.empty() && open.empty() && place < space.space().points()) look_at_window();
    if (!decided.empty()) {
      sweep::Point point = std::move(decided.front());
      decided.pop_front();
      return point;
    }
    if (open.empty()) return std::nullopt;
    Open one = std::move(open.back());
    open.pop_back();
    const sweep::PointSettings settings{one.point.set, one.point.platform};
    looker.decide(
        one.point, space.space(), one.values, [&] { return space.read(settings); },
        [&]() -> const sim::Platform& { return space.platform(settings); });
    return std::move(one.point);
  }
};

Sweep::Sweep(Request request, const std::vector<std::string>& over, std::size_t best, bool all)
    : state_(guarded([&] { return std::make_unique<State>(request, over, best, all); })) {}
Sweep::~Sweep() = default;
Sweep::Sweep(Sweep&&) noexcept = default;
Sweep& Sweep::operator=(Sweep&&) noexcept = default;

std::string Sweep::next() {
  return guarded([&]() -> std::string {
    const std::optional<sweep::Point> point = state_->next();
    return point ? sweep::json_of(*point).dump() : "";
  });
}

std::string show(const Request& request) {
  return guarded([&] {
    ask::Asked asked(asked_of(request));
    return ask::json_of(ask::show(asked)).dump();
  });
}

std::string gates(const Request& request) {
  return guarded([&] {
    ask::Asked asked(asked_of(request));
    return gates_json(ask::gates(asked)).dump();
  });
}

std::string compare(const Request& request) {
  return guarded([&] {
    const Scenario scenario = scenario_of(request);
    const sim::Platform platform = predict::read_platform_input(request.platform, scenario);
    ask::require_comparable(platform, "host");
    const exec::Machine machine = exec::host_machine(sim::cores_per_device(platform, scenario.cluster));
    const auto silent = [](const std::string&) {};
    const auto never = [] { return false; };
    return ask::json_of(compare::run(scenario, platform, machine, silent, never)).dump();
  });
}

std::string train(const Request& request, const TrainOptions& options) {
  return guarded([&] {
    const Scenario scenario = scenario_of(request);
    exec::require_data(scenario);  // before memory is taken
    const VerifiedSchedule verified = plan_and_verify(build_schedule(scenario, free_memory_bytes()));
    bool is_stopped = false;
    exec::TrainOptions callbacks;
    callbacks.stop = [&] { return is_stopped = is_stopped || (options.stop && options.stop()); };
    callbacks.on_step = [&](const exec::TrainStep& step) {
      if (options.on_step && !options.on_step(exec::step_json(step).dump())) is_stopped = true;
    };
    callbacks.on_message = [&](const std::string& line) {
      if (options.on_message) options.on_message(printable(line));
    };
    const exec::Machine machine =
        exec::host_machine(static_cast<int>(scenario.cluster.cores_per_device), callbacks.stop);
    const auto executor = machine.make(verified, exec::run_options(scenario));
    return ask::json_of(exec::train(scenario, verified.schedule, *executor, callbacks)).dump();
  });
}

std::vector<std::string> names(const std::string& kind) {
  return guarded([&] {
    require_short("kind", kind);
    const std::vector<std::string> kinds = {"platforms", "profiles", "models", "modes"};
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return data_names(kind);
    const std::string nearest = nearest_spelling(kind, kinds);
    throw input_error("kind: expected platforms, profiles, models or modes, got \"" + kind + "\"" +
                      (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
  });
}

std::string version() { return kVersion; }

}  // namespace stretto::api
