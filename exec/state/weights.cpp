#include "exec/state/weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "base/bf16.hpp"
#include "base/error.hpp"
#include "base/utf8.hpp"

namespace stretto::exec {

namespace fs = std::filesystem;

namespace {

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kFileName = "model.safetensors";
constexpr std::size_t kNamed = 3;  // tensors in one message

// Returns "weight_map" of an index: tensor → file in the index's folder.
std::map<std::string, std::string> read_index(const std::string& path) {
  const ReadFile file = ReadFile::open(path);
  if (file.size() > kMaxHeaderBytes)
    throw input_error(
        fmt::format("{}: expected an index of at most {} bytes, got {}", path, kMaxHeaderBytes, file.size()));
  std::vector<std::byte> scratch;
  const std::span<const std::byte> bytes = file.view(0, file.size(), scratch);
  return parse_weight_map(require_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path), path);
}

std::string file_of(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path;
  for (const char* name : {kIndexName, kFileName})
    if (fs::exists(fs::path(path) / name, ignored)) return (fs::path(path) / name).string();
  throw input_error(
      fmt::format("{}: expected a .safetensors file, or a folder with {} or {}", path, kIndexName, kFileName));
}

// IEEE binary16.
float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 0x1fu, fraction = half & 0x3ffu;
  if (exponent == 0) return (sign != 0 ? -0x1p-24f : 0x1p-24f) * static_cast<float>(fraction);
  return std::bit_cast<float>(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13);
}

// Returns element `i` of unaligned data.
template <class T>
T element(const std::byte* data, std::int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// Calls fn(load), where load(data, i) returns element i. Returns false for types that weights cannot have.
template <class Fn>
bool with_element_type(std::string_view dtype, Fn fn) {
  const auto is = [&](std::string_view name) { return dtype == name; };
  if (is("F64")) return fn([](const std::byte* d, std::int64_t i) { return element<double>(d, i); }), true;
  if (is("F32")) return fn([](const std::byte* d, std::int64_t i) { return double(element<float>(d, i)); }), true;
  if (is("BF16"))
    return fn([](const std::byte* d, std::int64_t i) { return double(to_float(element<Bf16>(d, i))); }), true;
  if (is("F16"))
    return fn([](const std::byte* d, std::int64_t i) { return double(half_to_float(element<std::uint16_t>(d, i))); }),
           true;
  return false;
}

std::string text(const std::vector<std::int64_t>& shape) {
  std::string list;
  for (const std::int64_t extent : shape) list += (list.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + list + "]";
}

// Returns the parameters with the sizes of files: without padding of the vocabulary.
std::vector<Parameter> saved_parameters(Transformer model) {
  model.padded_vocab_size = model.vocab_size;
  std::vector<Parameter> all = parameters(model);
  for (Parameter& buffer : buffers(model)) all.push_back(std::move(buffer));
  return all;
}

}  // namespace

std::string some_of(const std::vector<std::string>& names) {
  std::string list;
  for (std::size_t i = 0; i < std::min(kNamed, names.size()); ++i) list += (i > 0 ? ", " : "") + names[i];
  return list + (names.size() > kNamed ? ", …" : "");
}

Weights Weights::of(TensorFile file, const Transformer& model) {
  Weights weights;
  weights.files_.push_back(std::make_unique<TensorFile>(std::move(file)));
  const TensorFile& only = *weights.files_.back();
  for (const StoredTensor& tensor : only.tensors())
    weights.tensors_.emplace_hint(weights.tensors_.end(), tensor.name, Piece{&only, &tensor});
  weights.find_sources(only.name(), model);
  return weights;
}

Weights Weights::open(const std::string& path, const Transformer& model) {
  const std::string file = file_of(path);
  if (!file.ends_with(".json")) return of(TensorFile::open(file), model);
  Weights weights;
  const std::map<std::string, std::string> index = read_index(file);
  std::set<std::string> names;
  for (const auto& [tensor, name] : index) names.insert(name);
  for (const std::string& name : names) {
    const std::string part = (fs::path(file).parent_path() / name).string();
    weights.files_.push_back(std::make_unique<TensorFile>(TensorFile::open(part)));
    const TensorFile& opened = *weights.files_.back();
    for (const StoredTensor& tensor : opened.tensors())
      if (const auto at = index.find(tensor.name); at != index.end() && at->second == name)
        weights.tensors_.emplace(tensor.name, Piece{&opened, &tensor});
  }
  for (const auto& [tensor, name] : index)
    if (!weights.tensors_.contains(tensor))
      throw input_error(fmt::format("{}: weight_map: {} has no tensor {}", file, name, tensor));
  weights.find_sources(file, model);
  return weights;
}

std::vector<std::string> files_of_weights(const std::string& path) {
  std::vector<std::string> files;
  try {
    files.push_back(file_of(path));
    if (!files.front().ends_with(".json")) {
      const TensorFile file = TensorFile::open(files.front(), TensorFile::Check::headers);
      for (std::size_t shard = 1; shard < file.files(); ++shard) files.push_back(file.file_name(shard));
      return files;
    }
    std::set<std::string> parts;
    for (const auto& [tensor, name] : read_index(files.front())) parts.insert(name);
    for (const std::string& part : parts) files.push_back((fs::path(files.front()).parent_path() / part).string());
  } catch (const Error&) {
    // Reading the files will report the error.
  }
  return files;
}

void Weights::find_sources(const std::string& path, const Transformer& model) {
  const std::string prefix = choose_naming(path);
  // Shapes do not reveal the number of heads.
  const CheckpointMetadata& metadata = files_.front()->metadata();
  const std::string heads = std::to_string(model.num_attention_heads);
  if (const auto stated = metadata.find("num_attention_heads"); stated != metadata.end() && stated->second != heads)
    throw input_error(
        fmt::format("{}: was written with num_attention_heads = {}, the scenario has {}", path, stated->second, heads));
  std::set<std::string> used;
  for (const Parameter& parameter : saved_parameters(model)) {
    WeightPlace place;
    try {
      place = place_of(*naming_, prefix, parameter);
    } catch (const Error& error) {
      throw input_error(path + ": " + error.what());
    }
    Source source{parameter.rows, parameter.cols, place.is_transposed, {}};
    for (const auto& [name, rows] : place.pieces) {
      std::vector<std::int64_t> shape = {rows};
      if (parameter.decayed)
        shape = place.is_transposed ? std::vector{parameter.cols, rows} : std::vector{rows, parameter.cols};
      source.pieces.push_back(find_piece(path, name, shape));
      used.insert(name);
    }
    sources_.emplace(parameter.full_name(), std::move(source));
  }
  for (const auto& [name, tensor] : tensors_)
    if (!used.contains(name) && !is_no_parameter(name)) unused_.push_back(name);
  require_tied(path, model);
}

std::string Weights::choose_naming(const std::string& path) {
  for (const WeightNaming& naming : weight_namings())
    if (const auto prefix = prefix_in(naming, [&](const std::string& name) { return tensors_.contains(name); })) {
      naming_ = &naming;
      return *prefix;
    }
  std::vector<std::string> names;
  for (const auto& [name, piece] : tensors_)
    if (names.push_back(name); names.size() > kNamed) break;
  throw input_error(
      fmt::format("{}: expected tensors named as in Stretto (h.0.qkv.weight) or as in Hugging Face's GPT-2 "
                  "(h.0.attn.c_attn.weight) or Llama (model.layers.0.self_attn.q_proj.weight), got {}",
                  path, names.empty() ? "none" : some_of(names)));
}

Weights::Piece Weights::find_piece(const std::string& path, const std::string& name,
                                   const std::vector<std::int64_t>& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    const char* hint = name == "lm_head.weight"
                           ? "; a model whose head is its embedding has untie_embeddings_and_output_weights = false"
                           : "";
    throw input_error(fmt::format("{}: has no tensor {} of shape {}{}", path, name, text(shape), hint));
  }
  const StoredTensor& tensor = *found->second.tensor;
  // Stretto's vectors have one row.
  const bool fits =
      tensor.shape == shape || (shape.size() == 1 && tensor.shape == std::vector<std::int64_t>{1, shape[0]});
  if (!fits)
    throw input_error(fmt::format("{}: tensor {}: expected shape {} as the scenario's model has it, got {}", path, name,
                                  text(shape), text(tensor.shape)));
  if (!with_element_type(tensor.dtype, [](auto) {}))
    throw input_error(fmt::format("{}: tensor {}: expected F64, F32, BF16 or F16, got {}", path, name, tensor.dtype));
  return found->second;
}

void Weights::require_finite(const FullTensor& full, const Source& source) const {
  const auto bad = std::find_if(full.values.begin(), full.values.end(), [](double v) { return !std::isfinite(v); });
  if (bad == full.values.end()) return;
  const std::int64_t cols = source.cols;
  std::int64_t at = bad - full.values.begin();
  for (const Piece& part : source.pieces) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : part.tensor->shape) elements *= extent;
    if (at >= elements) {
      at -= elements;
      continue;
    }
    std::vector<std::int64_t> index = {at};
    if (part.tensor->shape.size() == 2)
      index = source.is_transposed ? std::vector{at % cols, at / cols} : std::vector{at / cols, at % cols};
    throw input_error(fmt::format("{}: tensor {}: element {}: expected a finite number, got {}", part.file->name(),
                                  part.tensor->name, text(index), *bad));
  }
}

void Weights::require_tied(const std::string& path, const Transformer& model) {
  const auto head = tensors_.find("lm_head.weight");
  if (model.untie_embeddings_and_output_weights || head == tensors_.end()) return;
  const Piece& embedding = sources_.at("wte.weight").pieces.front();
  const char* hint =
      "; the scenario's model has untie_embeddings_and_output_weights = false, a head that is its "
      "embedding";
  const auto differs = [&](const std::string& how) {
    return input_error(
        fmt::format("{}: tensor lm_head.weight: expected {}, {}{}", path, embedding.tensor->name, how, hint));
  };
  if (head->second.tensor->shape != embedding.tensor->shape)
    throw differs("got another shape, " + text(head->second.tensor->shape));
  std::vector<std::byte> scratch, other_scratch;
  const std::byte* ours = embedding.file->data(*embedding.tensor, scratch).data();
  const std::byte* theirs = head->second.file->data(*head->second.tensor, other_scratch).data();
  const std::int64_t cols = model.hidden_size, elements = model.vocab_size * cols;
  std::int64_t first = elements;
  const bool is_known = with_element_type(embedding.tensor->dtype, [&](auto load) {
    with_element_type(head->second.tensor->dtype, [&](auto load_other) {
      for (first = 0; first < elements; ++first) {
        const double a = load(ours, first), b = load_other(theirs, first);
        if (a != b && !(std::isnan(a) && std::isnan(b))) break;
      }
    });
  });
  if (!is_known || first < elements) throw differs("got another value at " + text({first / cols, first % cols}));
  std::erase(unused_, head->first);
}

FullTensor Weights::read(const std::string& full_name) const {
  const Source& source = sources_.at(full_name);
  FullTensor full{full_name, {source.rows, source.cols}, {}};
  full.values.resize(static_cast<std::size_t>(source.rows * source.cols));
  double* to = full.values.data();
  std::vector<std::byte> scratch;
  for (const Piece& part : source.pieces) {
    const StoredTensor* piece = part.tensor;
    const std::byte* data = part.file->data(*piece, scratch).data();
    [[maybe_unused]] const bool known = with_element_type(piece->dtype, [&](auto load) {
      if (source.is_transposed) {
        const std::int64_t cols = piece->shape[0], rows = piece->shape[1];
        for (std::int64_t row = 0; row < rows; ++row)
          for (std::int64_t col = 0; col < cols; ++col) *to++ = load(data, col * rows + row);
      } else {
        std::int64_t elements = 1;
        for (const std::int64_t extent : piece->shape) elements *= extent;
        for (std::int64_t i = 0; i < elements; ++i) *to++ = load(data, i);
      }
    });
    assert(known);
  }
  assert(to == full.values.data() + full.values.size());
  require_finite(full, source);
  return full;
}

}  // namespace stretto::exec
