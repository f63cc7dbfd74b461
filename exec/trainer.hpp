#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "exec/executor.hpp"
#include "exec/launch/process_group.hpp"
#include "model/scenario.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::exec {

struct TrainStep {
  std::int64_t step = 0;  // counts from 0
  double loss = 0, gradient_norm = 0, lr = 0;
  double step_ms = 0;
  double tokens_per_s = 0;
};

struct TrainOptions {
  std::function<void(const TrainStep&)> on_step;            // after every step
  std::function<void(const std::string& line)> on_message;  // resumed from …, checkpoint …
  std::function<bool()> stop;                               // polled between steps: Ctrl-C; a checkpoint is written
  // Where every rank is a process of its own: all of them train, rank 0 writes checkpoints, and what stops or fails one
  // stops or fails all.
  launch::ProcessGroup* processes = nullptr;
};

struct TrainResult {
  std::vector<TrainStep> steps;    // of this run
  std::int64_t resumed_from = -1;  // step of the checkpoint, or -1
  bool finished = false;           // train_iters reached
};

// Trains on what `executor` runs: resumes from the newest checkpoint in checkpoint_dir if there is one, else begins
// with the weights that `load` names or random ones, runs to train_iters, writes checkpoints as the scenario says. A
// resumed run continues as the uninterrupted one, bit for bit in the same layout where the executor repeats itself bit
// for bit; settings and data that are not those of the checkpoint are noted. checkpoint_dir is locked meanwhile. Throws
// Error(input) for data, checkpoint or model that do not fit, Error(runtime) when a rank dies, the disk is full, data
// are cut short, another run has checkpoint_dir, or the loss is no number.
TrainResult train(const Scenario& scenario, const Schedule& schedule, Executor& executor, const TrainOptions& options);

// Throws Error(input) when the scenario has no training data that can be read.
void require_data(const Scenario& scenario);

}  // namespace stretto::exec
