#include "exec/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
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
#include "exec/state/snapshot.hpp"
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
  }
  return latest.step;
}

void load_weights(const Scenario& scenario, const Schedule& schedule, const MemoryOf& memory_of,
                  const TrainOptions& options) {
  const Weights weights = Weights::open(scenario.training.load, scenario.model);
  FullTensor read;
  scatter_state(schedule, memory_of, StatePart::parameters, [&](const std::string& name) -> const FullTensor& {
    std::optional<FullTensor> initial = initial_outside_model(schedule, name);
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
  return TokenSource::open(scenario.training.data, scenario.training.data_weights);
}

// Measures the loss on some batches without changing the state.
class Evaluator {
 public:
  Evaluator(const Scenario& scenario, const std::vector<std::string>& data, const std::vector<double>& weights)
      : scenario_(scenario), source_(TokenSource::open(data, weights)) {
    Training& training = scenario_.training;
    training.lr = training.min_lr = training.weight_decay = 0;
  }

  // `step` is the number of steps that the parameters were trained.
  Evaluation run(const Schedule& schedule, Executor& executor, std::int64_t step, const TrainOptions& options) {
    const MemoryOf memory_of = exec::memory_of(executor);
    snapshot_.take(schedule, executor);
    Evaluation result{.step = step};
    const std::int64_t iters = scenario_.training.eval_iters;
    for (std::int64_t i = 0; i < iters; ++i) {
      write_batch(schedule, scenario_, source_, i, memory_of);
      write_hyper(schedule, scenario_, i, memory_of);
      executor.upload(Executor::Contents::inputs);
      executor.run_without_rows(1);
      executor.download(Executor::Contents::results);
      result.loss += read_metrics(schedule, memory_of, executor.programs().front().rank).loss / double(iters);
      // A step of learning rate 0 changes moments, scales and the biases of experts.
      snapshot_.restore(schedule, executor);
    }
    result.tokens = iters * scenario_.training.global_batch_size * scenario_.model.seq_length;
    if (options.on_evaluation) options.on_evaluation(result);
    return result;
  }

 private:
  Scenario scenario_;
  TokenSource source_;
  Snapshot snapshot_;
};

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
  require_executable(scenario);
  launch::ProcessGroup* processes = options.processes;
  const std::int64_t first_rank = executor.programs().front().rank;
  const TokenSource source = open_data(scenario);
  std::optional<Evaluator> validation;
  if (!training.validation_data.empty()) validation.emplace(scenario, training.validation_data, std::vector<double>{});
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
    if (result.resumed_from >= training.train_iters && options.on_message)
      options.on_message("training is done: the checkpoint is of step " + std::to_string(result.resumed_from) +
                         " and train_iters is " + std::to_string(training.train_iters) +
                         "; raise [training] train_iters to go on, or choose another checkpoint_dir to begin anew");
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
    const std::string path =
        write_checkpoint(training.checkpoint_dir, next_step, saved, record, saved_state(schedule, memory_of), processes,
                         training.save_retain_interval);
    if (options.on_message) options.on_message("checkpoint " + path);
    saved = next_step;
  };
  Snapshot before;
  for (; step < training.train_iters && !stops(); ++step) {
    if (training.grad_norm_skip_threshold > 0) before.take(schedule, executor);
    write_batch(schedule, scenario, source, step, memory_of);
    write_hyper(schedule, scenario, step, memory_of);
    executor.upload(Executor::Contents::inputs);
    const Timeline timeline = executor.run_without_rows(1);
    executor.download(Executor::Contents::results);
    const StepMetrics metrics = read_metrics(schedule, memory_of, first_rank);
    const double step_ms = to_ms(timeline.step_end - timeline.step_begin);
    // A norm that is not a number is above no threshold.
    const bool is_skipped =
        training.grad_norm_skip_threshold > 0 && metrics.gradient_norm > training.grad_norm_skip_threshold;
    if (is_skipped) before.restore(schedule, executor);
    result.steps.push_back({step, metrics.loss, metrics.gradient_norm, learning_rate(training, step), step_ms,
                            tokens_per_step / step_ms * 1e3, is_skipped});
    if (options.on_step) options.on_step(result.steps.back());
    // Megatron-LM's check_for_nan_in_loss. Nothing of this step is saved: existing checkpoints stay.
    if (!is_skipped && (!std::isfinite(metrics.loss) || !std::isfinite(metrics.gradient_norm)))
      throw runtime_failure("step " + std::to_string(step + 1) + ": loss " + std::to_string(metrics.loss) +
                            ", gradient norm " + std::to_string(metrics.gradient_norm) +
                            ": not finite; a lower lr or clip_grad may help, and checkpoints from before are kept");
    const auto is_due = [&](std::int64_t interval) { return interval > 0 && (step + 1) % interval == 0; };
    if (validation && (is_due(training.eval_interval) || step + 1 == training.train_iters))
      result.evaluations.push_back(validation->run(schedule, executor, step + 1, options));
    if (checkpoints && is_due(training.checkpoint_interval)) save(step + 1);
  }
  if (checkpoints && saved != step) save(step);
  result.finished = step >= training.train_iters;
  if (processes) processes->barrier();  // no process leaves while others still read from it
  return result;
}

Evaluation evaluate_state(const Scenario& scenario, const Schedule& schedule, Executor& executor,
                          const TrainOptions& options) {
  const Training& training = scenario.training;
  require_executable(scenario);
  const bool has_validation = !training.validation_data.empty();
  if (!has_validation && training.data.empty()) open_data(scenario);  // throws
  if (scenario.model.hidden_dropout > 0 || scenario.model.attention_dropout > 0)
    throw input_error("evaluate: expected hidden_dropout and attention_dropout 0, got dropout");
  Evaluator evaluator(scenario, has_validation ? training.validation_data : training.data,
                      has_validation ? std::vector<double>{} : training.data_weights);
  const std::int64_t step = load_trained(scenario, schedule, memory_of(executor), options);
  executor.upload(Executor::Contents::state);
  const Evaluation result = evaluator.run(schedule, executor, step, options);
  if (options.processes) options.processes->barrier();  // no process leaves while others still read from it
  return result;
}

}  // namespace

std::int64_t load_trained(const Scenario& scenario, const Schedule& schedule, const MemoryOf& memory_of,
                          const TrainOptions& options) {
  const Training& training = scenario.training;
  clear_state(schedule, memory_of);
  std::int64_t step = -1;
  if (!training.checkpoint_dir.empty()) step = resume(scenario, schedule, memory_of, {}, options);
  if (step < 0 && training.load.empty())
    throw input_error((scenario.file.empty() ? scenario.name : scenario.file) +
                      ": [training]: expected a checkpoint_dir with checkpoints, or load with weights, got none");
  if (step < 0) load_weights(scenario, schedule, memory_of, options);
  return std::max<std::int64_t>(step, 0);
}

Evaluation evaluate(const Scenario& scenario, const Schedule& schedule, Executor& executor,
                    const TrainOptions& options) {
  try {
    return evaluate_state(scenario, schedule, executor, options);
  } catch (const Error& error) {
    if (options.processes) options.processes->fail(error.what(), error.kind());
    throw;
  }
}

TrainResult train(const Scenario& scenario, const Schedule& schedule, Executor& executor, const TrainOptions& options) {
  try {
    return train_steps(scenario, schedule, executor, options);
  } catch (const Error& error) {
    if (options.processes) options.processes->fail(error.what(), error.kind());
    throw;
  }
}

void require_data(const Scenario& scenario) {
  open_data(scenario);
  if (!scenario.training.validation_data.empty()) TokenSource::open(scenario.training.validation_data, {});
}

void require_executable(const Scenario& scenario) {
  if (!scenario.model.left_out.empty())
    throw input_error(
        "[model] hf_config: expected a model that can be executed as its config.json says it, got one of "
        "which a part is left out, which is predicted alone: " +
        scenario.model.left_out.front());
  if (scenario.training.fp8_dot_product_attention)
    throw input_error(
        "[training] fp8_dot_product_attention: expected false where a step is executed, got true: attention in fp8 is "
        "predicted alone");
  const OptimizerPrecision& types = scenario.training.optimizer_precision;
  if (types.has_scaled_states())
    throw input_error(fmt::format(
        "[training] main_params_dtype, exp_avg_dtype, exp_avg_sq_dtype: expected \"fp32\", or moments in \"bf16\", "
        "where "
        "a step is executed, got \"{}\", \"{}\" and \"{}\": states with one scale a tensor are predicted alone",
        name_of(types.main_params_dtype), name_of(types.exp_avg_dtype), name_of(types.exp_avg_sq_dtype)));
}

}  // namespace stretto::exec
