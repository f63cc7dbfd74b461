#pragma once
#include <cstddef>
#include <cstdint>
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

// What a header says. Views point into `data`.
struct ParsedHeader {
  CheckpointMetadata metadata;
  std::vector<NamedTensor> tensors;  // by name
};
// Throws Error(input) unless the JSON is well-formed, names are distinct, dtypes are known, and the tensors cover
// `data` exactly, without holes or overlaps. `name` is the file, for messages.
ParsedHeader parse_header(std::string_view json, std::span<const std::byte> data, const std::string& name);

// FNV-1a 64 of the header, its checksum digits taken as zeros, and the data: 16 hexadecimal digits.
constexpr std::string_view kNoChecksum = "0000000000000000";
std::string checksum_of(std::string_view header_with_zeros, std::span<const NamedTensor> tensors);
std::string checksum_of(std::string_view header_with_zeros, std::span<const std::byte> data);
// Where the digits are in a header that make_header made, or npos.
std::size_t checksum_position(std::string_view header);

}  // namespace stretto::exec
