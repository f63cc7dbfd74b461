#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exec/checkpoint.hpp"

namespace stretto::exec {

// The JSON header of a safetensors file (https://github.com/huggingface/safetensors, "Format"): a 64-bit little-endian
// length, that many bytes of JSON, then the data, to which the offsets are relative.

constexpr std::size_t kHeaderLengthBytes = 8;
constexpr std::size_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

// The length and the JSON, padded with spaces so that the data starts at a multiple of 8 bytes. The checksum's digits
// are zeros (kNoChecksum). Tensors get their data in the order given.
std::string make_header(const CheckpointMetadata& metadata, std::span<const NamedTensor> tensors);

// A tensor as a file has it, row-major and little-endian; `data` points into the file and need not be aligned.
struct StoredTensor {
  std::string name;
  std::string dtype;  // "F32", "BF16", … as the format spells them
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};
struct StoredFile {
  CheckpointMetadata metadata;
  std::vector<StoredTensor> tensors;  // by name
  bool has_checksum = false;          // it matches
};
// Throws Error(input) unless the header is well-formed JSON, names are distinct, dtypes are the format's, the tensors
// cover the data exactly, without holes or overlaps, and the checksum matches if there is one. `name` is the file, for
// messages.
StoredFile parse_safetensors(std::span<const std::byte> file, const std::string& name);

// nullopt for an element type that Stretto does not have.
std::optional<Dtype> dtype_named(std::string_view name);

// FNV-1a 64 of the header, its checksum digits taken as zeros, and the data: 16 hexadecimal digits.
constexpr std::string_view kNoChecksum = "0000000000000000";
std::string checksum_of(std::string_view header_with_zeros, std::span<const NamedTensor> tensors);
// Where the digits are in a header that make_header made, or npos.
std::size_t checksum_position(std::string_view header);

}  // namespace stretto::exec
