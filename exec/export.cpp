#include "exec/export.hpp"

#include <fmt/format.h>

#include <charconv>
#include <span>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "exec/checkpoint.hpp"
#include "exec/weights.hpp"

namespace stretto::exec {
namespace {

// The model of a checkpoint, by what the trainer writes into its metadata.
Transformer model_of(const TensorFile& file, const std::string& path) {
  const auto text = [&](const char* key) -> const std::string& {
    const auto at = file.metadata().find(key);
    if (at == file.metadata().end())
      throw input_error(fmt::format("{}: expected a checkpoint of Stretto's, but its metadata has no {}", path, key));
    return at->second;
  };
  const auto number = [&](const char* key) {
    const std::string& digits = text(key);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size() || value < 0)
      throw input_error(fmt::format("{}: __metadata__: {}: expected a number, got \"{}\"", path, key, digits));
    return value;
  };
  Transformer model;
  model.num_layers = number("num_layers");
  model.hidden_size = number("hidden_size");
  model.num_attention_heads = number("num_attention_heads");
  model.num_query_groups = number("num_query_groups");
  model.ffn_hidden_size = number("ffn_hidden_size");
  model.vocab_size = model.padded_vocab_size = number("vocab_size");
  model.normalization =
      text("normalization") == name_of(Normalization::rms_norm) ? Normalization::rms_norm : Normalization::layer_norm;
  model.position_embedding_type = text("position_embedding_type") == name_of(PositionEmbedding::rope)
                                      ? PositionEmbedding::rope
                                      : PositionEmbedding::learned_absolute;
  model.swiglu = number("swiglu") != 0;
  model.add_bias_linear = number("add_bias_linear") != 0;
  model.untie_embeddings_and_output_weights = number("untie_embeddings_and_output_weights") != 0;
  for (const StoredTensor& tensor : file.tensors())
    if (tensor.name == "wpe.weight" && !tensor.shape.empty()) model.max_position_embeddings = tensor.shape[0];
  if (model.num_attention_heads == 0) throw input_error(path + ": __metadata__: num_attention_heads: expected some");
  return model;
}

}  // namespace

void export_to_huggingface(const std::string& checkpoint, const std::string& to) {
  TensorFile file = TensorFile::open(checkpoint);
  const Transformer model = model_of(file, checkpoint);
  const Weights weights = Weights::of(std::move(file), model);
  const WeightNaming& naming = naming_for(model);
  std::vector<std::vector<float>> values;
  std::vector<NamedTensor> tensors;
  for (const Parameter& parameter : parameters(model)) {
    const FullTensor full = weights.read(parameter.full_name());
    const WeightPlace place = place_of(naming, naming.prefixes.front(), parameter);
    const double* from = full.values.data();
    for (const auto& [name, rows] : place.pieces) {
      const std::int64_t cols = parameter.decayed ? parameter.cols : 1;
      std::vector<float>& to = values.emplace_back(static_cast<std::size_t>(rows * cols));
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t col = 0; col < cols; ++col)
          to[static_cast<std::size_t>(place.is_transposed ? col * rows + row : row * cols + col)] =
              static_cast<float>(*from++);
      std::vector<std::int64_t> shape = {rows};
      if (parameter.decayed) shape = place.is_transposed ? std::vector{cols, rows} : std::vector{rows, cols};
      tensors.push_back({name, Dtype::f32, std::move(shape), std::as_bytes(std::span(to))});
    }
  }
  // Without a format of theirs, Hugging Face's readers refuse a file.
  write_safetensors(to, {{"format", "pt"}}, tensors);
}

}  // namespace stretto::exec
