#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace stretto {

// "path: what: the system's reason" of an errno value. Kind input where the path itself is at fault (nothing there, no
// permission, a directory), runtime where the machine is (an I/O error, no memory, a full disk).
Error system_error(const std::string& path, const std::string& what, int error);

// A regular file that is read at given places, or bytes in memory that stand for one. It is never mapped: where the
// file has become shorter or its disk fails, a mapping would end the program with SIGBUS. Move-only; safe to read from
// several threads.
class ReadFile {
 public:
  // Throws Error as system_error() has it, Error(input) for what is no regular file.
  static ReadFile open(const std::string& path);
  static ReadFile of(std::vector<std::byte> bytes, const std::string& name);

  ReadFile(ReadFile&& other) noexcept;
  ReadFile& operator=(ReadFile&& other) noexcept;
  ~ReadFile();

  const std::string& name() const { return name_; }
  std::size_t size() const { return size_; }  // in bytes, when it was opened

  // `bytes` bytes from `offset` on, within size(). Throws Error(runtime) when the file has become shorter meanwhile or
  // cannot be read.
  void read(std::size_t offset, std::size_t bytes, std::byte* to) const;
  // The same; they lie in `scratch` where they have to be read first.
  std::span<const std::byte> view(std::size_t offset, std::size_t bytes, std::vector<std::byte>& scratch) const;
  // All of it, to keep.
  std::vector<std::byte> take() &&;

 private:
  ReadFile() = default;

  std::string name_;
  std::vector<std::byte> owned_;
  std::size_t size_ = 0;
  int fd_ = -1;  // -1: in memory
};

}  // namespace stretto
