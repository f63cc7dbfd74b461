#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/checksum.hpp"
#include "base/error.hpp"
#include "base/memory.hpp"
#include "base/read_file.hpp"
#include "base/time_left.hpp"
#include "cli/commands.hpp"
#include "cli/progress.hpp"
#include "cli/search_layouts.hpp"
#include "model/interchange/megatron.hpp"
#include "model/model_json.hpp"
#include "model/step_size.hpp"
#include "predict/inputs.hpp"
#include "predict/predict_step.hpp"
#include "predict/quick_step.hpp"
#include "predict/run.hpp"
#include "report/html.hpp"
#include "report/layout_text.hpp"
#include "report/units.hpp"
#include "sweep/charts.hpp"
#include "sweep/journal.hpp"
#include "sweep/names.hpp"
#include "sweep/near.hpp"
#include "sweep/ranking.hpp"
#include "sweep/search.hpp"
#include "sweep/tables.hpp"

namespace stretto::cli {
namespace {

// Returns a scenario's file without its table [sweep], which says which points there are and not what they are.
std::string contents_of(const std::string& path) {
  std::ifstream file(path);
  std::string text, line;
  bool is_left_out = false;
  while (std::getline(file, line)) {
    if (line.starts_with('[')) is_left_out = line.starts_with("[sweep]");
    if (!is_left_out) text += line + "\n";
  }
  return text;
}

std::pair<std::int64_t, std::int64_t> shard_of(const std::string& text) {
  std::int64_t shard = -1, shards = 0;
  const char *begin = text.data(), *end = begin + text.size();
  const auto first = std::from_chars(begin, end, shard);
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == '/')
    if (const auto second = std::from_chars(first.ptr + 1, end, shards); second.ec != std::errc() || second.ptr != end)
      shards = 0;
  if (shards < 1 || shard < 0 || shard >= shards)
    throw input_error("--shard: expected I/N, a whole number I from 0 below N, got " + in_quotes(text));
  return {shard, shards};
}

// The scenario that the points are compared with, and from which they have what no axis changes.
struct Base {
  Scenario scenario;
  std::string platform;     // as --platform names it; "": the scenario's
  std::string why_not_own;  // "" where the scenario is the user's as it is
};

void add_contents(Checksum& sum, const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const std::vector<std::byte> bytes = ReadFile::open(file).take();
    sum.add(bytes.data(), bytes.size());
  }
}

// Platforms by the name that a point gives; they are read once.
class Platforms {
 public:
  explicit Platforms(const Base& base) : base_(base) {}
  const sim::Platform& of(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = platforms_.try_emplace(name);
    if (is_new) {
      const std::string& asked = name.empty() ? base_.platform : name;
      at->second = std::make_unique<sim::Platform>(predict::read_platform_input(asked, base_.scenario));
    }
    if (!at->second) throw input_error("platform " + name + ": cannot be read");
    return *at->second;
  }
  // Returns what stands for the contents of a platform's files.
  const std::string& digest(const std::string& name) {
    const sim::Platform& platform = of(name);
    const std::lock_guard lock(mutex_);
    std::string& digest = digests_[name];
    if (!digest.empty()) return digest;
    Checksum sum;
    add_contents(sum, platform.files);
    return digest = sum.digits();
  }

 private:
  const Base& base_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<sim::Platform>> platforms_;
  std::map<std::string, std::string> digests_;
};

// A step that was built in full, verified and simulated.
struct FullStep {
  std::size_t point = 0;  // index into SearchResult::points
  predict::PredictedStep step;
};

HtmlStep html_step(const FullStep& full, bool with_timeline) {
  const predict::PredictedStep& of = full.step;
  HtmlStep step;
  step.row.mode = layout_text(of.prediction.parallel);
  step.row.ranks = of.prediction.ranks;
  step.row.predicted_ms = of.prediction.step_ms;
  step.row.predicted = of.prediction.breakdown;
  step.layout = fmt::format("micro-batches of {} GPUs", of.prediction.devices);
  for (const ExposedPart& part : of.prediction.exposed) step.communicators.push_back(part.communicator);
  if (!with_timeline) return step;
  step.row.operations = operation_times(of.schedule, of.result.programs, {&of.result.timeline, 1}, {}, {});
  step.predicted = excerpt(of.schedule, of.result.programs, of.result.timeline);
  step.memory = of.prediction.memory;
  return step;
}

// Returns where the time of steps goes: shares of each step.
Table limits_table(const std::vector<Prediction>& steps) {
  Table table({"layout", "GPUs", "step", "compute", "exposed", "most of it", "bubble", "host", "memory", "fits"});
  for (const Prediction& p : steps) {
    const auto share = [&](double ms) { return percent_text(ms / p.step_ms); };
    Coord most = Coord::dp;
    for (const Coord axis : {Coord::tp, Coord::pp, Coord::cp, Coord::ep})
      if (p.exposed_ms(axis) > p.exposed_ms(most)) most = axis;
    table.add_row({layout_text(p.parallel, p.micro_batches), std::to_string(p.devices), time_text(p.step_ms),
                   share(p.breakdown.compute), share(p.breakdown.exposed),
                   p.exposed_ms(most) > 0 ? fmt::format("{} {}", name_of(most), share(p.exposed_ms(most))) : "",
                   share(p.breakdown.bubble - p.breakdown.host), share(p.breakdown.host),
                   size_text(double(p.memory.predicted_bytes())), name_of(p.memory.fit())});
  }
  return table;
}

Table limits_table(const std::vector<FullStep>& steps) {
  std::vector<Prediction> predictions;
  for (const FullStep& full : steps) predictions.push_back(full.step.prediction);
  return limits_table(predictions);
}

// Returns a line that compares the scenario as it is with the first point: a recipe with the best layout.
std::string recipe_text(const Prediction& own, const Prediction& first, const std::string& first_name) {
  const double behind = first.throughput.tokens_per_s_per_device / own.throughput.tokens_per_s_per_device - 1;
  return fmt::format("the scenario as it is, {} on {} GPUs: {}, {}{}\n", layout_text(own.parallel, own.micro_batches),
                     own.devices, time_text(own.step_ms),
                     behind < 0 ? fmt::format("{:.1f} % ahead of the {}", -100 * behind / (1 + behind), first_name)
                                : fmt::format("{:.1f} % behind the {}{}", 100 * behind, first_name,
                                              behind < sweep::kTie ? " (tie)" : ""),
                     own.memory.fit() == Fit::fits    ? ""
                     : own.memory.fit() == Fit::tight ? "; its memory is tight"
                                                      : "; it does not fit");
}

// Returns whether the note says of a key that the sweep searches that it has no effect: such points are no ties.
bool says_idle(const std::string& note, const sweep::Space& space) {
  return std::any_of(space.axes.begin(), space.axes.end(), [&](const sweep::Axis& axis) {
    const std::string key = axis.key.substr(axis.key.find('.') + 1);
    return note.starts_with(key + " is off") || note.starts_with(key + " has no effect");
  });
}

// Returns the single changes of the fastest point, of keys that the sweep did not vary, that make it faster.
std::vector<sweep::SingleChange> further_changes(const sweep::Space& space, const sweep::Point& fastest,
                                                 const sweep::SearchCalls& calls) {
  const auto read = [&](const std::vector<std::string>& further) {
    sweep::PointSettings settings{fastest.set, fastest.platform};
    settings.set.insert(settings.set.end(), further.begin(), further.end());
    return calls.read(settings);
  };
  const auto was_varied = [&](const std::string& key) {
    return std::any_of(space.axes.begin(), space.axes.end(),
                       [&](const sweep::Axis& axis) { return axis.key == key && axis.values.size() > 1; });
  };
  std::vector<sweep::SingleChange> changes = sweep::faster_changes(
      read({}), calls.platform({fastest.set, fastest.platform}), fastest.step_ms, read, was_varied);
  constexpr std::size_t kShown = 3;
  changes.resize(std::min(kShown, changes.size()));
  return changes;
}

// Returns the options of the user's own that a command of one point needs, too; a later --set replaces an earlier one.
std::string own_options(const SweepOptions& options, const sweep::Point& point) {
  std::string text;
  if (point.platform.empty() && !options.platform.empty()) text += " --platform " + sweep::in_shell(options.platform);
  for (const std::string& set : options.set) text += " --set " + sweep::in_shell(set);
  return text;
}

// Reads the scenario as it is; or with the first values of axes, where its own, which axes replace, are refused.
Base read_base(const SweepOptions& options, const Swept& swept) {
  const auto read = [&](const std::vector<std::string>& set, const std::string& platform, const std::string& why) {
    Base base{swept.read(set, platform), platform, why};
    predict::read_platform_input(platform, base.scenario);  // it may be missing
    return base;
  };
  std::string why_not_own;
  std::exception_ptr own;
  try {
    return read({}, options.platform, "");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    own = std::current_exception();
    why_not_own = error.what();
  }
  const sweep::PointSettings first = sweep::first_values(swept.axes(), options.over);
  const std::string& platform = first.platform.empty() ? options.platform : first.platform;
  for (const std::vector<std::string>& set : {std::vector<std::string>(), first.set})
    if (!set.empty() || !first.platform.empty()) try {
        return read(set, platform, why_not_own);
      } catch (const Error&) {
      }
  std::rethrow_exception(own);
}

// Throws where an option says what every point replaces.
void require_acting(const SweepOptions& options, const sweep::Space& space) {
  const auto axis_of = [&](const std::string& key) -> const sweep::Axis* {
    for (const sweep::Axis& axis : space.axes)
      if (axis.key == key) return &axis;
    return nullptr;
  };
  for (const std::string& set : options.set) {
    const std::string key = set.substr(0, set.find('=')), value = set.substr(std::min(key.size() + 1, set.size()));
    if (const sweep::Axis* axis = axis_of(key); axis != nullptr && axis->values != std::vector{value})
      throw input_error(fmt::format("--set {}: the sweep varies this key; expected --over {}={}", key,
                                    sweep::short_name(key), value));
    if (key == sweep::kDp && axis_of(sweep::kDp) == nullptr && axis_of(sweep::kGpus) != nullptr)
      throw input_error(fmt::format(
          "--set {}: it follows from the number of GPUs, which the sweep varies; expected --over dp={}", key, value));
  }
  if (const sweep::Axis* axis = axis_of(sweep::kPlatform);
      axis != nullptr && options.names_platform &&
      !std::count(axis->values.begin(), axis->values.end(), options.platform))
    throw input_error(
        fmt::format("--platform: expected one of the values of {}, got {}", axis->place, in_quotes(options.platform)));
}

}  // namespace

void search_layouts(SweepOptions& options, const Swept& swept) {
  const auto [shard, shards] = shard_of(options.shard);
  if (options.resume && options.out.empty()) throw input_error("--resume: expected --out, the file to go on with");
  const Base base = read_base(options, swept);
  const Scenario& scenario = base.scenario;
  options.files.claim_outputs(scenario);
  Platforms platforms(base);
  const sim::Platform& platform = platforms.of("");
  // A sweep needs no key of [run], but a wrong one is an error here, too.
  if (!swept.text_of) predict::require_run_keys(options.scenario, options.set, platform);
  const sweep::Space space = sweep::read_space(swept.axes(), options.over, scenario, platform);
  require_acting(options, space);
  for (const sweep::Axis& axis : space.axes)
    if (axis.key == "platform")
      for (const std::string& name : axis.values) platforms.of(name);
  sweep::Journal journal(options.out.empty() ? "" : options.out.path(), options.resume);
  if (journal.cut() > 0) std::cout << fmt::format("note: {} lines had been cut short by a kill\n", journal.cut());
  keep_within_free_memory();
  watch_interrupts();

  const std::int64_t combinations = space.points();
  Progress progress;
  const auto begin = std::chrono::steady_clock::now();
  std::int64_t simulated = 0, points = 0;
  TimeLeft time_left;
  bool tries = false;
  constexpr std::chrono::milliseconds kBetweenLines{50};
  auto shown = begin;
  sweep::SearchCalls calls;
  calls.read = [&](const sweep::PointSettings& settings) {
    return swept.read(settings.set, settings.platform.empty() ? base.platform : settings.platform);
  };
  calls.platform = [&](const sweep::PointSettings& settings) -> const sim::Platform& {
    return platforms.of(settings.platform);
  };
  Checksum of_all;
  of_all.add(swept.text);
  // Files that the text names may have changed.
  add_contents(of_all, scenario.framework.files);
  of_all.add(model_json(scenario.model).dump());
  for (const std::string& set : options.set) of_all.add("\n" + set);
  calls.key = [&](const sweep::PointSettings& settings) {
    Checksum sum = of_all;
    sum.add("\n" + (settings.platform.empty() ? platform.name : settings.platform));
    sum.add(platforms.digest(settings.platform));
    for (const std::string& set : settings.set) sum.add("\n" + set);
    return sum.digits();
  };
  calls.known = [&](const std::string& key) { return journal.find(key); };
  calls.report = [&](const sweep::Point& point, bool is_new, const sweep::SearchProgress& at) {
    if (is_new) journal.add(point);
    ++points;
    simulated += point.status == sweep::Status::predicted;
    if (const bool are_tried = at.to_try > 0; are_tried != tries) {
      tries = are_tried;
      time_left.restart();
    }
    const auto now = std::chrono::steady_clock::now();
    if (now - shown < kBetweenLines) return;
    shown = now;
    progress.show(tries ? fmt::format("{} simulated; {} of {} points that may be among the best tried{}", simulated,
                                      at.tried, std::max(at.tried, at.to_try), time_left.after(at.tried, at.to_try))
                        : fmt::format("{} points, {} of {} combinations{}", points, at.decided, combinations,
                                      time_left.after(at.decided, combinations)));
  };
  calls.stop = interrupted;
  const sweep::SearchResult result =
      sweep::search(space, scenario, {static_cast<std::size_t>(options.best), options.all, shard, shards}, calls);
  progress.clear();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::cout << sweep::summary_text(result, combinations)
            << fmt::format("{:.1f} s; {}\n", seconds, sweep::not_searched(space, scenario));
  if (!result.complete)
    std::cout << "interrupted: these are the points so far"
              << (options.out.empty() ? "" : "; --resume goes on with the others") << "\n";

  std::vector<std::size_t> order = sweep::fastest(result.points);
  const std::vector<std::size_t> front = sweep::pareto_front(result.points);
  if (order.size() > static_cast<std::size_t>(options.best)) order.resize(static_cast<std::size_t>(options.best));
  std::vector<FullStep> full;
  std::vector<std::string> notes;
  std::map<std::string, int> idle;  // what points say of searched keys that have no effect there, and how many points
  constexpr double kMostInFull = 1e7;  // operations: some ten seconds
  for (const std::size_t i : order) {
    if (interrupted()) break;
    progress.show(fmt::format("the best in full: {} of {}", full.size() + 1, order.size()));
    const sweep::Point& point = result.points[i];
    const sweep::PointSettings settings{point.set, point.platform};
    const Scenario best = calls.read(settings);
    if (step_size_of(best).operations > kMostInFull) {
      full.push_back({i, {}});
      full.back().step.prediction = predict::predict_times(predict::QuickStep(best), calls.platform(settings));
      notes.push_back(
          fmt::format("{}: the whole step has more than {:.0f} million operations, so it was not simulated "
                      "in full",
                      layout_text(full.back().step.prediction.parallel), kMostInFull * 1e-6));
    } else {
      full.push_back({i, predict::predict_step(best, calls.platform(settings))});
    }
    const Prediction& p = full.back().step.prediction;
    if (p.step_ms != point.step_ms)
      notes.push_back(fmt::format("{}: the whole step takes {} and not {}", layout_text(p.parallel),
                                  time_text(p.step_ms), time_text(point.step_ms)));
    if (p.memory.fit() == Fit::does_not_fit)
      notes.push_back(fmt::format("{} does not fit as a whole", layout_text(p.parallel)));
    for (const std::string& note : p.notes)
      if (says_idle(note, space)) ++idle[note];
  }
  for (const auto& [note, points_with] : idle)
    notes.push_back(fmt::format("{} ({} of the {} best)", note, points_with, full.size()));
  progress.clear();
  if (order.empty() && shards > 1) std::cout << "\n" << sweep::why_none(result) << "\n";
  nlohmann::json json = {{"scenario", scenario.name},         {"platform", platform.name},
                         {"combinations", combinations},      {"indivisible", result.indivisible},
                         {"complete", result.complete},       {"seconds", seconds},
                         {"ranked_by", sweep::kRankedBy},     {"fastest", nullptr},
                         {"points", nlohmann::json::array()}, {"best", nlohmann::json::array()},
                         {"pareto", nlohmann::json::array()}, {"own", nullptr},
                         {"changes", nlohmann::json::array()}};
  if (!options.json.empty())
    for (const sweep::Point& point : result.points) json["points"].push_back(sweep::json_of(point));
  for (const FullStep& one : full) json["best"].push_back(prediction_json(one.step.prediction));
  for (const std::size_t i : front) json["pareto"].push_back(result.points[i].key);

  std::optional<sweep::Ranking> ranking;
  std::string first_name, ranked;
  if (!order.empty()) {
    ranking = sweep::ranking_of(result.points, sweep::fastest(result.points));
    first_name = ranking->first_name();
    ranked = sweep::ranking_text(*ranking, result.points);
    json["fastest"] = result.points[ranking->fastest].key;
  }
  const bool has_several = ranking && ranking->has_several_gpus;
  const char *more = has_several ? "more efficient" : "faster", *less = has_several ? "less efficient" : "slower";
  const Table best = order.empty() ? Table({}) : sweep::points_table(space, result, order);
  const std::vector<std::size_t> by_gpus = sweep::best_by_gpus(result.points);
  const Table scaling = by_gpus.empty() ? Table({}) : sweep::points_table(space, result, by_gpus);
  const auto times_of = [&](const Scenario& of, const sim::Platform& on) {
    return predict::predict_times(predict::QuickStep(of), on);
  };
  std::vector<Prediction> scales;
  for (const std::size_t i : by_gpus) {
    if (interrupted()) break;
    const sweep::PointSettings settings{result.points[i].set, result.points[i].platform};
    scales.push_back(times_of(calls.read(settings), calls.platform(settings)));
  }
  const Table scaling_limits = limits_table(scales);
  std::string recipe;
  std::optional<Prediction> own;
  if (!swept.text_of && !full.empty()) try {
      if (!base.why_not_own.empty()) throw input_error(base.why_not_own);
      own = times_of(scenario, platform);
      recipe = recipe_text(*own, full.front().step.prediction, first_name);
      json["own"] = prediction_json(*own);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input) throw;
      recipe = std::string("the scenario as it is cannot be predicted: ") + error.what() + "\n";
    }
  std::vector<sweep::SingleChange> changes;
  if (!order.empty() && !interrupted()) {
    progress.show("single changes of the " + first_name);
    changes = further_changes(space, result.points[order.front()], calls);
    progress.clear();
    json["changes"] = sweep::changes_json(changes, result.points[order.front()].step_ms);
  }
  const Table gains = changes.empty() ? Table({}) : sweep::changes_table(changes, result.points[order.front()].step_ms);
  const std::string most_gains = "of the keys that were not searched, these gain most on the " + first_name;
  const Table pareto = front.empty() ? Table({}) : sweep::points_table(space, result, front);
  // A point that is slower by its bound may need less memory than all that were simulated.
  const bool leaves_out = std::any_of(result.points.begin(), result.points.end(),
                                      [](const sweep::Point& p) { return p.status == sweep::Status::slower; });
  const std::string front_name =
      leaves_out ? "Pareto front of the points that were simulated; --all simulates the others too" : "Pareto front";
  if (!order.empty()) {
    std::cout << "\n" << ranked << "\n\n" << best.text() << "\n" << limits_table(full).text();
    if (front.size() > 1) std::cout << fmt::format("\nless memory, {} ({}):\n", less, front_name) << pareto.text();
    if (!recipe.empty()) std::cout << "\n" << recipe;
    if (gains.rows() > 0) std::cout << "\n" << most_gains << ":\n" << gains.text();
    if (scaling.rows() > 0)
      std::cout << "\nby the number of GPUs:\n" << scaling.text() << "\n" << scaling_limits.text();
    const sweep::Point& winner = result.points[order.front()];
    if (swept.text_of && options.winner.empty())
      std::cout << "\n-o FILE writes the " << first_name << " as a scenario\n";
    else if (swept.text_of)
      std::cout << "\nthe " << first_name << ": " << swept.command << "\n";
    else
      std::cout << "\nthe " << first_name << ": " << swept.command << own_options(options, winner) << " "
                << sweep::set_options(winner) << "\n";
    if (const sweep::Point& fastest = result.points[ranking->fastest]; ranking->fastest != ranking->first)
      std::cout << "the fastest, on " << fastest.gpus
                << " GPUs: " << (swept.text_of ? std::string() : swept.command + own_options(options, fastest) + " ")
                << sweep::set_options(fastest) << "\n";
    try {
      const Scenario won = calls.read({winner.set, winner.platform});
      std::cout << "\n" << to_megatron(won).text;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input) throw;
      notes.push_back(std::string("no flags of Megatron-LM: ") + error.what());
    }
  }
  for (const std::string& note : notes) std::cout << "note: " << note << "\n";
  write_json(options.json, json);
  if (!options.csv.empty()) write_text(options.csv, sweep::csv_of(space, result));
  if (!options.html.empty()) {
    HtmlReport report;
    report.title = fmt::format("{} on {}: sweep", scenario.name, platform.name);
    report.about = {sweep::summary_text(result, combinations), sweep::not_searched(space, scenario)};
    if (!ranked.empty()) report.about.push_back(ranked);
    report.summary = best;
    for (const std::string& note : notes) report.remarks.push_back("note: " + note);
    if (auto plot = sweep::pareto_plot(space, result, front, own ? &*own : nullptr)) report.plots.push_back(*plot);
    for (const Plot& plot : sweep::scaling_plots(space, result, by_gpus, scales)) report.plots.push_back(plot);
    report.tables.push_back(
        {"limits", "Where the time goes", "The best points, simulated in full.", limits_table(full)});
    if (front.size() > 1)
      report.tables.push_back(
          {"pareto", "The " + front_name, fmt::format("No other point is {} with less memory.", more), pareto});
    if (gains.rows() > 0)
      report.tables.push_back({"changes", "One further change", "Simulated: " + most_gains + ".", gains});
    if (!recipe.empty()) report.remarks.push_back(recipe);
    if (scaling.rows() > 0) {
      report.tables.push_back({"scaling", "By the number of GPUs", "The best point of each number.", scaling});
      report.tables.push_back({"scaling-limits", "What stays hidden on more GPUs",
                               "Where the time of the best point of each number of GPUs goes.", scaling_limits});
    }
    for (const FullStep& one : full) {
      const bool is_in_full = !one.step.result.timeline.rows.empty();
      report.steps.push_back(html_step(one, is_in_full && &one == &full.front()));
    }
    report.device_bytes = platform.memory_bytes;
    write_text(options.html, render_html(report));
  }
  if (interrupted()) throw runtime_failure("interrupted; shown is what was finished");
  // A part of a sweep may have no point that fits.
  if (order.empty() && shards == 1) {
    const bool is_wrong = std::all_of(result.points.begin(), result.points.end(),
                                      [](const sweep::Point& point) { return point.status == sweep::Status::refused; });
    throw is_wrong ? input_error(sweep::why_none(result)) : runtime_failure(sweep::why_none(result));
  }
  if (!order.empty() && swept.text_of) {
    const sweep::Point& winner = result.points[order.front()];
    write_text(options.winner, swept.text_of(winner.set, winner.platform));
  }
}

void add_search_options(CLI::App& command, SweepOptions& options) {
  command
      .add_option(
          "--over", options.over,
          "an axis: --over tp=2,4,8 or KEY=legal; gpus and platform are keys too; layout=legal and overlap=legal "
          "stand for several; short: tp pp vp cp ep etp dp mbs recompute sharding schedule (repeatable)")
      ->allow_extra_args(false);
  options.files.add_output(command, "--out", options.out, "append each point to this file, one line of JSON");
  command.add_flag("--resume", options.resume, "go on with the file of --out: its points are not computed again");
  command.add_option("--shard", options.shard, "I/N: take the I-th of N parts, for N processes (from 0)");
  command.add_flag("--all", options.all, "simulate every point that fits, not only those that may be among the best");
  command.add_option("--best", options.best, "points that are simulated in full")->check(CLI::Range(1, 1000));
  options.files.add_output(command, "--csv", options.csv, "write every point as a row of this file");
  add_json_option(command, options.files, options.json);
  add_html_option(command, options);
}

void add_sweep(CLI::App& app) {
  auto options = std::make_shared<SweepOptions>();
  CLI::App* command = app.add_subcommand("sweep", "search layouts and settings: the best, and what limits them");
  add_scenario_options(*command, *options);
  add_platform_option(*command, *options);
  add_search_options(*command, *options);
  command->callback([options] {
    Swept swept;
    swept.text = contents_of(options->scenario);
    const predict::ScenarioInput input(options->scenario);
    swept.read = [&](const std::vector<std::string>& set, const std::string& platform) {
      std::vector<std::string> all = options->set;
      all.insert(all.end(), set.begin(), set.end());
      return input.read(std::move(all), platform);
    };
    swept.axes = [&] { return read_toml(options->scenario, options->set).section("sweep"); };
    swept.command = "stretto simulate " + sweep::in_shell(options->scenario);
    options->names_platform = !options->platform.empty();
    search_layouts(*options, swept);
  });
}

}  // namespace stretto::cli
