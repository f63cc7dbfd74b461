#include "exec/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/error.hpp"

namespace stretto::exec {

MappedFile::MappedFile(const std::string& path) {
  // Opening a pipe would wait for its other end.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info {};
  int error = fd < 0 || ::fstat(fd, &info) != 0 ? errno : 0;
  if (error == 0 && !S_ISREG(info.st_mode)) error = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
  const auto bytes = static_cast<std::size_t>(info.st_size);
  if (error == 0 && bytes > 0) {
    void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      error = errno;
    } else {
      data_ = data;
      bytes_ = bytes;
    }
  }
  if (fd >= 0) ::close(fd);
  if (error != 0)
    throw input_error(fmt::format("{}: cannot read the file: {}", path, std::generic_category().message(error)));
  try {
    parsed_ = parse_safetensors({static_cast<const std::byte*>(data_), bytes_}, path);
  } catch (...) {
    if (data_ != nullptr) ::munmap(data_, bytes_);
    throw;
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

}  // namespace stretto::exec
