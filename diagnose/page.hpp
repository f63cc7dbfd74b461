#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "diagnose/diagnose.hpp"
#include "diagnose/timeline.hpp"
#include "report/html.hpp"

namespace stretto::diagnose {

constexpr std::size_t kShownGaps = 5;

// Returns what is printed: the step, the causes, the gaps that cost most with what to try, and notes.
std::string diagnosis_text(const Diagnosed& diagnosed, const Traces& traces, const Prediction& prediction);

// Returns the keys of `diagnose` in docs/json.md.
nlohmann::json diagnosis_json(const Diagnosed& diagnosed, const Traces& traces, const Prediction& prediction);

// Returns the page of --html: the tables, and both timelines one above the other.
HtmlReport diagnosis_page(const Diagnosed& diagnosed, const Traces& traces, const predict::PredictedStep& step,
                          const MeasuredTimeline& timeline);

}  // namespace stretto::diagnose
