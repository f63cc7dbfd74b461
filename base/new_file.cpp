#include "base/new_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/read_file.hpp"

namespace stretto {
namespace {

namespace fs = std::filesystem;

std::string cause(int error) { return std::generic_category().message(error); }

// A temporary name is the final name, ".", kDigits random digits and this suffix.
constexpr std::string_view kSuffix = ".tmp";
constexpr std::size_t kDigits = 16, kAdded = 1 + kDigits + kSuffix.size();

std::string temporary_of(const std::string& path) {
  std::uint64_t random = 0;
  // Where the system has no random numbers, the process id is enough: the writer passes over names that are taken.
  if (::getrandom(&random, sizeof random, 0) != sizeof random) random = static_cast<std::uint64_t>(::getpid());
  return fmt::format("{}.{:016x}{}", path, random, kSuffix);
}

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

std::string name_under_temporary(std::string_view file_name) {
  if (!file_name.ends_with(kSuffix) || file_name.size() <= kAdded) return "";
  const std::string_view added = file_name.substr(file_name.size() - kAdded);
  const std::string_view digits = added.substr(1, kDigits);
  if (added.front() != '.' || digits.find_first_not_of("0123456789abcdef") != std::string_view::npos) return "";
  return std::string(file_name.substr(0, file_name.size() - kAdded));
}

NewFile::NewFile(std::string path) : path_(std::move(path)) {
  struct stat info {};
  const bool is_there = ::stat(path_.c_str(), &info) == 0;
  if (!is_there && errno == ELOOP) fail(ELOOP);  // the link leads to nothing, but the link is not ours to replace
  if (is_there && !S_ISREG(info.st_mode)) {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd_ < 0) fail(errno);
    return;
  }
  destination_ = destination_of(path_);
  open_temporary(is_there ? 0600 : 0666);
  // The new file gets the permissions of the file that it replaces; where the system refuses that, it keeps the
  // permissions of any new file.
  if (is_there) [[maybe_unused]]
    const int refused = ::fchmod(fd_, info.st_mode & 07777);
}

NewFile::~NewFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  if (fd_ >= 0) ::close(fd_);
}

void NewFile::open_temporary(unsigned mode) {
  constexpr int kMostNames = 100;
  for (int i = 0; i < kMostNames; ++i) {
    temporary_ = temporary_of(destination_);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    const int error = errno;
    if (fd_ < 0) temporary_.clear();
    if (fd_ < 0 && error == EEXIST) continue;
    if (fd_ < 0) fail(error);
    // Another process that removes left-over files may take this file for one until the lock is held.
    struct stat info {};
    const bool is_taken = ::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!is_taken && ::fstat(fd_, &info) == 0 && info.st_nlink > 0) return;
    ::close(std::exchange(fd_, -1));
    temporary_.clear();
  }
  fail(EEXIST);
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
  if (!temporary_.empty()) {
    if (::rename(temporary_.c_str(), destination_.c_str()) != 0) fail(errno);
    temporary_.clear();
    sync_directory(folder_of(destination_));
  }
  // The file is closed only after the rename, because closing releases the lock.
  if (::close(std::exchange(fd_, -1)) != 0) fail(errno);
}

void NewFile::fail(int error) const {
  throw runtime_failure(fmt::format("{}: cannot be written: {}", path_, cause(error)));
}

void sync_directory(const std::string& dir) {
  const int fd = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int error = fd < 0 || ::fsync(fd) != 0 ? errno : 0;
  if (fd >= 0) ::close(fd);
  // Some network file systems cannot sync a directory, and some folders may be written but not read. There the rename
  // alone must be enough.
  if (error != 0 && error != EINVAL && error != EACCES)
    throw runtime_failure(fmt::format("{}: cannot be made durable: {}", dir, cause(error)));
}

void remove_left_overs(const std::string& folder, const std::set<std::string>& names) {
  std::error_code problem;
  for (fs::directory_iterator it(folder, problem), end; !problem && it != end; it.increment(problem)) {
    const std::string name = name_under_temporary(it->path().filename().string());
    if (name.empty() || !names.contains(name)) continue;
    const std::string path = it->path().string();
    const int fd = ::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) continue;
    struct stat info {};
    if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid() &&
        ::flock(fd, LOCK_EX | LOCK_NB) == 0)
      ::unlink(path.c_str());
    ::close(fd);
  }
}

void remove_left_overs(const std::string& path) {
  const fs::path destination = destination_of(path);
  remove_left_overs(folder_of(destination.string()), {destination.filename().string()});
}

NewFolder::NewFolder(std::string path) : path_(std::move(path)) {
  is_made_ = ::mkdir(path_.c_str(), 0777) == 0;
  if (!is_made_ && errno != EEXIST) throw runtime_failure(system_error(path_, "cannot be made", errno).what());
}

NewFolder::~NewFolder() {
  if (is_kept_) return;
  for (const std::string& file : files_) ::unlink(file.c_str());
  if (is_made_) ::rmdir(path_.c_str());
}

void NewFolder::add(const std::string& path, std::string_view text) {
  NewFile file(path);
  file.write(text);
  file.finish();
  files_.push_back(path);
}

}  // namespace stretto
