#include "exec/state/export.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/new_file.hpp"
#include "exec/state/checkpoint.hpp"
#include "exec/state/model_state.hpp"
#include "exec/state/weights.hpp"
#include "model/scenario/hf_config.hpp"
#include "model/scenario/keys.hpp"

namespace stretto::exec {
namespace {

// Returns the model of a checkpoint, from the metadata that the trainer wrote.
Transformer model_of(const TensorFile& file, const std::string& path) {
  const auto text = [&](const char* key) -> const std::string& {
    const auto at = file.metadata().find(key);
    if (at == file.metadata().end())
      throw input_error(fmt::format("{}: expected a checkpoint of Stretto's, but its metadata has no {}", path, key));
    return at->second;
  };
  Scenario scenario;
  Transformer& model = scenario.model;
  for (const ScenarioKey& key : scenario_keys_of("model")) {
    if (!is_identity(key.record)) continue;
    const bool has_default = key.record == Record::identity_since || value_of(key, scenario).is_number_float() ||
                             key.name == std::string_view("seq_length");
    if (has_default && !file.metadata().contains(key.name)) continue;
    const std::string& value = text(key.name);
    if (!set_identity(key, scenario, value))
      throw input_error(fmt::format("{}: __metadata__: {}: expected a number, got \"{}\"", path, key.name, value));
  }
  model.padded_vocab_size = model.vocab_size;
  model.max_position_embeddings = model.seq_length;  // with rope, where it is only an upper bound
  for (const StoredTensor& tensor : file.tensors())
    if (tensor.name == "wpe.weight" && !tensor.shape.empty()) model.max_position_embeddings = tensor.shape[0];
  if (model.num_attention_heads == 0) throw input_error(path + ": __metadata__: num_attention_heads: expected some");
  return model;
}

// Returns rows of a parameter, from the first of `values` on, in the layout of their file.
std::vector<float> piece_of(const Parameter& parameter, const WeightPlace& place, std::int64_t rows,
                            const double* values) {
  const std::int64_t cols = parameter.decayed ? parameter.cols : 1;
  std::vector<float> piece(static_cast<std::size_t>(rows * cols));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t col = 0; col < cols; ++col)
      piece[static_cast<std::size_t>(place.is_transposed ? col * rows + row : row * cols + col)] =
          static_cast<float>(*values++);
  return piece;
}

// Writes the files. `read` returns a parameter of `model`, which has no padding. One parameter is in memory at a time.
std::vector<std::string> write(const Transformer& model, const HuggingFaceFiles& to,
                               const std::function<FullTensor(const Parameter&)>& read) {
  const WeightNaming& naming = naming_for(model);
  const std::string config = write_hf_config(model);
  std::vector<Parameter> all = parameters(model);
  for (Parameter& buffer : buffers(model)) all.push_back(std::move(buffer));
  std::vector<WeightPlace> places;
  std::vector<TensorEntry> tensors;
  for (const Parameter& parameter : all) {
    const WeightPlace& place = places.emplace_back(place_of(naming, naming.prefixes.front(), parameter));
    for (const auto& [name, rows] : place.pieces) {
      std::vector<std::int64_t> shape = {rows};
      if (parameter.decayed)
        shape = place.is_transposed ? std::vector{parameter.cols, rows} : std::vector{rows, parameter.cols};
      tensors.push_back({name, Dtype::f32, std::move(shape)});
    }
  }
  const Emit emit = [&](const Sink& sink) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (to.may_end) to.may_end();
      const FullTensor full = read(all[i]);
      const double* from = full.values.data();
      for (const auto& [name, rows] : places[i].pieces) {
        const std::vector<float> piece = piece_of(all[i], places[i], rows, from);
        sink(std::as_bytes(std::span(piece)));
        from += piece.size();
      }
    }
  };
  std::optional<NewFolder> folder;
  if (!to.config.empty()) folder.emplace(std::filesystem::path(to.config).parent_path().string());
  // Hugging Face's readers refuse a file without their "format".
  NewFile weights(to.tensors);
  write_tensors(weights, {{"format", "pt"}}, tensors, emit);
  weights.finish();
  if (to.config.empty()) return {};
  folder->add(to.config, config);
  folder->keep();
  if (model.hidden_dropout == 0 || hf_style(model) == HfStyle::gpt2) return {};
  return {
      fmt::format("hidden_dropout = {} is not in config.json: Hugging Face's model has none", model.hidden_dropout)};
}

}  // namespace

std::vector<std::string> export_to_huggingface(const std::string& checkpoint, const HuggingFaceFiles& to) {
  TensorFile file = TensorFile::open(checkpoint);
  const Transformer model = model_of(file, checkpoint);
  const Weights weights = Weights::of(std::move(file), model);
  return write(model, to, [&](const Parameter& parameter) { return weights.read(parameter.full_name()); });
}

std::vector<std::string> export_initial(const Scenario& scenario, const HuggingFaceFiles& to) {
  Transformer model = scenario.model;
  model.padded_vocab_size = model.vocab_size;
  if (scenario.training.load.empty())
    return write(model, to, [&](const Parameter& parameter) { return initial_tensor(parameter, scenario); });
  const Weights weights = Weights::open(scenario.training.load, model);
  return write(model, to, [&](const Parameter& parameter) { return weights.read(parameter.full_name()); });
}

}  // namespace stretto::exec
