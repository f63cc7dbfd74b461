#include "diagnose/diagnose.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/toml.hpp"

namespace stretto::diagnose {
namespace {

std::string titles_of(const std::vector<trace::Section>& sections) {
  std::string titles;
  for (const trace::Section& section : sections) titles += (titles.empty() ? "" : ", ") + in_quotes(section.title);
  return titles;
}

trace::Section chosen(std::vector<trace::Section> sections, const std::string& asked, const std::string& file) {
  const auto keep = [&](const auto& wanted) {
    std::vector<trace::Section> kept;
    for (trace::Section& section : sections)
      if (wanted(section.title)) kept.push_back(section);
    return kept;
  };
  std::vector<trace::Section> kept =
      asked.empty() ? keep([](const std::string& title) { return title.starts_with("measured"); })
                    : keep([&](const std::string& title) { return title.find(asked) != std::string::npos; });
  if (asked.empty() && kept.empty()) kept = std::move(sections);  // only predictions
  if (kept.size() != 1)
    throw input_error(
        fmt::format("{}: expected --section TEXT, a part of the title of one section, got {}; sections are {}", file,
                    asked.empty() ? "none" : in_quotes(asked), titles_of(kept.empty() ? sections : kept)));
  return std::move(kept.front());
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
      if (!one.says_rank && rank >= 0 && files.size() == 1 && of.ranks.size() == 1) {
        one.rank = rank;
        one.says_rank = true;
      }
      traces.section.ranks.push_back(std::move(one));
    }
  }
  return traces;
}

Diagnosed diagnose(const predict::PredictedStep& step, const Traces& traces, const std::string& scenario) {
  Diagnosed result;
  result.ranks = measure_ranks(step, traces.section, traces.origin);
  find_transfers(step.schedule, result.ranks, traces.origin);
  account_for(step.schedule, result.ranks);
  result.diagnosis = explain(step.schedule, result.ranks, scenario);
  return result;
}

}  // namespace stretto::diagnose
