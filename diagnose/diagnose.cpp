#include "diagnose/diagnose.hpp"

#include <fmt/format.h>

#include <vector>

#include "base/charconv.hpp"
#include "base/error.hpp"
#include "base/gpu_name.hpp"
#include "base/toml.hpp"

namespace stretto::diagnose {
namespace {

// Returns the section that is asked for. Sections are large, and only their titles are looked at.
trace::Section chosen(std::vector<trace::Section> sections, const std::string& asked, const std::string& file) {
  const auto places_of = [&](const auto& is_wanted) {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < sections.size(); ++i)
      if (is_wanted(sections[i].title)) places.push_back(i);
    return places;
  };
  std::vector<std::size_t> wanted = places_of([&](const std::string& title) {
    return asked.empty() ? title.starts_with("measured") : title.find(asked) != std::string::npos;
  });
  if (wanted.empty() && asked.empty()) wanted = places_of([](const std::string&) { return true; });  // predictions
  if (wanted.size() == 1) return std::move(sections[wanted.front()]);
  std::string titles;
  if (wanted.empty()) wanted = places_of([](const std::string&) { return true; });
  for (const std::size_t place : wanted) titles += (titles.empty() ? "" : ", ") + in_quotes(sections[place].title);
  throw input_error(fmt::format("{}: expected --section TEXT, a part of one title of {}, got {}", file, titles,
                                asked.empty() ? "none" : in_quotes(asked)));
}

}  // namespace

Traces read_traces(const std::vector<std::string>& files, std::int64_t rank, const std::string& section) {
  Traces traces;
  for (const std::string& file : files) {
    trace::TraceFile read = trace::read_trace(file);
    if (&file != &files.front() && read.origin != traces.origin)
      throw input_error(fmt::format("{}: is of {}, and {} of {}; expected traces of one profiler", file,
                                    name_of(read.origin), files.front(), name_of(traces.origin)));
    traces.origin = read.origin;
    if (read.origin == trace::Origin::stretto && files.size() > 1)
      throw input_error(file + ": has all ranks of a run; expected one such file");
    trace::Section of = read.origin == trace::Origin::stretto ? chosen(std::move(read.sections), section, file)
                                                              : std::move(read.sections.front());
    traces.section.title = of.title;
    for (trace::RankTrace& one : of.ranks) {
      if (one.says_rank && rank >= 0 && files.size() == 1 && of.ranks.size() == 1 && one.rank != rank)
        throw input_error(fmt::format("--rank: expected {}, the rank that {} says, got {}", one.rank, file, rank));
      if (!one.says_rank && rank >= 0 && files.size() == 1 && of.ranks.size() == 1) {
        one.rank = rank;
        one.says_rank = true;
      }
      traces.section.ranks.push_back(std::move(one));
    }
  }
  if (rank >= 0 && traces.section.ranks.size() > 1)
    throw input_error(
        fmt::format("--rank: expected none with traces of {} ranks, got {}", traces.section.ranks.size(), rank));
  return traces;
}

Window parse_window(const std::string& text) {
  Window window;
  const char* const end = text.data() + text.size();
  const auto [colon, problem] = from_chars(text.data(), end, window.begin_ms);
  if (problem == std::errc() && colon != end && *colon == ':')
    if (const auto [last, other] = from_chars(colon + 1, end, window.end_ms);
        other == std::errc() && last == end && window.begin_ms >= 0 && window.end_ms > window.begin_ms &&
        window.end_ms < 1e9)
      return window;
  throw input_error("--window: expected BEGIN:END in milliseconds from the first kernel on, as 120:145.5, got " +
                    in_quotes(text));
}

void keep_window(Traces& traces, const Window& window) {
  constexpr double kPicosecondsOfMs = 1e9;
  for (trace::RankTrace& rank : traces.section.ranks) {
    if (traces.origin == trace::Origin::stretto || rank.kernels.empty())
      throw input_error(rank.file + ": --window: expected a trace of a profiler");
    const Picoseconds first = rank.kernels.front().start;
    const Picoseconds begin = first + static_cast<Picoseconds>(window.begin_ms * kPicosecondsOfMs);
    const Picoseconds end = first + static_cast<Picoseconds>(window.end_ms * kPicosecondsOfMs);
    std::erase_if(rank.kernels, [&](const trace::Kernel& kernel) { return kernel.start < begin || kernel.end > end; });
    rank.marks.clear();
    if (rank.kernels.empty())
      throw input_error(
          fmt::format("{}: --window {:g}:{:g}: no kernel runs within it", rank.file, window.begin_ms, window.end_ms));
  }
}

void require_same_gpu(const Traces& traces, const sim::Platform& platform) {
  for (const trace::RankTrace& rank : traces.section.ranks)
    if (are_other_gpus(rank.device, platform.device))
      throw input_error(fmt::format(
          "{}: is of a GPU {}, and platform {} of {}; expected a trace of that GPU, or --platform with a file of this "
          "one (`stretto calibrate`)",
          rank.file, in_quotes(rank.device), platform.name, in_quotes(platform.device)));
}

Diagnosed diagnose(const predict::PredictedStep& step, const Traces& traces, const std::string& scenario, bool on_gpu) {
  Diagnosed result;
  result.ranks = measure_ranks(step, traces.section, traces.origin);
  find_transfers(step.schedule, result.ranks, traces.origin);
  account_for(step.schedule, result.ranks);
  result.diagnosis = explain(step.schedule, result.ranks, scenario, on_gpu);
  return result;
}

}  // namespace stretto::diagnose
