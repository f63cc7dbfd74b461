#include "exec/state/saved_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "exec/state/state_portion.hpp"

namespace stretto::exec {
namespace {

constexpr StatePart kSaved[] = {StatePart::parameters, StatePart::adam_m, StatePart::adam_v};
constexpr std::size_t kPieceElements = 1 << 16;  // elements that are converted at once

// Calls fn(first piece, part) for everything that is saved, in the order of files.
template <class Fn>
void for_saved(const Schedule& schedule, Fn fn) {
  const std::vector<std::size_t> arrays = arrays_of(schedule.state);
  for (const StatePart part : kSaved)
    for (const std::size_t first : arrays)
      if (schedule.state.buckets[schedule.state.pieces[first].bucket].window(part)) fn(first, part);
}

// Values that are kept in f32 are saved in f32.
void emit_as(Dtype dtype, std::span<const double> values, const Sink& sink) {
  if (dtype == Dtype::f64) return sink(std::as_bytes(values));
  std::vector<float> narrowed;
  for (; !values.empty(); values = values.subspan(narrowed.size())) {
    const auto piece = values.first(std::min(values.size(), kPieceElements));
    narrowed.assign(piece.begin(), piece.end());
    sink(std::as_bytes(std::span(narrowed)));
  }
}

void widen(Dtype dtype, std::span<const std::byte> data, std::span<double> values) {
  if (dtype == Dtype::f64) {
    if (!data.empty()) std::memcpy(values.data(), data.data(), data.size());
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    float value = 0;
    std::memcpy(&value, data.data() + i * sizeof value, sizeof value);
    values[i] = value;
  }
}

}  // namespace

CheckpointContents saved_state(const Schedule& schedule, const MemoryOf& memory_of) {
  const Dtype dtype = accumulation_of(schedule.compute_dtype);
  CheckpointContents contents;
  for_saved(schedule, [&](std::size_t first, StatePart part) {
    const ModelArray& array = schedule.state.array_of(schedule.state.pieces[first]);
    contents.tensors.push_back({name_in_files(schedule.state, first, part), dtype, {array.rows, array.cols}});
    const StatePortion portion(schedule, memory_of, first, part, StatePortion::Of::saved);
    contents.parts.push_back(parts_of(portion.stretches(), array.cols));
  });
  contents.emit = [&schedule, &memory_of, dtype](const Sink& sink) {
    std::vector<double> values;
    for_saved(schedule, [&](std::size_t first, StatePart part) {
      const StatePortion portion(schedule, memory_of, first, part, StatePortion::Of::saved);
      values.resize(static_cast<std::size_t>(portion.elements()));
      portion.gather(values);
      emit_as(dtype, values, sink);
    });
  };
  return contents;
}

void read_saved_state(const Schedule& schedule, const MemoryOf& memory_of, const TensorFile& file) {
  const Dtype dtype = accumulation_of(schedule.compute_dtype);
  std::vector<std::byte> data;
  std::vector<double> values;
  for_saved(schedule, [&](std::size_t first, StatePart part) {
    const ModelArray& array = schedule.state.array_of(schedule.state.pieces[first]);
    const std::string name = name_in_files(schedule.state, first, part);
    const StoredTensor* tensor = file.find(name);
    if (tensor == nullptr) throw input_error(fmt::format("{}: has no tensor {}", file.name(), name));
    if (tensor->dtype != spelled(dtype))
      throw input_error(
          fmt::format("{}: tensor {}: expected {}, got {}", file.name(), name, spelled(dtype), tensor->dtype));
    if (tensor->shape != std::vector<std::int64_t>{array.rows, array.cols})
      throw input_error(fmt::format("{}: tensor {}: expected the shape [{}, {}] of the scenario's model", file.name(),
                                    name, array.rows, array.cols));
    const StatePortion portion(schedule, memory_of, first, part, StatePortion::Of::held);
    values.resize(static_cast<std::size_t>(portion.elements()));
    data.resize(values.size() * static_cast<std::size_t>(bytes_of(dtype)));
    file.read(*tensor, portion.stretches(), data.data());
    widen(dtype, data, values);
    portion.scatter(values);
  });
}

}  // namespace stretto::exec
