#include "exec/state/model_state.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <numbers>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "base/rng.hpp"
#include "exec/documents.hpp"
#include "exec/state/state_elements.hpp"
#include "model/lower/parameters.hpp"

namespace stretto::exec {
namespace {

constexpr std::int64_t kThreadBytes = 1 << 24;  // bytes that are worth a thread

// Writes an array to every rank that has it. `values` are those of the whole array. Parameters are written in both
// forms where the optimizer has one of its own.
void write_array(const Schedule& schedule, const MemoryOf& memory_of, std::span<const StatePiece> copies,
                 StatePart part, std::span<const double> values) {
  const auto write = [&](const StatePiece& copy, std::int64_t rank, StatePart form) {
    host::RankMemory* memory = memory_of.find(rank);
    if (memory == nullptr) return;
    for (const StateRun& run : runs_of(schedule, copy, form, rank, Share::held))
      write_run(schedule, *memory, run, values.data() + run.begin);
  };
  for (const StatePiece& copy : copies)
    for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank) {
      write(copy, rank, part);
      if (part == StatePart::parameters) write(copy, rank, StatePart::master);
    }
}

// Calls fn(name, array, its pieces) for every array of the model that has the part.
template <class Fn>
void for_arrays(const StateMap& state, StatePart part, Fn fn) {
  for (std::size_t first = 0; first < state.pieces.size();) {
    const std::span<const StatePiece> copies = state.copies(first);
    if (state.buckets[copies.front().bucket].window(part))
      fn(state.full_name(copies.front()), state.array_of(copies.front()), copies);
    first += copies.size();
  }
}

// Returns nullptr where the rank does not have the tensor: only the first stage reads tokens, only the last reads
// targets.
std::byte* tensor_data(const Schedule& schedule, host::RankMemory& memory, TensorId id, std::int64_t slot = 0,
                       std::int64_t layer = 0) {
  const Tensor& tensor = schedule.tensors[id];
  const TensorPlace& place = tensor.places[static_cast<std::size_t>(layer * tensor.slots + slot)];
  if (!memory.has(place.storage)) return nullptr;
  return memory.at(place.storage) + place.offset * bytes_of(schedule.storages[place.storage].dtype);
}

}  // namespace

void clear_state(const Schedule& schedule, const MemoryOf& memory_of) {
  for (StorageId id = 0; id < schedule.storages.size(); ++id) {
    const Storage& storage = schedule.storages[id];
    if (!is_persistent(storage.kind)) continue;
    for (std::int64_t r = 0; r < schedule.mesh.ranks(); ++r)
      if (host::RankMemory* memory = memory_of.find(r); memory && memory->has(id))
        parallel_for(storage.bytes(), kThreadBytes, [&](std::int64_t begin, std::int64_t end) {
          std::memset(memory->at(id) + begin, 0, static_cast<std::size_t>(end - begin));
        });
  }
}

namespace {

void draw(const std::string& full_name, const Initial& initial, std::uint64_t seed, std::vector<double>& values) {
  std::fill(values.begin(), values.end(), initial.mean);
  if (initial.deviation > 0)
    parallel_for(std::ssize(values), kThreadElements,
                 [&, stream = stream_of(full_name)](std::int64_t begin, std::int64_t end) {
                   for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
                     values[i] += initial.deviation * normal(seed, stream, i);
                 });
}

}  // namespace

FullTensor initial_tensor(const Parameter& parameter, const Scenario& scenario) {
  FullTensor full{parameter.full_name(), {parameter.rows, parameter.cols}, {}};
  full.values.resize(static_cast<std::size_t>(parameter.elements()));
  draw(full.name, initial_of(parameter, scenario), scenario.training.seed, full.values);
  return full;
}

void initialise_state(const Schedule& schedule, const Scenario& scenario, const MemoryOf& memory_of) {
  clear_state(schedule, memory_of);
  std::vector<double> values;
  for_arrays(schedule.state, StatePart::parameters,
             [&](const std::string& name, const ModelArray& array, const auto& copies) {
               values.resize(static_cast<std::size_t>(array.elements()));
               draw(name, {array.mean, array.deviation}, scenario.training.seed, values);
               write_array(schedule, memory_of, copies, StatePart::parameters, values);
             });
}

MemoryOf memory_of(Executor& executor) {
  return [&executor](std::int64_t rank) { return executor.is_here(rank) ? &executor.memory(rank) : nullptr; };
}

std::vector<FullTensor> gather_state(const Schedule& schedule, const MemoryOf& memory_of, StatePart part) {
  std::vector<FullTensor> result;
  for_arrays(schedule.state, part, [&](const std::string& name, const ModelArray& array, const auto& copies) {
    FullTensor full{prefix_in_files(part) + name, {array.rows, array.cols}, {}};
    full.values.resize(static_cast<std::size_t>(array.elements()));
    for (const StatePiece& copy : copies)
      for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank)
        for (const StatePart form : exact_forms(schedule, copy, part))
          for (const StateRun& run : runs_of(schedule, copy, form, rank, Share::owned))
            read_run(schedule, memory_of(rank), run, full.values.data() + run.begin);
    result.push_back(std::move(full));
  });
  return result;
}

std::optional<FullTensor> initial_outside_model(const Schedule& schedule, const std::string& full_name) {
  for (const StatePiece& piece : schedule.state.pieces) {
    const ModelArray& array = schedule.state.array_of(piece);
    if (array.of_model || schedule.state.full_name(piece) != full_name) continue;
    return FullTensor{full_name,
                      {array.rows, array.cols},
                      std::vector<double>(static_cast<std::size_t>(array.elements()), array.mean)};
  }
  return std::nullopt;
}

void scatter_state(const Schedule& schedule, const MemoryOf& memory_of, StatePart part,
                   const std::function<const FullTensor&(const std::string&)>& find) {
  for_arrays(schedule.state, part, [&](const std::string& name, const ModelArray& array, const auto& copies) {
    const FullTensor& full = find(prefix_in_files(part) + name);
    if (full.shape != std::vector<std::int64_t>{array.rows, array.cols})
      throw input_error("tensor " + full.name + " does not have the shape [" + std::to_string(array.rows) + ", " +
                        std::to_string(array.cols) + "] that the scenario's model needs");
    write_array(schedule, memory_of, copies, part, full.values);
  });
}

std::uint64_t dropout_key(const Scenario& scenario, std::int64_t step, std::int64_t layer) {
  const auto layers = static_cast<std::uint64_t>(scenario.model.num_layers);
  return random_bits(scenario.training.seed, stream_of("dropout"),
                     static_cast<std::uint64_t>(step) * layers + static_cast<std::uint64_t>(layer));
}

namespace {

// Writes the inputs that decide which elements dropout keeps: a key for every layer and step, and the micro-batch's
// place in the global batch.
void write_dropout_keys(const Schedule& schedule, TensorId keys, const Scenario& scenario, std::int64_t step,
                        std::int64_t micro_batch, std::int64_t first_sample, host::RankMemory& memory) {
  for (std::int64_t layer = 0; layer < schedule.tensors[keys].layers; ++layer) {
    const std::uint64_t key = dropout_key(scenario, step, layer);
    const std::uint32_t words[kDropoutKeyWords] = {static_cast<std::uint32_t>(key),
                                                   static_cast<std::uint32_t>(key >> 32),
                                                   static_cast<std::uint32_t>(first_sample)};
    if (std::byte* data = tensor_data(schedule, memory, keys, micro_batch, layer))
      std::memcpy(data, words, sizeof words);
  }
}

}  // namespace

void write_batch(const Schedule& schedule, const Scenario& scenario, const TokenSource& source, std::int64_t step,
                 const MemoryOf& memory_of) {
  const StepData& inputs = schedule.step_data;
  const Sampling sampling{scenario.model.seq_length, scenario.training.global_batch_size, scenario.model.vocab_size,
                          scenario.training.seed};
  const Tensor& ids = schedule.tensors[inputs.tokens];
  const auto count = static_cast<std::size_t>(ids.elements());
  const std::int64_t seq = sampling.seq, samples = ids.elements() / inputs.parts.tokens(seq);
  const auto all = static_cast<std::size_t>(samples * seq);
  std::vector<std::int32_t> tokens(all), targets(all), documents(inputs.documents ? all : 0), own(count);
  const std::int64_t end = scenario.training.eod_token;
  const double weight = inputs.loss_weight ? loss_weight(source, sampling, step, end) : 1;
  for (std::int64_t r = 0; r < schedule.mesh.ranks(); ++r) {
    host::RankMemory* memory = memory_of.find(r);
    if (memory == nullptr) continue;
    Coordinates at = schedule.mesh.coordinates_of(r);
    for (std::int64_t mb = 0; mb < ids.slots; ++mb) {
      at[Coord::micro_batch] = mb;
      const std::int64_t first_sample = inputs.first_sample.eval(at);
      fill_batch(source, sampling, step, first_sample, tokens, targets);
      if (inputs.documents) {
        find_documents(tokens, seq, end, documents);
        if (std::byte* data = tensor_data(schedule, *memory, *inputs.documents, mb))
          std::memcpy(data, documents.data(), all * sizeof(std::int32_t));
      }
      if (inputs.loss_weight) {
        mask_ends(tokens, end, targets);
        if (std::byte* data = tensor_data(schedule, *memory, *inputs.loss_weight))
          std::memcpy(data, &weight, sizeof weight);
      }
      if (inputs.dropout_keys)
        write_dropout_keys(schedule, *inputs.dropout_keys, scenario, step, mb, first_sample, *memory);
      SequenceParts parts = inputs.parts;
      parts.first = parts.first.eval(at);
      for (const auto& [id, values] : {std::pair(inputs.tokens, &tokens), std::pair(inputs.targets, &targets)}) {
        std::byte* data = tensor_data(schedule, *memory, id, mb);
        if (data == nullptr) continue;
        for (std::int64_t sample = 0; sample < samples; ++sample)
          for (const SequenceRun& run : runs_of(parts, seq, samples, sample))
            std::copy_n(values->begin() + sample * seq + run.position, run.length, own.begin() + run.row);
        std::memcpy(data, own.data(), count * sizeof(std::int32_t));
      }
    }
  }
}

namespace {

// Returns the share of lr - min_lr that is left when the share `r` of the decay has passed.
double left_of(const Training& t, double r) {
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * r));
  switch (t.lr_decay_style) {
    case LrDecay::cosine:
      return cosine;
    case LrDecay::linear:
      return 1 - r;
    case LrDecay::constant:
      return 1;
    case LrDecay::wsd:
      break;
  }
  switch (t.lr_wsd_decay_style) {
    case WsdDecay::exponential:
      return 2 * std::pow(0.5, r) - 1;
    case WsdDecay::linear:
      return 1 - r;
    case WsdDecay::cosine:
      return cosine;
    case WsdDecay::minus_sqrt:
      return 1 - std::sqrt(r);
  }
  return 1;
}

}  // namespace

double learning_rate(const Training& t, std::int64_t step) {
  if (step < t.lr_warmup_iters) return t.lr * double(step + 1) / double(t.lr_warmup_iters);
  if (t.lr_decay_style == LrDecay::constant) return t.lr;
  const std::int64_t decay = t.lr_decay_iters > 0 ? t.lr_decay_iters : t.train_iters;
  if (step >= decay) return t.min_lr;
  const auto passed = [&](std::int64_t begin) {
    return double(std::max<std::int64_t>(0, step - begin)) / double(std::max<std::int64_t>(1, decay - begin));
  };
  return t.min_lr +
         left_of(t, passed(t.lr_decay_style == LrDecay::wsd ? std::max(t.lr_warmup_iters, decay - t.lr_wsd_decay_iters)
                                                            : t.lr_warmup_iters)) *
             (t.lr - t.min_lr);
}

void write_hyper(const Schedule& schedule, const Scenario& scenario, std::int64_t step, const MemoryOf& memory_of) {
  const Training& t = scenario.training;
  const double count = double(step + 1);
  const double hyper[8] = {learning_rate(t, step),
                           t.adam_beta1,
                           t.adam_beta2,
                           t.adam_eps,
                           t.weight_decay,
                           t.clip_grad,
                           1 - std::pow(t.adam_beta1, count),
                           1 - std::pow(t.adam_beta2, count)};
  for (std::int64_t r = 0; r < schedule.mesh.ranks(); ++r)
    if (host::RankMemory* memory = memory_of.find(r))
      std::memcpy(tensor_data(schedule, *memory, schedule.step_data.hyper), hyper, sizeof hyper);
}

StepMetrics read_metrics(const Schedule& schedule, const MemoryOf& memory_of, std::int64_t rank) {
  const auto* metrics =
      reinterpret_cast<const double*>(tensor_data(schedule, memory_of(rank), schedule.step_data.metrics));
  return {metrics[0], std::sqrt(metrics[1])};
}

}  // namespace stretto::exec
