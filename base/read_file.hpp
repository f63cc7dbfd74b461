#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace stretto {

// Returns the error "path: what: the system's reason" for an errno value. The kind is input where the path is at fault
// (no such file, no permission, a directory) and runtime where the machine is (an I/O error, no memory, a full disk).
Error system_error(const std::string& path, const std::string& what, int error);

// A regular file that is read at given offsets, or bytes in memory that stand for a file. The file is never mapped: a
// mapping would end the program with SIGBUS when the file becomes shorter or the disk fails. Move-only; several threads
// may read at once.
class ReadFile {
 public:
  // Opens a file. Throws what system_error() returns, and Error(input) for anything but a regular file.
  static ReadFile open(const std::string& path);
  static ReadFile of(std::vector<std::byte> bytes, const std::string& name);

  ReadFile(ReadFile&& other) noexcept;
  ReadFile& operator=(ReadFile&& other) noexcept;
  ~ReadFile();

  const std::string& name() const { return name_; }
  std::size_t size() const { return size_; }  // in bytes, when it was opened

  // Reads `bytes` bytes from `offset` on, which must be within size(). Throws Error(runtime) when the file has become
  // shorter meanwhile or cannot be read.
  void read(std::size_t offset, std::size_t bytes, std::byte* to) const;
  // Returns a view of those bytes. A file is read into `scratch`, which must then outlive the view; bytes in memory are
  // not copied. Throws as read() does.
  std::span<const std::byte> view(std::size_t offset, std::size_t bytes, std::vector<std::byte>& scratch) const;
  // Returns all bytes and gives up the file.
  std::vector<std::byte> take() &&;

 private:
  ReadFile() = default;

  std::string name_;
  std::vector<std::byte> owned_;
  std::size_t size_ = 0;
  int fd_ = -1;  // -1: in memory
};

}  // namespace stretto
