#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/read_file.hpp"
#include "exec/state/header_json.hpp"
#include "model/ops/dtype.hpp"

namespace stretto::exec {

// The header of a safetensors file (https://github.com/huggingface/safetensors, "Format"): a 64-bit little-endian
// length, that many bytes of JSON, then the data, to which the offsets are relative.

constexpr std::size_t kHeaderLengthBytes = 8;
constexpr std::size_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

// A tensor to be written.
struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;
  std::int64_t bytes() const;
};

// Returns the length and the JSON, padded with spaces so that the data starts at a multiple of 8 bytes. The checksum's
// digits are zeros (kNoChecksum). Tensors get their data in the given order; their names are distinct. Throws
// Error(runtime) when the header would be longer than readers accept.
std::string make_header(const CheckpointMetadata& metadata, std::span<const TensorEntry> tensors);

struct StoredFile {
  CheckpointMetadata metadata;
  std::vector<StoredTensor> tensors;  // sorted by name
  std::size_t data_begin = 0;         // offset in the file at which the data begins
  // Returns the digits that the file states, or "". require_checksum() checks whether they are right.
  const std::string& checksum() const;
};
// Reads the header. Throws Error(input) unless it is well-formed JSON, names are distinct, dtypes are the format's, and
// the tensors cover the data exactly, without holes or overlaps; Error as ReadFile::view() does. Time: that of sorting
// the names.
StoredFile parse_safetensors(const ReadFile& file);
// Reads all of a file that states a checksum, a piece at a time. Throws Error(input) when the checksum differs.
void require_checksum(const ReadFile& file, const StoredFile& parsed);

// Returns the format's spelling.
std::string_view spelled(Dtype dtype);
// Returns the bytes of an element; 0 for a type that is not one of the format's with whole bytes.
std::int64_t bytes_of_spelled(std::string_view dtype);

// A file states the checksum of all its bytes, with the digits themselves taken as zeros.
constexpr std::string_view kNoChecksum = "0000000000000000";
// Returns the position of the checksum's digits in a header that make_header made, or npos.
std::size_t checksum_position(std::string_view header);

}  // namespace stretto::exec
