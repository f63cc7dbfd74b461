#include "exec/trainer.hpp"

#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>

#include "base/error.hpp"
#include "exec/checkpoint.hpp"
#include "exec/data.hpp"
#include "exec/directory_lock.hpp"
#include "exec/model_state.hpp"
#include "exec/training_record.hpp"
#include "exec/weights.hpp"

namespace stretto::exec {
namespace {

constexpr StatePart kSaved[] = {StatePart::parameters, StatePart::adam_m, StatePart::adam_v};

// Rank 0 writes, of what all processes have.
// `before`: as write_checkpoint() has it.
void save(const Scenario& scenario, const Schedule& schedule, const MemoryOf& memory_of, std::int64_t next_step,
          std::int64_t before, const CheckpointMetadata& record, const TrainOptions& options) {
  std::vector<FullTensor> full;
  for (const StatePart part : kSaved)
    for (FullTensor& tensor : gather_state(schedule, memory_of, part, options.processes))
      full.push_back(std::move(tensor));
  if (options.processes && options.processes->rank() != 0) return;
  const Dtype saved = accumulation_of(schedule.compute_dtype);
  std::vector<std::vector<float>> narrowed;  // what is kept in f32 is saved in f32
  std::vector<NamedTensor> tensors;
  narrowed.reserve(full.size());
  for (const FullTensor& tensor : full) {
    NamedTensor named{tensor.name, saved, tensor.shape, std::as_bytes(std::span(tensor.values))};
    if (saved == Dtype::f32) {
      narrowed.emplace_back(tensor.values.begin(), tensor.values.end());
      named.data = std::as_bytes(std::span(narrowed.back()));
    }
    tensors.push_back(named);
  }
  const std::string path = write_checkpoint(scenario.training.checkpoint_dir, next_step, before, record, tensors);
  if (options.on_message) options.on_message("checkpoint " + path);
}

// Returns the step to go on with.
std::int64_t resume(const Scenario& scenario, const Schedule& schedule, const MemoryOf& memory_of,
                    const CheckpointMetadata& settings, const TrainOptions& options) {
  const LatestCheckpoint latest = find_latest(scenario.training.checkpoint_dir);
  for (const std::string& warning : latest.warnings)
    if (options.on_message) options.on_message("warning: " + warning);
  if (!latest.checkpoint) return -1;
  const Checkpoint& checkpoint = *latest.checkpoint;
  require_same_training(checkpoint, scenario);
  FullTensor converted;
  for (const StatePart part : kSaved)
    scatter_state(schedule, memory_of, part, [&](const std::string& name) -> const FullTensor& {
      const NamedTensor* tensor = checkpoint.find(name);
      if (tensor == nullptr) throw input_error(checkpoint.path() + ": has no tensor " + name);
      if (tensor->dtype != accumulation_of(schedule.compute_dtype))
        throw input_error(checkpoint.path() + ": tensor " + name + " is " + std::string(name_of(tensor->dtype)));
      converted.name = name;
      converted.shape = tensor->shape;
      if (tensor->dtype == Dtype::f64) {
        const auto* begin = reinterpret_cast<const double*>(tensor->data.data());
        converted.values.assign(begin, begin + tensor->data.size() / sizeof(double));
      } else {
        const auto* begin = reinterpret_cast<const float*>(tensor->data.data());
        converted.values.assign(begin, begin + tensor->data.size() / sizeof(float));
      }
      return converted;
    });
  if (options.on_message) {
    options.on_message("resumed from " + checkpoint.path());
    if (const std::string changed = changed_settings(checkpoint, settings); !changed.empty())
      options.on_message("note: not as the checkpoint was trained: " + changed);
    if (checkpoint.step() >= scenario.training.train_iters)
      options.on_message("training is done: the checkpoint is of step " + std::to_string(checkpoint.step()) +
                         " and train_iters is " + std::to_string(scenario.training.train_iters) +
                         "; raise [training] train_iters to go on, or choose another checkpoint_dir to begin anew");
  }
  return checkpoint.step();
}

void load_weights(const Scenario& scenario, const Schedule& schedule, const MemoryOf& memory_of,
                  const TrainOptions& options) {
  const Weights weights = Weights::open(scenario.training.load, scenario.model);
  FullTensor read;
  scatter_state(schedule, memory_of, StatePart::parameters,
                [&](const std::string& name) -> const FullTensor& { return read = weights.read(name); });
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

// Processes that do not see the same checkpoints would go on with different steps.
void require_same_step(launch::ProcessGroup& processes, std::int64_t resumed_from, const std::string& dir) {
  const std::vector<std::int64_t> all = processes.all_gather_value(resumed_from);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == all.front()) continue;
    const auto said = [](std::int64_t step) {
      return step < 0 ? std::string("none") : "that of step " + std::to_string(step);
    };
    throw input_error("[training] checkpoint_dir: expected one that all processes see; of the checkpoints in " + dir +
                      " rank 0 found " + said(all.front()) + " and rank " + std::to_string(rank) + " " +
                      said(all[rank]));
  }
}

TrainResult train_steps(const Scenario& scenario, const Schedule& schedule, Executor& executor,
                        const TrainOptions& options) {
  const Training& training = scenario.training;
  launch::ProcessGroup* processes = options.processes;
  const std::int64_t first_rank = executor.programs().front().rank;
  const TokenSource source = open_data(scenario);
  const bool checkpoints = !training.checkpoint_dir.empty(), is_writer = processes == nullptr || processes->rank() == 0;
  std::optional<DirectoryLock> lock;
  if (checkpoints && is_writer) {
    require_checkpoint_dir(training.checkpoint_dir);
    lock.emplace(training.checkpoint_dir);
    if (!lock->is_held() && options.on_message)
      options.on_message("note: the file system of " + training.checkpoint_dir +
                         " knows no locks; nothing keeps a second run from writing there");
  }
  // Nobody looks at what another run is about to delete.
  if (checkpoints && processes) processes->barrier();
  const MemoryOf memory_of = exec::memory_of(executor);
  clear_state(schedule, memory_of);

  TrainResult result;
  CheckpointMetadata settings;
  if (checkpoints) {
    settings = settings_of(training, source);
    result.resumed_from = resume(scenario, schedule, memory_of, settings, options);
  }
  if (checkpoints && processes) require_same_step(*processes, result.resumed_from, training.checkpoint_dir);
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
    // Megatron-LM's check_for_nan_in_loss. Nothing of this is saved: the checkpoints there are stay.
    if (!std::isfinite(metrics.loss) || !std::isfinite(metrics.gradient_norm))
      throw runtime_failure("step " + std::to_string(step + 1) + ": loss " + std::to_string(metrics.loss) +
                            ", gradient norm " + std::to_string(metrics.gradient_norm) +
                            ": not finite; a lower lr or clip_grad may help, and checkpoints from before are kept");
    if (checkpoints && training.checkpoint_interval > 0 && (step + 1) % training.checkpoint_interval == 0) {
      executor.download(Executor::Contents::state);
      save(scenario, schedule, memory_of, step + 1, saved, record, options);
      saved = step + 1;
    }
  }
  if (checkpoints && saved != step) {
    executor.download(Executor::Contents::state);
    save(scenario, schedule, memory_of, step, saved, record, options);
  }
  result.finished = step >= training.train_iters;
  if (processes) processes->barrier();  // nobody leaves while others still read from it
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
