#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/toml.hpp"
#include "predict/predict_step.hpp"
#include "predict/stragglers.hpp"
#include "report/table.hpp"

namespace stretto::predict {

// A training run on top of its step: table [run] of a scenario (docs/runs.md). Every number is the user's; a result
// whose numbers are not given is absent. Only `simulate` reads the table.
struct RunKeys {
  Stragglers stragglers;
  std::optional<double> jitter_pct;
  std::optional<double> tokens;
  std::optional<double> gpu_mtbf_hours, node_mtbf_hours;
  std::optional<double> restart_s;
  std::optional<double> storage_GBps;
  bool checkpoint_async = false;
  std::optional<double> checkpoint_stall_s;
  std::optional<double> checkpoint_interval_s;
  std::optional<double> watts_per_gpu;
  std::optional<double> price_per_gpu_hour;
};
// Reads the table; `ranks` of the layout, and of a node `ranks_per_node`, which is 0 where the platform does not say.
// nullopt where there is none. Throws Error(input): an unknown key, a place that the layout does not have, keys that
// need another.
std::optional<RunKeys> read_run(TomlTable table, std::int64_t ranks, std::int64_t ranks_per_node);

// Returns the table [run] of a scenario input with these overrides (predict/inputs.hpp), for a scenario on a platform.
std::optional<RunKeys> read_run_input(const std::string& input, const std::vector<std::string>& set,
                                      const Scenario& scenario, const sim::Platform& platform);

// Throws what read_run_input() throws, except where only the number of ranks is at fault: for commands that need no
// run.
void require_run_keys(const std::string& input, const std::vector<std::string>& set, const sim::Platform& platform);

// The run's step and what follows from it. Times of a run are in seconds.
struct Run {
  double step_ms = 0;                               // with stragglers and jitter
  bool has_stragglers = false, has_jitter = false;  // keys say so
  double straggler_ms = 0;                          // what stragglers add
  double jitter_ms = 0;                             // what jitter adds
  std::int64_t gpus = 1;
  double checkpoint_bytes = 0;                  // of all ranks together
  std::optional<double> mtbf_s;                 // of the whole run
  std::optional<double> checkpoint_write_s;     // from the first byte to the last
  std::optional<double> checkpoint_interval_s;  // of work between two checkpoints
  bool interval_is_best = false;                // it is the best interval, not a given one
  std::optional<double> checkpoint_GBps;        // mean traffic to storage
  // Share of the elapsed time that goes into steps that are kept: goodput, or effective training time (arXiv
  // 2407.21783, 3.3.4; arXiv 2410.21680).
  double productive_share = 1;
  std::optional<std::int64_t> steps;
  std::optional<double> elapsed_s, failures, gpu_hours, cost;
  std::optional<double> watts_per_gpu;  // given, or of the data sheet
  bool watts_are_given = false;
  std::optional<double> energy_MWh, joules_per_token;
};

// Returns the expected largest of n independent standard normal numbers: ∫ x d Φ(x)^n (H. A. David and H. N. Nagaraja,
// Order Statistics, 3rd edition, Wiley 2003). 0 of one, 0.5642 of two, 3.2414 of 1,000.
double expected_largest(std::int64_t n);

// The checkpoints of a run whose failures are a Poisson process with mean time `mtbf_s` between them. `stall_s`: time
// for which a checkpoint stops the run; `restart_s`: from a failure until steps are made again. The interval of work
// that minimises the elapsed time (J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart
// dumps, Future Generation Computer Systems 22, 2006), which is √(2 δ M) (J. W. Young, CACM 17, 1974) with further
// terms: M where the stall is 2 M or more.
double best_checkpoint_interval_s(double stall_s, double mtbf_s);
// Elapsed time for each second of work (Daly 2006): M e^(R/M) (e^((τ + δ)/M) − 1) / τ. Failures during
// restarts and checkpoints count.
double elapsed_for_work(double interval_s, double stall_s, double restart_s, double mtbf_s);

// Returns the bytes of a checkpoint: of every parameter once its weights and the optimizer's state as the schedule
// holds them (bf16: two bytes, and f32 master, moment and second moment). Of a frozen base nothing is saved.
double checkpoint_bytes(const Scenario& scenario);

// Returns the run whose steps are predicted as `p`. The straggling step is that of `step`; all else is closed form.
Run predict_run(const RunKeys& keys, const QuickStep& step, const Prediction& p, const sim::Platform& platform,
                const sim::SimOptions& options);

// The keys of [run]: tables of docs/runs.md and of `stretto show --keys`.
std::string run_reference();

Table run_table(const Run& run);
nlohmann::json run_json(const Run& run);  // `run` of `simulate` in docs/json.md

}  // namespace stretto::predict
