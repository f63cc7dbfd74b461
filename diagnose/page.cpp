#include "diagnose/page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/printable.hpp"
#include "report/layout_text.hpp"
#include "report/units.hpp"

namespace stretto::diagnose {
namespace {

std::string signed_text(double ms) {
  const std::string text = time_text(std::abs(ms));
  return ms == 0 ? text : (ms < 0 ? "-" : "+") + text;
}

std::string about_text(const Diagnosed& diagnosed, const Traces& traces, const Prediction& prediction) {
  const Diagnosis& d = diagnosed.diagnosis;
  std::string text =
      fmt::format("{} of {}{}: {} of {} kernels matched to {} of {} operations, {} of the kernels' time\n",
                  d.traced_ranks == 1 ? "a trace" : fmt::format("traces of {} ranks", d.traced_ranks),
                  name_of(traces.origin), traces.section.title.empty() ? "" : ", " + printable(traces.section.title),
                  d.matched_kernels, d.kernels, d.matched_operations, d.operations, percent_text(d.matched));
  if (d.is_whole)
    text += fmt::format("step: measured {}, predicted {} ({} on {}), {}; rank {} is explained{}\n",
                        time_text(d.measured_ms), time_text(d.predicted_ms), prediction.scenario, prediction.platform,
                        signed_text(d.gap_ms()), d.rank, d.traced_ranks > 1 ? ", for which the others wait" : "");
  else
    text += fmt::format("no whole step: {} of rank {} are compared with the operations of {} on {}\n",
                        time_text(d.measured_ms), d.rank, prediction.scenario, prediction.platform);
  return text;
}

// From the predicted step to the measured one, cause by cause: what each adds, and the step so far.
Table causes_table(const Diagnosis& d) {
  Table table({"cause", "gap", "of the predicted step", "step so far"});
  const auto step = [&](double ms) { return d.is_whole ? time_text(ms) : std::string(); };
  if (d.is_whole) table.add_row({"predicted", "", "", step(d.predicted_ms)});
  double so_far = d.predicted_ms;
  for (int c = 0; c < kCauses; ++c)
    if (d.of_cause[c] != 0)
      table.add_row({name_of(static_cast<Cause>(c)), signed_text(d.of_cause[c]),
                     percent_text(d.of_cause[c] / d.predicted_ms), step(so_far += d.of_cause[c])});
  if (d.is_whole) table.add_row({"measured", signed_text(d.gap_ms()), "", step(d.measured_ms)});
  return table;
}

Table observables_table(const Diagnosis& d) {
  Table table({"", "predicted", "measured"});
  const Observables &p = d.predicted, &m = d.measured;
  table.add_row({"communication moves bytes", time_text(p.active_ms), time_text(m.active_ms)});
  table.add_row({"hidden by computation", time_text(p.hidden_ms), time_text(m.hidden_ms)});
  table.add_row({"share that is hidden", percent_text(p.hidden_share()), percent_text(m.hidden_share())});
  const auto share = [](double ms, double step_ms) { return percent_text(step_ms > 0 ? ms / step_ms : 0); };
  table.add_row(
      {"share of the step that waits for the host", share(p.host_ms, d.predicted_ms), share(m.host_ms, d.measured_ms)});
  return table;
}

Table communication_table(const Diagnosis& d) {
  Table table({"communication", "calls", "predicted a call", "measured a call", "hidden", "concurrent over alone"});
  for (const CommunicationCalls& of : d.communication)
    table.add_row({of.name, fmt::format("{}", of.calls), time_text(of.predicted_us * 1e-3),
                   time_text(of.measured_us * 1e-3), percent_text(of.hidden),
                   of.stretch > 0 ? fmt::format("{:.2f}", of.stretch) : "-"});
  return table;
}

Table gaps_table(const Diagnosis& d, std::size_t most) {
  Table table({"cause", "what", "predicted", "measured", "gap", "how"});
  for (const Gap& gap : d.gaps) {
    if (table.rows() == most) break;
    table.add_row({name_of(gap.cause), printable(gap.name), time_text(gap.predicted_ms), time_text(gap.measured_ms),
                   signed_text(gap.gap_ms), printable(gap.detail)});
  }
  return table;
}

Table lengths_table(const Diagnosis& d) {
  Table table({"operation", "kind", "calls", "kernels", "predicted a call", "measured a call", "ratio"});
  for (const OperationLength& of : d.lengths)
    table.add_row({of.name, of.kind, fmt::format("{}", of.calls), fmt::format("{}", of.kernels),
                   time_text(of.predicted_us * 1e-3), time_text(of.measured_us * 1e-3),
                   of.predicted_us > 0 ? fmt::format("{:.2f}", of.measured_us / of.predicted_us) : "-"});
  return table;
}

std::vector<std::string> advice_lines(const Diagnosis& d) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < std::min(kShownGaps, d.gaps.size()); ++i)
    if (!d.gaps[i].advice.empty())
      lines.push_back(
          fmt::format("{} ({}): {}", printable(d.gaps[i].name), name_of(d.gaps[i].cause), d.gaps[i].advice));
  return lines;
}

// The parts of an account as a page's bars have them.
BreakdownMs breakdown_of(const Account& account, const Schedule& schedule) {
  BreakdownMs b;
  b.exposed_by.assign(schedule.communicators.size(), 0);
  for (const auto& [key, time] : account) {
    const double ms = to_ms(time);
    switch (key.part) {
      case Part::kernel:
      case Part::unscheduled:
        b.compute += ms;
        break;
      case Part::cores:
        b.core_wait += ms;
        break;
      case Part::peers:
        b.bubble += ms;
        break;
      case Part::host:
        b.bubble += ms;
        b.host += ms;
        break;
      case Part::exposed:
        b.exposed += ms;
        if (key.communicator != kNoCommunicator) b.exposed_by[key.communicator] += ms;
        break;
    }
  }
  return b;
}

}  // namespace

std::string diagnosis_text(const Diagnosed& diagnosed, const Traces& traces, const Prediction& prediction) {
  const Diagnosis& d = diagnosed.diagnosis;
  std::string text = about_text(diagnosed, traces, prediction);
  for (const std::string& stream : d.streams) text += "  " + printable(stream) + "\n";
  text += "\n" + causes_table(d).text() + "\nwhat costs most:\n\n" + gaps_table(d, kShownGaps).text();
  if (d.is_whole) text += "\n" + observables_table(d).text();
  if (!d.communication.empty()) text += "\n" + communication_table(d).text();
  const std::vector<std::string> lines = advice_lines(d);
  if (!lines.empty()) text += "\nwhat to try:\n";
  for (const std::string& line : lines) text += "  " + line + "\n";
  for (const std::string& note : d.notes) text += "note: " + note + "\n";
  return text;
}

nlohmann::json diagnosis_json(const Diagnosed& diagnosed, const Traces& traces, const Prediction& prediction) {
  const Diagnosis& d = diagnosed.diagnosis;
  nlohmann::json causes = nlohmann::json::array(), gaps = nlohmann::json::array(), operations = nlohmann::json::array();
  for (int c = 0; c < kCauses; ++c)
    causes.push_back({{"cause", name_of(static_cast<Cause>(c))}, {"gap_ms", d.of_cause[c]}});
  for (const Gap& gap : d.gaps)
    gaps.push_back({{"cause", name_of(gap.cause)},
                    {"name", gap.name},
                    {"predicted_ms", gap.predicted_ms},
                    {"measured_ms", gap.measured_ms},
                    {"gap_ms", gap.gap_ms},
                    {"detail", gap.detail},
                    {"advice", gap.advice}});
  nlohmann::json communication = nlohmann::json::array();
  for (const CommunicationCalls& of : d.communication)
    communication.push_back({{"name", of.name},
                             {"calls", of.calls},
                             {"predicted_us", of.predicted_us},
                             {"measured_us", of.measured_us},
                             {"hidden", of.hidden},
                             {"stretch", of.stretch > 0 ? nlohmann::json(of.stretch) : nlohmann::json(nullptr)}});
  const auto observables = [](const Observables& of) {
    return nlohmann::json{{"active_ms", of.active_ms}, {"hidden_ms", of.hidden_ms}, {"host_ms", of.host_ms}};
  };
  for (const OperationLength& of : d.lengths)
    operations.push_back({{"operation", of.name},
                          {"kind", of.kind},
                          {"calls", of.calls},
                          {"kernels", of.kernels},
                          {"predicted_us", of.predicted_us},
                          {"measured_us", of.measured_us}});
  return {{"scenario", prediction.scenario},
          {"platform", prediction.platform},
          {"trace", name_of(traces.origin)},
          {"section", traces.section.title},
          {"traced_ranks", d.traced_ranks},
          {"rank", d.rank},
          {"whole_step", d.is_whole},
          {"predicted_ms", d.predicted_ms},
          {"measured_ms", d.measured_ms},
          {"gap_ms", d.is_whole ? nlohmann::json(d.gap_ms()) : nlohmann::json(nullptr)},
          {"steps_ms", d.steps_ms},
          {"matched", d.matched},
          {"kernels", d.kernels},
          {"matched_kernels", d.matched_kernels},
          {"operations_of_step", d.operations},
          {"matched_operations", d.matched_operations},
          {"causes", std::move(causes)},
          {"gaps", std::move(gaps)},
          {"operations", std::move(operations)},
          {"observables", {{"predicted", observables(d.predicted)}, {"measured", observables(d.measured)}}},
          {"communication", std::move(communication)},
          {"streams", d.streams},
          {"notes", d.notes}};
}

HtmlReport diagnosis_page(const Diagnosed& diagnosed, const Traces& traces, const predict::PredictedStep& step,
                          const MeasuredTimeline& timeline) {
  const Diagnosis& d = diagnosed.diagnosis;
  const Prediction& p = step.prediction;
  const MeasuredRank& rank = *std::find_if(diagnosed.ranks.begin(), diagnosed.ranks.end(),
                                           [&](const MeasuredRank& r) { return r.rank() == d.rank; });
  HtmlReport report;
  report.title = fmt::format("{}: a trace against its schedule", p.scenario);
  report.about = {about_text(diagnosed, traces, p)};
  report.summary = causes_table(d);
  report.remarks = advice_lines(d);
  for (const std::string& note : d.notes) report.remarks.push_back("note: " + note);
  report.tables.push_back(
      {"gaps", "What costs most",
       "Parts of the difference between the measured and the predicted step of one rank; they add up "
       "to it.",
       gaps_table(d, 40)});
  if (d.is_whole)
    report.tables.push_back({"observables", "Communication and the host",
                             "Of one step: communication that moves bytes, and of it while an operation computes.",
                             observables_table(d)});
  if (!d.communication.empty())
    report.tables.push_back({"communication", "Communications",
                             "Calls that were matched. The last column is the time of calls concurrent with "
                             "computation over that of equal calls alone.",
                             communication_table(d)});
  report.tables.push_back({"lengths", "Operations",
                           "Lengths of one call, mean over the matched calls; of a communication while bytes move.",
                           lengths_table(d)});
  HtmlStep shown;
  shown.row.mode = step.schedule.name;
  shown.row.ranks = step.schedule.mesh.ranks();
  shown.row.predicted_ms = d.predicted_ms;
  shown.row.measured_ms = d.steps_ms;
  shown.row.predicted = breakdown_of(rank.expected, step.schedule);
  shown.row.measured = breakdown_of(rank.measured, step.schedule);
  for (const OperationLength& of : d.lengths)
    shown.row.operations.push_back(
        {of.name, of.kind, double(of.calls) * of.predicted_us * 1e-3, double(of.calls) * of.measured_us * 1e-3});
  shown.layout = layout_text(p.parallel, p.micro_batches);
  for (const Communicator& communicator : step.schedule.communicators) shown.communicators.push_back(communicator.name);
  const ExcerptLimits limits = limits_of_page(2);
  shown.predicted = excerpt(step.schedule, step.result.programs, step.result.timeline, limits);
  shown.measured = excerpt_of(step.schedule, timeline, limits);
  report.steps = {std::move(shown)};
  return report;
}

}  // namespace stretto::diagnose
