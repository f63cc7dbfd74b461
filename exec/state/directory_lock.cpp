#include "exec/state/directory_lock.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <string_view>
#include <thread>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "base/read_file.hpp"

namespace stretto::exec {
namespace {

constexpr auto kWait = std::chrono::milliseconds(2000), kPause = std::chrono::milliseconds(20);

std::string me() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  std::tm now{};
  const std::time_t seconds = std::time(nullptr);
  ::gmtime_r(&seconds, &now);
  return fmt::format("process {} on {} since {:%Y-%m-%d %H:%M:%S} UTC", ::getpid(), host.data(), now);
}

// Opens the file that is locked. The target of a link belongs to somebody else, so links are not followed.
int open_lock(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | flags, 0666);
  if (fd < 0 && errno == ELOOP) throw input_error(path + ": expected a file of this folder's own, got a link");
  return fd;
}

// Returns whether a line may be written to the file: it has no other name, and is new or has a line of an earlier run.
bool is_ours(int fd) {
  struct stat info {};
  constexpr std::string_view kBegin = "process ";
  std::array<char, kBegin.size()> begin{};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_nlink != 1) return false;
  return info.st_size == 0 || (::pread(fd, begin.data(), begin.size(), 0) == std::ssize(begin) &&
                               std::string_view(begin.data(), begin.size()) == kBegin);
}

// Returns the line that the holder has written; anybody may have written it.
std::string holder(int fd) {
  std::array<char, 400> text{};
  const ssize_t bytes = ::pread(fd, text.data(), text.size(), 0);
  std::string line(text.data(), static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
  line.resize(std::min(line.find('\n'), line.size()));
  return line.empty() ? "another run" : printable(line);
}

}  // namespace

void DirectoryLock::lock(int how, const std::string& dir) {
  const auto deadline = std::chrono::steady_clock::now() + kWait;
  int error = 0;
  while ((error = ::flock(fd_, how | LOCK_NB) == 0 ? 0 : errno) == EWOULDBLOCK || error == EINTR) {
    if (std::chrono::steady_clock::now() > deadline) break;
    std::this_thread::sleep_for(kPause);
  }
  if (error == EWOULDBLOCK)
    throw runtime_failure(fmt::format("{}: in use by {}; wait for its end, or choose another [training] checkpoint_dir",
                                      dir, holder(fd_)));
  is_held_ = error == 0;
}

DirectoryLock DirectoryLock::take(const std::string& dir) {
  const std::string path = dir + "/" + kLockName;
  DirectoryLock taken(open_lock(path, O_CREAT));
  if (taken.fd_ < 0) throw system_error(path, "cannot be opened", errno);
  taken.lock(LOCK_EX, dir);
  if (!taken.is_held_) return taken;
  const std::string line = me() + "\n";
  if (!is_ours(taken.fd_) || ::ftruncate(taken.fd_, 0) != 0 ||
      ::pwrite(taken.fd_, line.data(), line.size(), 0) != std::ssize(line)) {
    // On a full disk, for instance, the holder's name is not written; the file is locked nevertheless.
  }
  // For a moment no run holds the lock; another run may take it then, and this call is refused.
  taken.lock(LOCK_SH, dir);
  return taken;
}

DirectoryLock DirectoryLock::share(const std::string& dir) {
  const std::string path = dir + "/" + kLockName;
  // A network file system may show the file late.
  const auto deadline = std::chrono::steady_clock::now() + kWait;
  int fd = -1;
  while ((fd = open_lock(path, 0)) < 0 && errno == ENOENT && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(kPause);
  if (fd < 0 && errno == ENOENT)
    throw input_error(fmt::format(
        "[training] checkpoint_dir: expected one that all processes see; {}, which rank 0 has made, is not there",
        path));
  if (fd < 0) throw system_error(path, "cannot be opened", errno);
  DirectoryLock shared(fd);
  shared.lock(LOCK_SH, dir);
  return shared;
}

DirectoryLock::~DirectoryLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace stretto::exec
