#include "base/read_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace stretto {

Error system_error(const std::string& path, const std::string& what, int error) {
  const bool is_path = error == ENOENT || error == ENOTDIR || error == EISDIR || error == EACCES || error == EPERM ||
                       error == ELOOP || error == ENAMETOOLONG || error == EROFS || error == ENXIO || error == EEXIST;
  return Error(is_path ? ErrorKind::input : ErrorKind::runtime,
               fmt::format("{}: {}: {}", path, what, std::generic_category().message(error)));
}

ReadFile ReadFile::open(const std::string& path) {
  ReadFile file;
  file.name_ = path;
  // The open is non-blocking, so that a FIFO given by mistake is an error below and does not hang.
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd_ < 0) throw system_error(path, "cannot be opened", errno);
  struct stat info {};
  if (::fstat(file.fd_, &info) != 0) throw system_error(path, "cannot be read", errno);
  if (S_ISDIR(info.st_mode)) throw input_error(path + ": expected a file, got a directory");
  if (!S_ISREG(info.st_mode)) throw input_error(path + ": expected a regular file");
  file.size_ = static_cast<std::size_t>(info.st_size);
  return file;
}

ReadFile ReadFile::of(std::vector<std::byte> bytes, const std::string& name) {
  ReadFile file;
  file.name_ = name;
  file.owned_ = std::move(bytes);
  file.size_ = file.owned_.size();
  return file;
}

ReadFile::ReadFile(ReadFile&& other) noexcept { *this = std::move(other); }

ReadFile& ReadFile::operator=(ReadFile&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(owned_, other.owned_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  return *this;
}

ReadFile::~ReadFile() {
  if (fd_ >= 0) ::close(fd_);
}

void ReadFile::read(std::size_t offset, std::size_t bytes, std::byte* to) const {
  assert(offset <= size_ && bytes <= size_ - offset);
  if (fd_ < 0) {
    if (bytes > 0) std::memcpy(to, owned_.data() + offset, bytes);
    return;
  }
  for (std::size_t have = 0; have < bytes;) {
    const ssize_t got = ::pread(fd_, to + have, bytes - have, static_cast<off_t>(offset + have));
    // The file could be opened, so the path is not at fault: the error is a runtime one.
    if (got < 0 && errno != EINTR) throw runtime_failure(system_error(name_, "cannot be read", errno).what());
    if (got == 0)
      throw runtime_failure(fmt::format("{}: was cut short while it is in use: it had {} bytes, now it ends at byte {}",
                                        name_, size_, offset + have));
    if (got > 0) have += static_cast<std::size_t>(got);
  }
}

std::span<const std::byte> ReadFile::view(std::size_t offset, std::size_t bytes,
                                          std::vector<std::byte>& scratch) const {
  assert(offset <= size_ && bytes <= size_ - offset);
  if (fd_ < 0) return std::span(owned_).subspan(offset, bytes);
  scratch.resize(bytes);
  read(offset, bytes, scratch.data());
  return scratch;
}

std::vector<std::byte> ReadFile::take() && {
  if (fd_ >= 0) view(0, size_, owned_);
  size_ = 0;
  return std::move(owned_);
}

}  // namespace stretto
