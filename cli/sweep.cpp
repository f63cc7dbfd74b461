#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/checksum.hpp"
#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "base/memory.hpp"
#include "base/time_left.hpp"
#include "cli/commands.hpp"
#include "cli/progress.hpp"
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
#include "sweep/search.hpp"
#include "sweep/tables.hpp"

namespace stretto::cli {
namespace {

struct SweepOptions : CommonOptions {
  std::vector<std::string> over;
  std::string shard = "0/1";
  bool resume = false, all = false, names_platform = false;
  std::int64_t best = 10;
  Output out, csv;
  // `plan` alone
  std::string model, profile;
  std::int64_t gpus = 0, global_batch = 0, sequence = 0;
  Output winner;
};

// The scenario that a sweep varies: a file, or the text that `plan` has made.
struct Swept {
  std::string text;  // contents of the scenario
  std::function<Scenario(const std::vector<std::string>& set, const std::string& platform)> read;
  std::function<TomlTable()> axes;
  std::string command;  // the command of one point, without its settings
  // Returns a scenario with these settings on the platform (""; that of the options); null where the scenario is a file
  // of the user's.
  std::function<std::string(const std::vector<std::string>& set, const std::string& platform)> text_of = nullptr;
};

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

 private:
  const Base& base_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<sim::Platform>> platforms_;
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
  step.memory = of.prediction.memory.roles;
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
                   size_text(double(p.memory.predicted_bytes())), p.memory.fits() ? "yes" : "no"});
  }
  return table;
}

Table limits_table(const std::vector<FullStep>& steps) {
  std::vector<Prediction> predictions;
  for (const FullStep& full : steps) predictions.push_back(full.step.prediction);
  return limits_table(predictions);
}

// Returns a line that compares the scenario as it is with the fastest point: a recipe with the best layout.
std::string recipe_text(const Prediction& own, const Prediction& fastest) {
  const double behind = fastest.throughput.tokens_per_s_per_device / own.throughput.tokens_per_s_per_device - 1;
  return fmt::format(
      "the scenario as it is, {} on {} GPUs: {}, {}{}\n", layout_text(own.parallel, own.micro_batches), own.devices,
      time_text(own.step_ms),
      behind < 0 ? fmt::format("{:.1f} % ahead of the fastest", -100 * behind / (1 + behind))
                 : fmt::format("{:.1f} % behind the fastest{}", 100 * behind, behind < sweep::kTie ? " (tie)" : ""),
      own.memory.fits() ? "" : "; it does not fit");
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

void sweep_command(SweepOptions& options, const Swept& swept) {
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
  of_all.add(scenario.framework.digest);
  of_all.add(model_json(scenario.model).dump());
  for (const std::string& set : options.set) of_all.add("\n" + set);
  calls.key = [&](const sweep::PointSettings& settings) {
    Checksum sum = of_all;
    sum.add("\n" + (settings.platform.empty() ? platform.name : settings.platform));
    sum.add(platforms.of(settings.platform).digest);
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
    if (!p.memory.fits()) notes.push_back(fmt::format("{} does not fit as a whole", layout_text(p.parallel)));
  }
  progress.clear();
  if (order.empty() && shards > 1) std::cout << "\n" << sweep::why_none(result) << "\n";
  nlohmann::json json = {{"scenario", scenario.name},         {"platform", platform.name},
                         {"combinations", combinations},      {"indivisible", result.indivisible},
                         {"complete", result.complete},       {"seconds", seconds},
                         {"points", nlohmann::json::array()}, {"best", nlohmann::json::array()},
                         {"pareto", nlohmann::json::array()}, {"own", nullptr},
                         {"changes", nlohmann::json::array()}};
  if (!options.json.empty())
    for (const sweep::Point& point : result.points) json["points"].push_back(sweep::json_of(point));
  for (const FullStep& one : full) json["best"].push_back(prediction_json(one.step.prediction));
  for (const std::size_t i : front) json["pareto"].push_back(result.points[i].key);

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
      recipe = recipe_text(*own, full.front().step.prediction);
      json["own"] = prediction_json(*own);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input) throw;
      recipe = std::string("the scenario as it is cannot be predicted: ") + error.what() + "\n";
    }
  std::vector<sweep::SingleChange> changes;
  if (!order.empty() && !interrupted()) {
    progress.show("single changes of the fastest");
    changes = further_changes(space, result.points[order.front()], calls);
    progress.clear();
    json["changes"] = sweep::changes_json(changes, result.points[order.front()].step_ms);
  }
  const Table gains = changes.empty() ? Table({}) : sweep::changes_table(changes, result.points[order.front()].step_ms);
  constexpr const char* kGains = "of the keys that were not searched, these gain most on the fastest";
  const Table pareto = front.empty() ? Table({}) : sweep::points_table(space, result, front);
  // A point that is slower by its bound may need less memory than all that were simulated.
  const bool leaves_out = std::any_of(result.points.begin(), result.points.end(),
                                      [](const sweep::Point& p) { return p.status == sweep::Status::slower; });
  const std::string front_name =
      leaves_out ? "Pareto front of the points that were simulated; --all simulates the others too" : "Pareto front";
  if (!order.empty()) {
    std::cout << "\n" << best.text() << "\n" << limits_table(full).text();
    if (front.size() > 1) std::cout << fmt::format("\nless memory, slower ({}):\n", front_name) << pareto.text();
    if (!recipe.empty()) std::cout << "\n" << recipe;
    if (gains.rows() > 0) std::cout << "\n" << kGains << ":\n" << gains.text();
    if (scaling.rows() > 0)
      std::cout << "\nby the number of GPUs:\n" << scaling.text() << "\n" << scaling_limits.text();
    const sweep::Point& winner = result.points[order.front()];
    if (swept.text_of && options.winner.empty())
      std::cout << "\n-o FILE writes the fastest as a scenario\n";
    else if (swept.text_of)
      std::cout << "\nthe fastest: " << swept.command << "\n";
    else
      std::cout << "\nthe fastest: " << swept.command << own_options(options, winner) << " "
                << sweep::set_options(winner) << "\n";
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
    report.summary = best;
    for (const std::string& note : notes) report.remarks.push_back("note: " + note);
    if (auto plot = sweep::pareto_plot(space, result, front, own ? &*own : nullptr)) report.plots.push_back(*plot);
    for (const Plot& plot : sweep::scaling_plots(space, result, by_gpus, scales)) report.plots.push_back(plot);
    report.tables.push_back(
        {"limits", "Where the time goes", "The best points, simulated in full.", limits_table(full)});
    if (front.size() > 1)
      report.tables.push_back({"pareto", "The " + front_name, "No other point is faster with less memory.", pareto});
    if (gains.rows() > 0)
      report.tables.push_back({"changes", "One further change", std::string("Simulated: ") + kGains + ".", gains});
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

constexpr const char* kDenseProfile = "nemo-dgxc";  // of `plan`, where no other is named

// Returns the scenario of `plan` with settings, "section.key=value" each; a later one replaces an earlier one.
std::string planned_text(const SweepOptions& options, bool is_preset, const std::vector<std::string>& set,
                         const std::string& platform) {
  std::map<std::string, std::map<std::string, std::string>> sections;  // [section][key] value in TOML
  std::string name = "plan";
  auto& model = sections["model"];
  if (is_preset)
    model["preset"] = options.model;
  else
    model["hf_config"] = std::filesystem::absolute(options.model).string();
  if (options.sequence > 0) model["seq_length"] = std::to_string(options.sequence);
  for (const std::string& one : set) {
    const std::size_t dot = one.find('.'), equals = one.find('=');
    if (dot < equals) sections[one.substr(0, dot)][one.substr(dot + 1, equals - dot - 1)] = one.substr(equals + 1);
    if (one.starts_with("name=")) name = one.substr(equals + 1);
  }
  // The scenario may be written to another folder.
  const auto anywhere = [](const std::string& file) {
    return is_data_name(file) ? file : std::filesystem::absolute(file).string();
  };
  std::string text = fmt::format("name = \"{}\"\nplatform = \"{}\"\nprofile = \"{}\"\n", name, anywhere(platform),
                                 anywhere(options.profile));
  for (const auto& [section, keys] : sections) {
    text += fmt::format("\n[{}]\n", section);
    for (const auto& [key, value] : keys) {
      const bool is_bare = value == "true" || value == "false" ||
                           value.find_first_not_of("0123456789.-+eE") == std::string::npos || value.starts_with('[') ||
                           value.starts_with('"');
      text += is_bare ? fmt::format("{} = {}\n", key, value) : fmt::format("{} = \"{}\"\n", key, value);
    }
  }
  return text;
}

// Throws where an axis or an override says otherwise than an option of `plan`.
void require_no_contradiction(const SweepOptions& options) {
  const auto has_value = [](const std::string& values, std::int64_t wanted) {
    const std::string all = "," + values + ",";
    return values == "legal" || all.find("," + std::to_string(wanted) + ",") != std::string::npos;
  };
  for (const auto& [option, key, number] :
       {std::tuple("--gpus", "gpus", options.gpus),
        std::tuple("--global-batch", "training.global_batch_size", options.global_batch),
        std::tuple("--seq-length", "model.seq_length", options.sequence)}) {
    if (number == 0) continue;
    const std::string begin = std::string(key) + "=", alone = begin.substr(begin.find('.') + 1);
    for (const std::string& over : options.over)
      for (const std::string& name : {begin, alone})
        if (over.starts_with(name) && !has_value(over.substr(name.size()), number))
          throw input_error(fmt::format("--over {}: expected {} among the values, which {} says, got {}",
                                        name.substr(0, name.size() - 1), number, option,
                                        in_quotes(over.substr(name.size()))));
    for (const std::string& set : options.set)
      if (set.starts_with(begin) && set != begin + std::to_string(number))
        throw input_error(fmt::format("--set {}: expected {}, which {} says, got {}", key, number, option,
                                      in_quotes(set.substr(begin.size()))));
  }
}

// Throws where an override says what `plan` does not read as a key of its scenario.
void require_searched(const std::vector<std::string>& set) {
  for (const std::string& one : set) {
    const std::string key = one.substr(0, one.find('='));
    if (key.starts_with("sweep."))
      throw input_error(fmt::format("--set {}: expected --over {} in its place", key, key.substr(6)));
    if (key == "model.preset" || key == "model.hf_config")
      throw input_error(fmt::format("--set {}: the model is MODEL, which plan is given", key));
    if (key == "platform" || key == "profile")
      throw input_error(fmt::format("--set {}: expected --{} in its place", key, key));
    if (key.starts_with("run."))
      throw input_error(
          fmt::format("--set {}: plan compares steps; simulate the scenario that -o writes for a run", key));
  }
}

void plan_command(SweepOptions& options) {
  const std::vector<std::string> presets = preset_names();
  const bool is_preset = std::find(presets.begin(), presets.end(), options.model) != presets.end();
  if (!is_preset && !std::filesystem::exists(options.model)) {
    const std::string nearest = nearest_spelling(options.model, presets);
    throw input_error("MODEL: expected a preset or a config.json of Hugging Face's, got " + in_quotes(options.model) +
                      (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
  }
  // Before the sweep gives a layout, the scenario has as many replicas as divide GPUs and batch.
  std::vector<std::string> set = {
      fmt::format("parallel.data_parallel_size={}", std::gcd(options.gpus, options.global_batch)),
      fmt::format("training.global_batch_size={}", options.global_batch)};
  require_no_contradiction(options);
  require_searched(options.set);
  Swept swept;
  swept.text_of = [&](const std::vector<std::string>& further, const std::string& platform) {
    std::vector<std::string> all = set;
    all.insert(all.end(), options.set.begin(), options.set.end());
    all.insert(all.end(), further.begin(), further.end());
    return planned_text(options, is_preset, all, platform.empty() ? options.platform : platform);
  };
  // Experts have a framework of their own, which cuts none of them.
  const Transformer model =
      parse_scenario(planned_text(options, is_preset, set, options.platform), "plan", options.set).model;
  if (model.experts.any()) {
    if (options.profile == kDenseProfile) options.profile = "megatron-bridge-moe";
    set.insert(set.begin(), "parallel.expert_tensor_parallel_size=1");
  }
  swept.text = swept.text_of({}, "");
  // Keys of the user's are read as overrides, because errors name their place.
  const ScenarioReader reader =
      ScenarioReader::of_text(planned_text(options, is_preset, set, options.platform), "plan");
  swept.read = [&](const std::vector<std::string>& further, const std::string& platform) {
    std::vector<std::string> all = options.set;
    all.insert(all.end(), further.begin(), further.end());
    all.push_back("platform=" + platform);
    return reader.read(all);
  };
  swept.axes = [&] { return parse_toml("", "plan").section("sweep"); };
  if (!options.winner.empty()) swept.command = "stretto simulate " + sweep::in_shell(options.winner.name());
  if (std::none_of(options.over.begin(), options.over.end(),
                   [](const std::string& o) { return o.rfind("gpus=", 0) == 0; }))
    options.over.push_back("gpus=" + std::to_string(options.gpus));
  if (std::none_of(options.over.begin(), options.over.end(), sweep::says_layouts)) {
    options.over.emplace_back("layout=legal");
    if (model.experts.any())
      options.over.push_back(fmt::format("etp={}", parse_scenario(swept.text, "plan").parallel.expert_tp()));
  }
  sweep_command(options, swept);
}

}  // namespace

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
    sweep_command(*options, swept);
  });
}

void add_plan(CLI::App& app) {
  auto options = std::make_shared<SweepOptions>();
  options->platform = "h100-sxm";
  options->profile = kDenseProfile;
  CLI::App* command = app.add_subcommand("plan", "the best layout of a model on so many GPUs");
  command->add_option("MODEL", options->model, "a preset (`stretto show --presets`), or a config.json")->required();
  command->add_option("--gpus", options->gpus, "number of GPUs")->required()->check(CLI::Range(1, 1 << 24));
  command->add_option("--global-batch", options->global_batch, "sequences of a step")
      ->required()
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--seq-length", options->sequence, "tokens of a sequence; default: the model's")
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--profile", options->profile,
                      "the framework (scenarios/profiles); default: nemo-dgxc, with experts megatron-bridge-moe");
  command->add_option("--set", options->set, "override a key (repeatable)")->allow_extra_args(false);
  options->files.add_input(*command, "--platform", options->platform, "platform (docs/platform.md); default: h100-sxm");
  add_search_options(*command, *options);
  options->files.add_output(*command, "-o,--output", options->winner, "write the fastest as a scenario");
  command->callback([options, command] {
    options->names_platform = command->count("--platform") > 0;
    plan_command(*options);
  });
}

}  // namespace stretto::cli
