#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "ask/sweep_text.hpp"
#include "base/error.hpp"
#include "base/memory.hpp"
#include "base/shell.hpp"
#include "base/time_left.hpp"
#include "cli/progress.hpp"
#include "cli/search_layouts.hpp"
#include "cli/terminal.hpp"
#include "sweep/journal.hpp"
#include "sweep/tables.hpp"

namespace stretto::cli {
namespace {

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

// Shows how far the search is.
class SearchLine {
 public:
  explicit SearchLine(std::int64_t combinations) : combinations_(combinations) {}
  void show(const std::string& line) { progress_.show(line); }
  void clear() { progress_.clear(); }
  void after(const sweep::Point& point, const sweep::SearchProgress& at) {
    ++points_;
    simulated_ += point.status == sweep::Status::predicted;
    if (const bool are_tried = at.to_try > 0; are_tried != tries_) {
      tries_ = are_tried;
      time_left_.restart();
    }
    constexpr std::chrono::milliseconds kBetweenLines{50};
    const auto now = std::chrono::steady_clock::now();
    if (now - shown_ < kBetweenLines) return;
    shown_ = now;
    show(tries_ ? fmt::format("{} simulated; {} of {} points that may be among the best tried{}", simulated_, at.tried,
                              std::max(at.tried, at.to_try), time_left_.after(at.tried, at.to_try))
                : fmt::format("{} points, {} of {} combinations{}", points_, at.decided, combinations_,
                              time_left_.after(at.decided, combinations_)));
  }

 private:
  const std::int64_t combinations_;
  Progress progress_;
  TimeLeft time_left_;
  std::int64_t points_ = 0, simulated_ = 0;
  bool tries_ = false;
  std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
};

// Returns "stretto simulate llama3-70b --gpus 64": the scenario in the words of the command line.
std::string command_as_asked(const SweepOptions& options) {
  std::string text = "stretto simulate " + in_shell(options.given.scenario);
  for (const std::string& set : options.given.set)
    for (const auto& [key, option] :
         {std::pair("gpus=", "--gpus"), std::pair("profile=", "--profile"), std::pair("low_precision=", "--precision")})
      if (set.starts_with(key))
        text += fmt::format(" {} {}", option, in_shell(set.substr(std::string_view(key).size())));
  return text;
}

}  // namespace

void search_layouts(const SweepOptions& options, ask::Swept swept) {
  const auto [shard, shards] = shard_of(options.shard);
  if (options.resume && options.out.empty()) throw input_error("--resume: expected --out, the file to go on with");
  ask::SweptSpace space({{options.scenario, options.set, options.platform},
                         options.over,
                         static_cast<std::size_t>(options.best),
                         options.all,
                         options.names_platform,
                         shard,
                         shards},
                        std::move(swept));
  options.files.claim_outputs(space.scenario());
  sweep::Journal journal(options.out.empty() ? "" : options.out.path(), options.resume);
  if (journal.cut() > 0) std::cout << fmt::format("note: {} lines had been cut short by a kill\n", journal.cut());
  keep_within_free_memory();
  watch_interrupts();
  SearchLine line(space.space().points());
  ask::SweepCalls calls;
  calls.known = [&](const std::string& key) { return journal.find(key); };
  calls.report = [&](const sweep::Point& point, bool is_new, const sweep::SearchProgress& at) {
    if (is_new) journal.add(point);
    line.after(point, at);
  };
  calls.progress = [&](const std::string& text) { line.show(text); };
  calls.stop = interrupted;
  const ask::SweepAnswer answer = ask::sweep(space, calls);
  line.clear();
  const Ink ink = ink_of_output(options.color);
  print_screen(options.assumed + text_of(answer, space, {!options.out.empty(), options.verbose, options.megatron, ink}),
               ink);
  if (!options.json.empty()) write_json(options.json, json_of(answer));
  if (!options.csv.empty()) write_text(options.csv, sweep::csv_of(space.space(), answer.result));
  if (!options.html.empty()) write_text(options.html, render_html(page_of(answer, space)));
  if (answer.was_stopped) throw runtime_failure("interrupted; shown is what was finished");
  require_one(answer, space.request);
  if (!answer.order.empty() && space.swept.text_of) {
    const sweep::Point& winner = answer.result.points[answer.order.front()];
    write_text(options.winner, space.swept.text_of(winner.set, winner.platform));
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
  command.add_flag("--verbose", options.verbose,
                   "also: why layouts are not possible, where the time of the best goes, all of the front");
  command.add_flag("--megatron", options.megatron, "also: the best as flags of Megatron-LM");
  add_color_option(command, options.color);
  options.files.add_output(command, "--csv", options.csv, "write every point as a row of this file");
  add_json_option(command, options.files, options.json);
  add_html_option(command, options);
}

void add_sweep(CLI::App& app) {
  auto options = std::make_shared<SweepOptions>();
  CLI::App* command = app.add_subcommand("sweep", "search layouts and settings: the best, and what limits them");
  add_scenario_options(*command, *options);
  add_question_options(*command, *options);
  add_platform_option(*command, *options);
  add_search_options(*command, *options);
  command->callback([options] {
    options->names_platform = !options->platform.empty();
    ask::Swept swept = ask::swept_of(*options);
    swept.command = command_as_asked(*options);
    search_layouts(*options, std::move(swept));
  });
}

}  // namespace stretto::cli
