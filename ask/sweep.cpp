#include "ask/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "interchange/megatron.hpp"
#include "model/step_size.hpp"
#include "predict/quick_step.hpp"
#include "report/layout_text.hpp"
#include "report/sheet.hpp"
#include "report/units.hpp"
#include "sweep/names.hpp"
#include "sweep/tables.hpp"

namespace stretto::ask {
namespace {

// Returns whether the note says of a key that the sweep searches that it has no effect: such points are no ties.
bool says_idle(const std::string& note, const sweep::Space& space) {
  return std::any_of(space.axes.begin(), space.axes.end(), [&](const sweep::Axis& axis) {
    const std::string key = axis.key.substr(axis.key.find('.') + 1);
    return note.starts_with(key + " is off") || note.starts_with(key + " has no effect");
  });
}

// Returns the single changes of the fastest point, of keys that the sweep did not vary, that make it faster.
std::vector<sweep::SingleChange> further_changes(SweptSpace& space, const sweep::Point& fastest) {
  const auto read = [&](const std::vector<std::string>& further) {
    sweep::PointSettings settings{fastest.set, fastest.platform};
    settings.set.insert(settings.set.end(), further.begin(), further.end());
    return space.read(settings);
  };
  const auto was_varied = [&](const std::string& key) {
    return std::any_of(space.space().axes.begin(), space.space().axes.end(),
                       [&](const sweep::Axis& axis) { return axis.key == key && axis.values.size() > 1; });
  };
  std::vector<sweep::SingleChange> changes = sweep::faster_changes(
      read({}), space.platform({fastest.set, fastest.platform}), fastest.step_ms, read, was_varied);
  constexpr std::size_t kShown = 3;
  changes.resize(std::min(kShown, changes.size()));
  return changes;
}

Prediction times_of(SweptSpace& space, const sweep::PointSettings& settings) {
  return predict::predict_times(predict::QuickStep(space.read(settings)), space.platform(settings));
}

// Simulates the best points in full, as far as they are not too long.
void add_full_steps(SweptSpace& space, const SweepCalls& calls, SweepAnswer& answer) {
  std::map<std::string, int> idle;  // what points say of searched keys that have no effect there, and how many points
  constexpr double kMostInFull = 1e7;  // operations: some ten seconds
  for (const std::size_t i : answer.order) {
    if (calls.stop()) break;
    calls.progress(fmt::format("the best in full: {} of {}", answer.full.size() + 1, answer.order.size()));
    const sweep::Point& point = answer.result.points[i];
    const sweep::PointSettings settings{point.set, point.platform};
    const Scenario best = space.read(settings);
    predict::PredictedStep& step = answer.full.emplace_back(FullStep{i, {}}).step;
    const Prediction& p = step.prediction;
    if (step_size_of(best).operations > kMostInFull) {
      step.prediction = predict::predict_times(predict::QuickStep(best), space.platform(settings));
      answer.notes.push_back(
          fmt::format("{}: the whole step has more than {:.0f} million operations, so it was not simulated in full",
                      layout_text(p.parallel), kMostInFull * 1e-6));
    } else {
      step = predict::predict_step(best, space.platform(settings));
    }
    if (p.step_ms != point.step_ms)
      answer.notes.push_back(fmt::format("{}: the whole step takes {} and not {}", layout_text(p.parallel),
                                         time_text(p.step_ms), time_text(point.step_ms)));
    if (p.memory.fit() == Fit::does_not_fit)
      answer.notes.push_back(fmt::format("{} does not fit as a whole", layout_text(p.parallel)));
    for (const std::string& note : p.notes)
      if (says_idle(note, space.space())) ++idle[note];
  }
  for (const auto& [note, points_with] : idle)
    answer.notes.push_back(fmt::format("{} ({} of the {} best)", note, points_with, answer.full.size()));
}

// Predicts the user's scenario as it is, to compare the best with it.
void add_own(SweptSpace& space, SweepAnswer& answer) {
  if (space.swept.text_of || answer.full.empty()) return;
  try {
    if (!space.why_not_own().empty()) throw input_error(space.why_not_own());
    answer.own = predict::predict_times(predict::QuickStep(space.scenario()), space.platform());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    answer.why_no_own = error.what();
  }
}

void add_megatron(SweptSpace& space, SweepAnswer& answer) {
  const sweep::Point& first = answer.result.points[answer.order.front()];
  try {
    answer.megatron = to_megatron(space.read({first.set, first.platform})).text;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    answer.notes.push_back(std::string("no flags of Megatron-LM: ") + error.what());
  }
}

}  // namespace

SweepAnswer sweep(SweptSpace& space, const SweepCalls& calls) {
  const SweepRequest& request = space.request;
  SweepAnswer answer;
  answer.scenario = space.scenario().name;
  answer.platform = space.platform().name;
  answer.combinations = space.space().points();
  const auto begin = std::chrono::steady_clock::now();
  answer.result = sweep::search(
      space.space(), space.scenario(), {request.best, request.all, request.shard, request.shards},
      {[&](const sweep::PointSettings& settings) { return space.read(settings); },
       [&](const sweep::PointSettings& settings) -> const sim::Platform& { return space.platform(settings); },
       [&](const sweep::PointSettings& settings) { return space.key(settings); }, calls.known, calls.report,
       calls.stop});
  answer.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::vector<sweep::Point>& points = answer.result.points;
  answer.order = sweep::fastest(points);
  if (!answer.order.empty()) answer.ranking = sweep::ranking_of(points, answer.order);
  answer.order.resize(std::min(answer.order.size(), request.best));
  answer.front = sweep::pareto_front(points);
  answer.by_gpus = sweep::best_by_gpus(points);
  add_full_steps(space, calls, answer);
  for (const std::size_t i : answer.by_gpus) {
    if (calls.stop()) break;
    answer.scales.push_back(times_of(space, {points[i].set, points[i].platform}));
  }
  add_own(space, answer);
  if (!answer.order.empty()) {
    if (!calls.stop()) {
      calls.progress(std::string("single changes of the ") + answer.ranking->first_name());
      answer.changes = further_changes(space, points[answer.order.front()]);
    }
    add_megatron(space, answer);
  }
  answer.was_stopped = calls.stop();
  return answer;
}

void require_one(const SweepAnswer& answer, const SweepRequest& request) {
  if (!answer.order.empty() || request.shards > 1) return;
  const std::vector<sweep::Point>& points = answer.result.points;
  const bool is_wrong = std::all_of(points.begin(), points.end(),
                                    [](const sweep::Point& point) { return point.status == sweep::Status::refused; });
  throw is_wrong ? input_error(sweep::why_none(answer.result)) : runtime_failure(sweep::why_none(answer.result));
}

nlohmann::json json_of(const SweepAnswer& answer) {
  const std::vector<sweep::Point>& points = answer.result.points;
  nlohmann::json json = {{"scenario", answer.scenario},         {"platform", answer.platform},
                         {"combinations", answer.combinations}, {"indivisible", answer.result.indivisible},
                         {"complete", answer.result.complete},  {"seconds", answer.seconds},
                         {"ranked_by", sweep::kRankedBy},       {"fastest", nullptr},
                         {"points", nlohmann::json::array()},   {"best", nlohmann::json::array()},
                         {"pareto", nlohmann::json::array()},   {"own", nullptr},
                         {"changes", nlohmann::json::array()}};
  if (answer.ranking) json["fastest"] = points[answer.ranking->fastest].key;
  for (const sweep::Point& point : points) json["points"].push_back(sweep::json_of(point));
  for (const FullStep& one : answer.full) json["best"].push_back(prediction_json(one.step.prediction));
  for (const std::size_t i : answer.front) json["pareto"].push_back(points[i].key);
  if (answer.own) json["own"] = prediction_json(*answer.own);
  if (!answer.changes.empty())
    json["changes"] = sweep::changes_sheet(answer.changes, points[answer.order.front()].step_ms).json();
  return json;
}

}  // namespace stretto::ask
