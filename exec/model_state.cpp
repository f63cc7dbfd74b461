#include "exec/model_state.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <numbers>
#include <span>
#include <string_view>
#include <unordered_map>

#include "base/bf16.hpp"
#include "base/error.hpp"
#include "base/parallel.hpp"
#include "base/rng.hpp"
#include "model/layout.hpp"
#include "model/lower/parameters.hpp"
#include "model/lower/sharding.hpp"

namespace stretto::exec {
namespace {

constexpr std::int64_t kThreadElements = 1 << 16;  // that are worth a thread
constexpr std::int64_t kThreadBytes = 1 << 24;

// Where elements of a learnable array lie.
struct Location {
  StorageId storage = 0;
  std::int64_t offset = 0;
};

std::string prefix_of(StatePart part) {
  switch (part) {
    case StatePart::adam_m:
      return "adam.m.";
    case StatePart::adam_v:
      return "adam.v.";
    case StatePart::parameters:
    case StatePart::gradients:
      return "";
  }
  return "";
}

// What an array of a part is read from and written to.
enum class Source : std::uint8_t { parameter, gradient, m, v, master };

// Tensors of a source that hold a shard of a bucket each, "adam.m.b3"; "" where whole buckets are held.
std::string shards_of(Source source) {
  switch (source) {
    case Source::m:
      return "adam.m";
    case Source::v:
      return "adam.v";
    case Source::master:
      return kMasterPrefix;
    case Source::parameter:
    case Source::gradient:
      return "";
  }
  return "";
}

// The exact parameters are the optimizer's where it has them.
bool has_master(const Schedule& schedule) { return accumulation_of(schedule.compute_dtype) != schedule.compute_dtype; }
Source source_of(const Schedule& schedule, StatePart part) {
  switch (part) {
    case StatePart::parameters:
      return has_master(schedule) ? Source::master : Source::parameter;
    case StatePart::gradients:
      return Source::gradient;
    case StatePart::adam_m:
      return Source::m;
    case StatePart::adam_v:
      return Source::v;
  }
  return Source::parameter;
}

// Rows that make up a vocabulary for better shapes are nobody's business outside.
std::int64_t saved_rows(const Transformer& model, const Parameter& p) {
  return p.name == "wte.weight" || p.name == "lm_head.weight" ? model.vocab_size : p.rows;
}

// A schedule's tensors by name and the model's chunks, found once for all parameters.
struct Arrays {
  const Schedule& schedule;
  std::vector<ModelChunk> chunks;
  StageMap map;
  std::unordered_map<std::string_view, TensorId> by_name;

  Arrays(const Schedule& given, const Scenario& scenario)
      : schedule(given), chunks(model_chunks(scenario.model, scenario.parallel)), map(stage_map(scenario.parallel)) {
    by_name.reserve(schedule.tensors.size());
    for (TensorId id = 0; id < schedule.tensors.size(); ++id) by_name.emplace(schedule.tensors[id].name, id);
  }
  bool has(const std::string& name) const { return by_name.contains(name); }
  const Tensor& tensor(const std::string& name) const { return schedule.tensors[by_name.at(name)]; }
};

// Where a learnable array is: the family that holds it on a pipeline stage. A tied embedding is on two.
struct Home {
  std::string family;
  std::int64_t stage = 0;
};
std::vector<Home> homes_of(const Arrays& arrays, const Parameter& p) {
  const StageMap& map = arrays.map;
  if (p.layer < 0) {
    const bool is_embedding = p.name == "wte.weight" || p.name == "wpe.weight";
    std::vector<Home> homes = {{p.name, is_embedding ? map.first_stage() : map.last_stage()}};
    if (p.name == "wte.weight" && arrays.has(kTiedHeadWeight)) homes.push_back({kTiedHeadWeight, map.last_stage()});
    return homes;
  }
  // Chunks end one after the other.
  const auto chunk = std::upper_bound(arrays.chunks.begin(), arrays.chunks.end(), p.layer,
                                      [](std::int64_t layer, const ModelChunk& c) { return layer < c.end_layer; });
  if (chunk == arrays.chunks.end()) return {};
  return {{p.name, map.stage_of(chunk - arrays.chunks.begin())}};
}

// Calls fn(index in the whole array, where it lies, its tp and pp coordinates, owner) for every element that the ranks
// of a replica hold between them. `owner` is the rank that updates the element; the others of its dp group hold a copy
// at the same place, except of optimizer state: "adam.m.b3" holds the owner's shard of bucket 3 alone. What several
// ranks of a replica hold comes once for each of them.
// In order, or, with `parallel`, on several threads.
template <class Fn>
void for_elements(const Arrays& arrays, const Parameter& whole, Source source, Fn fn, bool parallel = false) {
  const Schedule& schedule = arrays.schedule;
  const std::int64_t dp = schedule.mesh.size(Coord::dp), tp = schedule.mesh.size(Coord::tp);
  for (const Home& home : homes_of(arrays, whole)) {
    const std::string family = source == Source::gradient ? "grad." + home.family : home.family;
    const Tensor& tensor = arrays.tensor(family);
    const TensorPlace& place =
        tensor.places[static_cast<std::size_t>(std::max<std::int64_t>(whole.layer, 0) * tensor.slots)];
    const std::int64_t shard = schedule.storages[place.storage].elements / dp;
    StorageId storage = place.storage;
    const std::string shards = shards_of(source);
    const bool is_sharded = !shards.empty();
    if (is_sharded) {
      const std::string& bucket = schedule.storages[place.storage].name;
      const std::string state = shards + bucket.substr(bucket.rfind('.'));
      storage = arrays.tensor(state).places.front().storage;
    }
    for (std::int64_t t = 0; t < tp; ++t) {
      const auto of_part = [&](std::int64_t begin, std::int64_t end) {
        Coordinates owner;
        owner[Coord::pp] = home.stage;
        owner[Coord::tp] = t;
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t in_bucket = place.offset + i;
          owner[Coord::dp] = in_bucket / shard;
          fn(index_in_whole(whole, tp, t, i), Location{storage, is_sharded ? in_bucket % shard : in_bucket}, owner,
             schedule.mesh.rank_of(owner));
        }
      };
      if (parallel)
        parallel_for(tensor.elements(), kThreadElements, of_part);
      else
        of_part(0, tensor.elements());
    }
  }
}

double load(const Schedule& schedule, host::RankMemory& memory, const Location& at) {
  const std::byte* base = memory.at(at.storage);
  switch (schedule.storages[at.storage].dtype) {
    case Dtype::f64:
      return reinterpret_cast<const double*>(base)[at.offset];
    case Dtype::f32:
      return reinterpret_cast<const float*>(base)[at.offset];
    case Dtype::bf16:
      return to_float(reinterpret_cast<const Bf16*>(base)[at.offset]);
    case Dtype::i32:
      break;
  }
  assert(false && "learnable arrays are of a floating type");
  return 0;
}
void store(const Schedule& schedule, host::RankMemory& memory, const Location& at, double value) {
  std::byte* base = memory.at(at.storage);
  switch (schedule.storages[at.storage].dtype) {
    case Dtype::f64:
      reinterpret_cast<double*>(base)[at.offset] = value;
      return;
    case Dtype::f32:
      reinterpret_cast<float*>(base)[at.offset] = static_cast<float>(value);
      return;
    case Dtype::bf16:
      reinterpret_cast<Bf16*>(base)[at.offset] = to_bf16(static_cast<float>(value));
      return;
    case Dtype::i32:
      break;
  }
  assert(false && "learnable arrays are of a floating type");
}

// nullptr where the rank does not have it: only the first stage reads tokens, only the last reads targets.
std::byte* tensor_data(const Schedule& schedule, host::RankMemory& memory, const std::string& name,
                       std::int64_t slot = 0, std::int64_t layer = 0) {
  const Tensor& tensor = schedule.tensors[schedule.find_tensor(name).value()];
  const TensorPlace& place = tensor.places[static_cast<std::size_t>(layer * tensor.slots + slot)];
  if (!memory.has(place.storage)) return nullptr;
  return memory.at(place.storage) + place.offset * bytes_of(schedule.storages[place.storage].dtype);
}

// Into all ranks with the tp and pp coordinates of `owner`.
void store_everywhere(const Schedule& schedule, const MemoryOf& memory_of, const Location& at, const Coordinates& owner,
                      double value) {
  Coordinates rank = owner;
  for (std::int64_t d = 0; d < schedule.mesh.size(Coord::dp); ++d) {
    rank[Coord::dp] = d;
    if (host::RankMemory* memory = memory_of.find(schedule.mesh.rank_of(rank))) store(schedule, *memory, at, value);
  }
}

// values: of the whole array, without padding or with it.
void write_array(const Arrays& arrays, const MemoryOf& memory_of, const Parameter& whole, Source source,
                 std::span<const double> values) {
  const Schedule& schedule = arrays.schedule;
  const bool is_sharded = !shards_of(source).empty();
  for_elements(
      arrays, whole, source,
      [&](std::int64_t index, const Location& at, const Coordinates& coordinates, std::int64_t owner) {
        if (index >= std::int64_t(values.size())) return;
        const double value = values[static_cast<std::size_t>(index)];
        if (!is_sharded)
          store_everywhere(schedule, memory_of, at, coordinates, value);
        else if (host::RankMemory* memory = memory_of.find(owner))
          store(schedule, *memory, at, value);
      },
      true);
}

// Parameters, and their exact form where the optimizer has one.
void write_part(const Arrays& arrays, const MemoryOf& memory_of, const Parameter& whole, StatePart part,
                std::span<const double> values) {
  write_array(arrays, memory_of, whole, source_of(arrays.schedule, part), values);
  if (part == StatePart::parameters && has_master(arrays.schedule))
    write_array(arrays, memory_of, whole, Source::parameter, values);
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

void initialise_state(const Schedule& schedule, const Scenario& scenario, const MemoryOf& memory_of) {
  const double residual_scale = 1.0 / std::sqrt(2.0 * double(scenario.model.num_layers));
  const std::uint64_t seed = scenario.training.seed;
  const Arrays arrays(schedule, scenario);
  clear_state(schedule, memory_of);
  std::vector<double> values;
  for (const Parameter& p : parameters(scenario.model)) {
    const bool norm_weight = p.name.starts_with("ln_") && p.name.ends_with(".weight");
    double std = p.decayed ? scenario.training.init_method_std : 0;
    if (p.name == "proj.weight" || p.name == "fc2.weight") std *= residual_scale;
    const std::uint64_t stream = stream_of(p.full_name());
    values.assign(static_cast<std::size_t>(p.elements()), norm_weight ? 1.0 : 0.0);
    if (std > 0)
      parallel_for(std::ssize(values), kThreadElements, [&](std::int64_t begin, std::int64_t end) {
        for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
          values[i] = std * normal(seed, stream, i);
      });
    write_part(arrays, memory_of, p, StatePart::parameters, values);
  }
}

namespace {

// A stretch of a whole array that lies in one process, as it is sent to rank 0.
struct Stretch {
  std::int64_t begin = 0, count = 0;
};

// Stretches, each followed by its values.
class StretchWriter {
 public:
  void add(std::int64_t index, double value) {
    if (bytes_.empty() || index != stretch_.begin + stretch_.count) {
      begin_ = bytes_.size();
      stretch_ = {index, 0};
      append(stretch_);
    }
    ++stretch_.count;
    append(value);
    std::memcpy(bytes_.data() + begin_, &stretch_, sizeof stretch_);
  }
  const launch::Bytes& bytes() const { return bytes_; }

 private:
  template <class T>
  void append(const T& value) {
    const auto* data = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), data, data + sizeof value);
  }
  launch::Bytes bytes_;
  std::size_t begin_ = 0;
  Stretch stretch_;
};

void read_stretches(std::span<const std::byte> bytes, std::vector<double>& values) {
  while (!bytes.empty()) {
    Stretch stretch;
    if (bytes.size() < sizeof stretch) throw runtime_failure("a rank sent something that is no part of a tensor");
    std::memcpy(&stretch, bytes.data(), sizeof stretch);
    bytes = bytes.subspan(sizeof stretch);
    const std::int64_t most = std::ssize(values);
    if (stretch.begin < 0 || stretch.begin > most || stretch.count < 0 || stretch.count > most - stretch.begin ||
        static_cast<std::size_t>(stretch.count) > bytes.size() / sizeof(double))
      throw runtime_failure("a rank sent something that is no part of a tensor");
    const auto size = static_cast<std::size_t>(stretch.count) * sizeof(double);
    if (size > 0) std::memcpy(values.data() + stretch.begin, bytes.data(), size);
    bytes = bytes.subspan(size);
  }
}

}  // namespace

MemoryOf memory_of(Executor& executor) {
  return [&executor](std::int64_t rank) { return executor.is_here(rank) ? &executor.memory(rank) : nullptr; };
}

std::vector<FullTensor> gather_state(const Schedule& schedule, const Scenario& scenario, const MemoryOf& memory_of,
                                     StatePart part, launch::ProcessGroup* processes) {
  const Arrays arrays(schedule, scenario);
  std::vector<FullTensor> result;
  for (const Parameter& p : parameters(scenario.model)) {
    FullTensor full{prefix_of(part) + p.full_name(), {saved_rows(scenario.model, p), p.cols}, {}};
    const std::int64_t size = full.shape[0] * full.shape[1];
    const bool has_result = processes == nullptr || processes->rank() == 0;
    if (has_result) full.values.resize(static_cast<std::size_t>(size));
    StretchWriter stretches;
    for_elements(arrays, p, source_of(schedule, part),
                 [&](std::int64_t whole, const Location& at, const Coordinates&, std::int64_t owner) {
                   host::RankMemory* memory = whole < size ? memory_of.find(owner) : nullptr;
                   if (memory == nullptr) return;
                   const double value = load(schedule, *memory, at);
                   if (has_result)
                     full.values[static_cast<std::size_t>(whole)] = value;
                   else
                     stretches.add(whole, value);
                 });
    // Tensor by tensor, and the next when all have this one, so that rank 0 holds no more than one of them twice.
    if (processes != nullptr) {
      const std::size_t most = static_cast<std::size_t>(size) * (sizeof(Stretch) + sizeof(double));
      for (const launch::Bytes& theirs : processes->gather(stretches.bytes(), most))
        read_stretches(theirs, full.values);
      processes->barrier();
    }
    if (has_result) result.push_back(std::move(full));
  }
  return result;
}

void scatter_state(const Schedule& schedule, const Scenario& scenario, const MemoryOf& memory_of, StatePart part,
                   const std::function<const FullTensor&(const std::string&)>& find) {
  const Arrays arrays(schedule, scenario);
  for (const Parameter& p : parameters(scenario.model)) {
    const FullTensor& full = find(prefix_of(part) + p.full_name());
    const std::int64_t rows = saved_rows(scenario.model, p);
    if (full.shape != std::vector<std::int64_t>{rows, p.cols})
      throw input_error("tensor " + full.name + " does not have the shape [" + std::to_string(rows) + ", " +
                        std::to_string(p.cols) + "] that the scenario's model needs");
    write_part(arrays, memory_of, p, part, full.values);
  }
}

std::uint64_t dropout_key(const Scenario& scenario, std::int64_t step, std::int64_t layer) {
  const auto layers = static_cast<std::uint64_t>(scenario.model.num_layers);
  return random_bits(scenario.training.seed, stream_of("dropout"),
                     static_cast<std::uint64_t>(step) * layers + static_cast<std::uint64_t>(layer));
}

namespace {

// Which elements dropout keeps: a key for every layer and step, and where the micro-batch is in the global batch.
void write_dropout_keys(const Schedule& schedule, const Scenario& scenario, std::int64_t step, std::int64_t micro_batch,
                        std::int64_t first_sample, host::RankMemory& memory) {
  for (std::int64_t layer = 0; layer < scenario.model.num_layers; ++layer) {
    const std::uint64_t key = dropout_key(scenario, step, layer);
    const std::uint32_t words[kDropoutKeyWords] = {static_cast<std::uint32_t>(key),
                                                   static_cast<std::uint32_t>(key >> 32),
                                                   static_cast<std::uint32_t>(first_sample)};
    if (std::byte* data = tensor_data(schedule, memory, kDropoutKey, micro_batch, layer))
      std::memcpy(data, words, sizeof words);
  }
}

}  // namespace

void write_batch(const Schedule& schedule, const Scenario& scenario, const TokenSource& source, std::int64_t step,
                 const MemoryOf& memory_of) {
  const std::int64_t dp = schedule.mesh.size(Coord::dp), micro = scenario.training.micro_batch_size,
                     seq = scenario.model.seq_length;
  const Sampling sampling{seq, scenario.training.global_batch_size, scenario.model.vocab_size, scenario.training.seed};
  const bool drops = schedule.find_tensor(kDropoutKey).has_value();
  const auto count = static_cast<std::size_t>(micro * seq);
  std::vector<std::int32_t> tokens(count), targets(count);
  for (std::int64_t r = 0; r < schedule.mesh.ranks(); ++r) {
    host::RankMemory* memory = memory_of.find(r);
    if (memory == nullptr) continue;
    const std::int64_t replica = schedule.mesh.coordinates_of(r)[Coord::dp];
    for (std::int64_t mb = 0; mb < scenario.num_microbatches(); ++mb) {
      const std::int64_t first_sample = (mb * dp + replica) * micro;
      fill_batch(source, sampling, step, first_sample, tokens, targets);
      if (drops) write_dropout_keys(schedule, scenario, step, mb, first_sample, *memory);
      for (const auto& [name, values] : {std::pair("tokens", &tokens), std::pair("targets", &targets)})
        if (std::byte* data = tensor_data(schedule, *memory, name, mb))
          std::memcpy(data, values->data(), count * sizeof(std::int32_t));
    }
  }
}

double learning_rate(const Training& t, std::int64_t step) {
  if (step < t.lr_warmup_iters) return t.lr * double(step + 1) / double(t.lr_warmup_iters);
  const std::int64_t decay = t.lr_decay_iters > 0 ? t.lr_decay_iters : t.train_iters;
  if (step >= decay) return t.min_lr;
  const double progress =
      double(step - t.lr_warmup_iters) / double(std::max<std::int64_t>(1, decay - t.lr_warmup_iters));
  return t.min_lr + 0.5 * (t.lr - t.min_lr) * (1 + std::cos(std::numbers::pi * progress));
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
      std::memcpy(tensor_data(schedule, *memory, "hyper"), hyper, sizeof hyper);
}

StepMetrics read_metrics(const Schedule& schedule, const MemoryOf& memory_of, std::int64_t rank) {
  const auto* metrics = reinterpret_cast<const double*>(tensor_data(schedule, memory_of(rank), "metrics"));
  return {metrics[0], std::sqrt(metrics[1])};
}

}  // namespace stretto::exec
