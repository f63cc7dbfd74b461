#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "exec/executor.hpp"
#include "exec/launch/process_group.hpp"
#include "exec/state/model_state.hpp"
#include "model/scenario.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::exec {

struct TrainStep {
  std::int64_t step = 0;  // counts from 0
  double loss = 0, gradient_norm = 0, lr = 0;
  double step_ms = 0;
  double tokens_per_s = 0;
  bool is_skipped = false;  // taken back, because its gradient norm is above grad_norm_skip_threshold
};

// The loss on [training] validation_data.
struct Evaluation {
  std::int64_t step = 0;    // steps that the parameters were trained
  double loss = 0;          // mean negative log-likelihood per token, nats
  std::int64_t tokens = 0;  // tokens that it is the mean of
};

struct TrainOptions {
  std::function<void(const TrainStep&)> on_step;            // after every step
  std::function<void(const Evaluation&)> on_evaluation;     // after every loss on validation_data
  std::function<void(const std::string& line)> on_message;  // resumed from …, checkpoint …
  // polled between steps (Ctrl-C); a checkpoint is written then
  std::function<bool()> stop;
  // Set when every rank is a process of its own: then all of them call train(), each writes its shard of a checkpoint,
  // and a stop or a failure of one stops all.
  launch::ProcessGroup* processes = nullptr;
};

struct TrainResult {
  std::vector<TrainStep> steps;  // steps of this run
  std::vector<Evaluation> evaluations;
  std::int64_t resumed_from = -1;  // step of the checkpoint, or -1
  bool finished = false;           // train_iters reached
};

// Trains with `executor`. Resumes from the newest checkpoint in checkpoint_dir if there is one; otherwise begins with
// the weights that `load` names, or random ones. Runs to train_iters and writes checkpoints as the scenario says. In an
// unchanged layout a resumed run continues bit for bit like the uninterrupted one, if the executor is deterministic.
// on_message reports settings and data that differ from the checkpoint's. checkpoint_dir is locked during the run.
// Throws Error(input) for data, checkpoint or model that do not fit; Error(runtime) when a rank dies, the disk is full,
// data are cut short, another run has locked checkpoint_dir, or the loss is not finite.
TrainResult train(const Scenario& scenario, const Schedule& schedule, Executor& executor, const TrainOptions& options);

// Returns the loss on validation_data, or on data where the scenario has none, of the newest checkpoint in
// checkpoint_dir, else of the weights that `load` names. The batches run through the training step with a learning rate
// of 0, and all that a batch changes is taken back: any layout and mode evaluates, at the price of a step a batch.
// Reads only. Throws Error(input) when there are neither checkpoints nor weights, or dropout; otherwise as train()
// does.
Evaluation evaluate(const Scenario& scenario, const Schedule& schedule, Executor& executor,
                    const TrainOptions& options);

// Fills the ranks of this process with the newest checkpoint in checkpoint_dir, else with the weights that `load`
// names, and returns the steps that they were trained. `schedule` is of the scenario in any layout. Throws Error(input)
// when there are neither.
std::int64_t load_trained(const Scenario& scenario, const Schedule& schedule, const MemoryOf& memory_of,
                          const TrainOptions& options);

// Throws Error(input) for what is predicted and not executed; train() and evaluate() call it.
void require_executable(const Scenario& scenario);
// Throws Error(input) when the scenario has no training data that can be read.
void require_data(const Scenario& scenario);

}  // namespace stretto::exec
