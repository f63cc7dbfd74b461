#include "base/new_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/read_file.hpp"

namespace stretto {
namespace {

namespace fs = std::filesystem;

std::string cause(int error) { return std::generic_category().message(error); }

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

std::string destination_of(const std::string& given) {
  constexpr int kMostLinks = 40;
  std::string path = given;
  for (int links = 0; links < kMostLinks; ++links) {
    std::error_code error;
    const fs::path target = fs::read_symlink(path, error);
    if (error) break;
    path = (fs::path(path).parent_path() / target).string();
  }
  return path;
}

std::string temporary_of(const std::string& path) { return destination_of(path) + ".tmp"; }

NewFile::NewFile(std::string path) : path_(std::move(path)) {
  struct stat info {};
  const bool is_there = ::stat(path_.c_str(), &info) == 0, is_replaced = !is_there || S_ISREG(info.st_mode);
  if (!is_there && errno == ELOOP) fail(ELOOP);  // nothing is behind such a link, but it is not ours to replace
  if (is_replaced) temporary_ = temporary_of(path_);
  const int flags = O_WRONLY | O_CLOEXEC | (is_replaced ? O_CREAT | O_TRUNC : 0);
  fd_ = ::open((is_replaced ? temporary_ : path_).c_str(), flags, 0666);
  if (fd_ < 0) fail(errno);
  // It keeps who may read it; where that is refused it is as any new file.
  if (is_replaced && is_there) [[maybe_unused]]
    const int refused = ::fchmod(fd_, info.st_mode & 07777);
}

NewFile::~NewFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void NewFile::write(const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  is_synced_ = false;
  while (bytes > 0) {
    const ssize_t written = ::write(fd_, at, bytes);
    if (written < 0 && errno != EINTR) fail(errno);
    if (written > 0) at += written, bytes -= static_cast<std::size_t>(written);
  }
}

void NewFile::sync() {
  if (!is_synced_ && !temporary_.empty() && ::fsync(fd_) != 0) fail(errno);
  is_synced_ = true;
}

void NewFile::finish() {
  sync();
  if (::close(std::exchange(fd_, -1)) != 0) fail(errno);
  if (temporary_.empty()) return;
  const std::string to = destination_of(path_);
  if (::rename(temporary_.c_str(), to.c_str()) != 0) fail(errno);
  temporary_.clear();
  sync_directory(folder_of(to));
}

void NewFile::fail(int error) const {
  throw runtime_failure(fmt::format("{}: cannot be written: {}", path_, cause(error)));
}

void sync_directory(const std::string& dir) {
  const int fd = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int error = fd < 0 || ::fsync(fd) != 0 ? errno : 0;
  if (fd >= 0) ::close(fd);
  // Some network file systems cannot sync a directory, and some folders may be written but not read; there, rename
  // itself must do.
  if (error != 0 && error != EINVAL && error != EACCES)
    throw runtime_failure(fmt::format("{}: cannot be made durable: {}", dir, cause(error)));
}

void make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST)
    throw runtime_failure(system_error(path, "cannot be made", errno).what());
}

}  // namespace stretto
