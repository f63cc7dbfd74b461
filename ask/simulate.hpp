#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ask/request.hpp"
#include "habits/question.hpp"
#include "model/overlap/left_out.hpp"
#include "predict/accuracy.hpp"
#include "predict/fit_memory.hpp"
#include "predict/knobs.hpp"
#include "predict/predict_modes.hpp"
#include "predict/predict_step.hpp"
#include "predict/recipes.hpp"
#include "predict/remedies.hpp"
#include "predict/run.hpp"
#include "predict/sensitivity.hpp"
#include "predict/spread.hpp"
#include "sweep/near.hpp"

namespace stretto::ask {

// Further questions about a step. The answer to one that is not asked stays empty.
struct SimulateOptions {
  std::string engine = "fluid";  // or "simgrid"
  // GB/s of one link that all traffic between ranks (GPUs: between nodes) crosses; 0: none. It needs engine "simgrid".
  double backbone_GBps = 0;
  bool modes = false;     // every overlap mode is predicted too, with advice
  bool limits = false;    // on published GPUs: the step by each number, on better machines, by single changes
  bool fit = false;       // changes are searched with which the step fits into memory
  bool timeline = false;  // the answer's step has its whole schedule and timeline
  bool interval = true;   // of a published GPU: takes some dozens of steps with few micro-batches
};

// Every mode compared with the plain schedule, those that are not tried, every knob with the scenario without it, and
// the step in every precision.
struct Modes {
  std::vector<predict::PredictedMode> modes;  // the plain schedule first
  std::vector<LeftOutMode> left_out;          // modes that cannot act here, with the first closed gate
  std::vector<predict::Remedy> remedies;      // of modes that lose
  std::vector<predict::KnobOff> knobs;        // that are on, each off from here
  std::vector<predict::RecipeStep> recipes;   // published GPUs and bf16 only; else empty
};

// All that the step depends on: published GPUs only.
struct StepLimits {
  // Part of the critical path -> its share of the step; shares add up to 1 (report/critical_path.hpp).
  std::vector<std::pair<std::string, double>> path;
  std::vector<predict::Sensitivity> numbers;     // of platform and profile, the most important first
  std::vector<predict::BetterMachine> machines;  // better in one way, the fastest step first
  std::vector<sweep::SingleChange> changes;      // of one setting, that fit and are faster, the fastest first
};

// The settings that a question in names left open, and the step of each other plausible reading.
struct Assumptions {
  habits::Answer answer;
  std::vector<double> readings_ms;   // of answer.readings; 0 where a reading cannot be built
  double least_ms = 0, most_ms = 0;  // of all readings, the step itself among them
};

// The 80 % interval of the step on a published GPU: of its constants and between containers (predict/spread.hpp), and
// of the readings of what was assumed; and how far published steps of the same kind are from their predictions.
struct StepInterval {
  double low_ms = 0, high_ms = 0;
  std::vector<std::pair<std::string, double>> shares;  // as predict::Spread has them, "assumed settings" among them
  std::optional<predict::Accuracy> published;
};

// The answer to one request. Steps are in milliseconds, memory in bytes of one device. Plain data, owned.
struct SimulateAnswer {
  predict::PredictedStep step;         // of it the prediction alone, where neither `timeline` nor `limits` is asked for
  std::optional<Assumptions> assumed;  // of a question in names
  std::optional<StepInterval> interval;  // of a published GPU, where it is asked for
  std::optional<predict::Run> run;       // where the scenario has a table [run]
  std::optional<Modes> modes;
  std::optional<StepLimits> limits;
  std::optional<predict::FitSearch> fits_with;
};

// Predicts a step. Reads the platform where it has not been read. Throws Error(input) as read_platform(),
// predict::engine_of(), predict::predict_step() and predict::read_run_input() do, and for limits on another network.
SimulateAnswer simulate(Asked& asked, const SimulateOptions& options = {});

// Returns the interval of a step alone, as simulate() has it, of a scenario that leaves nothing open; nullopt without
// published numbers. The platform must have been read.
std::optional<StepInterval> interval_of(const Asked& asked);

nlohmann::json json_of(const SimulateAnswer& answer);  // `simulate` in docs/json.md
// Returns `step_low_ms`, `step_high_ms` and `interval_from` of it, all null for nullopt.
nlohmann::json json_of(const std::optional<StepInterval>& interval);

}  // namespace stretto::ask
