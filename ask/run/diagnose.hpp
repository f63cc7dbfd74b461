#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ask/request.hpp"
#include "diagnose/diagnose.hpp"
#include "diagnose/recognise.hpp"
#include "predict/predict_step.hpp"

namespace stretto::ask {

// A trace to be understood, as options of `stretto diagnose` say it.
struct TraceRequest {
  std::string trace;            // a file, or a folder with one of each rank
  std::string section, window;  // "": none
  std::int64_t rank = -1;       // below 0: the trace's
  std::string model, platform;  // without a scenario: names, "": what the trace says
};

// Reads the trace. Throws Error(input) as diagnose::read_traces() and parse_window() do.
diagnose::Traces traces_of(const TraceRequest& of);
// Returns the scenario that the trace shows. Throws Error(input) as diagnose::recognise() does, and for a model that is
// not known, with the nearest name.
diagnose::Found recognised(const TraceRequest& of);

// A run explained against the prediction of a scenario. Not movable: the last member refers to the others.
struct Explained {
  diagnose::Traces traces;
  predict::PredictedStep step;
  diagnose::Diagnosed diagnosed;
};
// Reads the trace and predicts the step; the platform must have been read. Throws Error(input) as both do, and where
// they are not of one GPU, model or layout.
std::unique_ptr<const Explained> explained(const Asked& asked, const TraceRequest& of);

nlohmann::json json_of(const Explained& explained);    // `diagnose` in docs/json.md
nlohmann::json json_of(const diagnose::Found& found);  // `scenario` in TOML, `keys` of its sections, `not_known`

}  // namespace stretto::ask
