#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/read_file.hpp"
#include "exec/checkpoint_header.hpp"

namespace stretto::exec {

// A safetensors file of which tensors are read one by one. Move-only; safe to read from several threads.
class TensorFile {
 public:
  // Throws Error as parse_safetensors() does.
  explicit TensorFile(ReadFile file) : file_(std::move(file)), parsed_(parse_safetensors(file_)) {}
  static TensorFile open(const std::string& path) { return TensorFile(ReadFile::open(path)); }

  const std::string& name() const { return file_.name(); }
  const CheckpointMetadata& metadata() const { return parsed_.metadata; }
  const std::vector<StoredTensor>& tensors() const { return parsed_.tensors; }  // by name
  // A tensor's data, row-major and little-endian, not aligned; it lies in `scratch` where it has to be read first.
  // Throws Error as ReadFile::view() does.
  std::span<const std::byte> data(const StoredTensor& tensor, std::vector<std::byte>& scratch) const {
    return file_.view(parsed_.data_begin + tensor.begin, tensor.end - tensor.begin, scratch);
  }

 private:
  ReadFile file_;
  StoredFile parsed_;
};

}  // namespace stretto::exec
