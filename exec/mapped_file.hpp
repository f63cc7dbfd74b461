#pragma once
#include <cstddef>
#include <string>

#include "exec/checkpoint_header.hpp"

namespace stretto::exec {

// A safetensors file mapped into memory: of a large one only what is read is there. It must not change meanwhile. Safe
// to read from several threads.
class MappedFile {
 public:
  // Throws Error(input), one line with the path: it cannot be read, or is not what parse_safetensors() wants.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const CheckpointMetadata& metadata() const { return parsed_.metadata; }
  const std::vector<StoredTensor>& tensors() const { return parsed_.tensors; }  // by name

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  StoredFile parsed_;
};

}  // namespace stretto::exec
