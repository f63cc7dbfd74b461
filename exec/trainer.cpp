#include "exec/trainer.hpp"

#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "exec/data.hpp"
#include "exec/state/checkpoint.hpp"
#include "exec/state/directory_lock.hpp"
#include "exec/state/model_state.hpp"
#include "exec/state/saved_state.hpp"
#include "exec/state/training_record.hpp"
#include "exec/state/weights.hpp"

namespace stretto::exec {
namespace {

// Resumes, and returns the step to go on with.
std::int64_t resume(const Scenario& scenario, const Schedule& schedule, const MemoryOf& memory_of,
                    const CheckpointMetadata& settings, const TrainOptions& options) {
  const LatestCheckpoint latest = find_latest(scenario.training.checkpoint_dir, options.processes);
  for (const std::string& warning : latest.warnings)
    if (options.on_message) options.on_message("warning: " + warning);
  if (!latest.file) return -1;
  const TensorFile& checkpoint = *latest.file;
  require_same_training(checkpoint, scenario);
  read_saved_state(schedule, memory_of, checkpoint);
  if (options.on_message) {
    options.on_message("resumed from " + checkpoint.name());
    if (const std::string changed = changed_settings(checkpoint, settings); !changed.empty())
      options.on_message("note: not as the checkpoint was trained: " + changed);
    if (latest.step >= scenario.training.train_iters)
      options.on_message("training is done: the checkpoint is of step " + std::to_string(latest.step) +
                         " and train_iters is " + std::to_string(scenario.training.train_iters) +
                         "; raise [training] train_iters to go on, or choose another checkpoint_dir to begin anew");
  }
  return latest.step;
}

void load_weights(const Scenario& scenario, const Schedule& schedule, const MemoryOf& memory_of,
                  const TrainOptions& options) {
  const Weights weights = Weights::open(scenario.training.load, scenario.model);
  FullTensor read;
  scatter_state(schedule, memory_of, StatePart::parameters, [&](const std::string& name) -> const FullTensor& {
    std::optional<FullTensor> initial = initial_beside_model(schedule, name);
    return read = initial ? std::move(*initial) : weights.read(name);
  });
  if (!options.on_message) return;
  options.on_message("weights from " + scenario.training.load + " (names of " + weights.naming() + ")");
  if (!weights.unused().empty())
    options.on_message("note: the model has no place for " + std::to_string(weights.unused().size()) + " tensors of " +
                       scenario.training.load + ": " + some_of(weights.unused()));
}

TokenSource open_data(const Scenario& scenario) {
  if (scenario.training.data.empty())
    throw input_error((scenario.file.empty() ? scenario.name : scenario.file) +
                      ": [training] data: expected a text file or a .bin token shard to train on");
  return TokenSource::open(scenario.training.data);
}

// Rank 0 takes the lock, and all processes share it: a process that outlives the others may still write its shard.
DirectoryLock lock_directory(const std::string& dir, const TrainOptions& options) {
  launch::ProcessGroup* processes = options.processes;
  std::optional<DirectoryLock> lock;
  if (processes == nullptr || processes->rank() == 0) {
    require_checkpoint_dir(dir);
    lock.emplace(DirectoryLock::take(dir));
    if (!lock->is_held() && options.on_message)
      options.on_message("note: the file system of " + dir +
                         " knows no locks; nothing keeps a second run from writing there");
  }
  // No process looks at files before that, because another run may be about to delete them.
  if (processes) processes->barrier();
  if (!lock) lock.emplace(DirectoryLock::share(dir));
  return std::move(*lock);
}

TrainResult train_steps(const Scenario& scenario, const Schedule& schedule, Executor& executor,
                        const TrainOptions& options) {
  const Training& training = scenario.training;
  launch::ProcessGroup* processes = options.processes;
  const std::int64_t first_rank = executor.programs().front().rank;
  const TokenSource source = open_data(scenario);
  const bool checkpoints = !training.checkpoint_dir.empty();
  std::optional<DirectoryLock> lock;
  if (checkpoints) lock.emplace(lock_directory(training.checkpoint_dir, options));
  const MemoryOf memory_of = exec::memory_of(executor);
  clear_state(schedule, memory_of);

  TrainResult result;
  CheckpointMetadata settings;
  if (checkpoints) {
    settings = settings_of(training, source);
    result.resumed_from = resume(scenario, schedule, memory_of, settings, options);
  }
  CheckpointMetadata record = identity_of(scenario);
  record.insert(settings.begin(), settings.end());
  if (result.resumed_from < 0 && training.load.empty()) initialise_state(schedule, scenario, memory_of);
  if (result.resumed_from < 0 && !training.load.empty()) load_weights(scenario, schedule, memory_of, options);
  executor.upload(Executor::Contents::state);
  std::int64_t step = std::max<std::int64_t>(result.resumed_from, 0), saved = result.resumed_from;
  const double tokens_per_step = double(training.global_batch_size) * double(scenario.model.seq_length);
  const auto stops = [&] {
    const bool stop = options.stop && options.stop();
    return processes ? processes->any(stop) : stop;
  };
  const auto save = [&](std::int64_t next_step) {
    executor.download(Executor::Contents::state);
    const std::string path = write_checkpoint(training.checkpoint_dir, next_step, saved, record,
                                              saved_state(schedule, memory_of), processes);
    if (options.on_message) options.on_message("checkpoint " + path);
    saved = next_step;
  };
  for (; step < training.train_iters && !stops(); ++step) {
    write_batch(schedule, scenario, source, step, memory_of);
    write_hyper(schedule, scenario, step, memory_of);
    executor.upload(Executor::Contents::inputs);
    const Timeline timeline = executor.run_without_rows(1);
    executor.download(Executor::Contents::results);
    const StepMetrics metrics = read_metrics(schedule, memory_of, first_rank);
    const double step_ms = to_ms(timeline.step_end - timeline.step_begin);
    result.steps.push_back({step, metrics.loss, metrics.gradient_norm, learning_rate(training, step), step_ms,
                            tokens_per_step / step_ms * 1e3});
    if (options.on_step) options.on_step(result.steps.back());
    // Megatron-LM's check_for_nan_in_loss. Nothing of this step is saved: existing checkpoints stay.
    if (!std::isfinite(metrics.loss) || !std::isfinite(metrics.gradient_norm))
      throw runtime_failure("step " + std::to_string(step + 1) + ": loss " + std::to_string(metrics.loss) +
                            ", gradient norm " + std::to_string(metrics.gradient_norm) +
                            ": not finite; a lower lr or clip_grad may help, and checkpoints from before are kept");
    if (checkpoints && training.checkpoint_interval > 0 && (step + 1) % training.checkpoint_interval == 0)
      save(step + 1);
  }
  if (checkpoints && saved != step) save(step);
  result.finished = step >= training.train_iters;
  if (processes) processes->barrier();  // no process leaves while others still read from it
  return result;
}

}  // namespace

TrainResult train(const Scenario& scenario, const Schedule& schedule, Executor& executor, const TrainOptions& options) {
  try {
    return train_steps(scenario, schedule, executor, options);
  } catch (const Error& error) {
    if (options.processes) options.processes->fail(error.what(), error.kind());
    throw;
  }
}

void require_data(const Scenario& scenario) { open_data(scenario); }

}  // namespace stretto::exec
