#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace stretto::exec {

using CheckpointMetadata = std::map<std::string, std::string>;

// A tensor as the header of a safetensors file states it.
struct StoredTensor {
  std::string name;
  std::string dtype;  // "F32", "BF16", … as the format spells them
  std::vector<std::int64_t> shape;
  std::size_t begin = 0, end = 0;  // bytes of the data
};

struct HeaderJson {
  CheckpointMetadata metadata;
  std::vector<StoredTensor> tensors;  // in the order of the file
};

constexpr std::size_t kMaxDimensions = 32;

// Reads the JSON of a header without building a tree of it: one pass, and memory only for the result. Throws
// Error(input) unless it is an object of tensors, each with dtype, shape and data_offsets once, and of strings under
// __metadata__. It checks neither that names are distinct nor what the values mean. `name` is the file, for messages.
HeaderJson parse_header_json(std::string_view text, const std::string& name);

// Returns "weight_map" of the index of a model in several files: tensor → file in the index's folder. Throws
// Error(input) unless there is one, of strings, with no tensor twice and no file elsewhere.
std::map<std::string, std::string> parse_weight_map(std::string_view text, const std::string& name);

}  // namespace stretto::exec
