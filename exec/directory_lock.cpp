#include "exec/directory_lock.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <ctime>
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

// The line that the holder has written; but anybody may have.
std::string holder(int fd) {
  std::array<char, 400> text{};
  const ssize_t bytes = ::pread(fd, text.data(), text.size(), 0);
  std::string line(text.data(), static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
  line.resize(std::min(line.find('\n'), line.size()));
  return line.empty() ? "another run" : printable(line);
}

}  // namespace

DirectoryLock::DirectoryLock(const std::string& dir) {
  const std::string path = dir + "/" + kLockName;
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
  if (fd_ < 0) throw system_error(path, "cannot be opened", errno);
  const auto deadline = std::chrono::steady_clock::now() + kWait;
  int error = 0;
  while ((error = ::flock(fd_, LOCK_EX | LOCK_NB) == 0 ? 0 : errno) == EWOULDBLOCK || error == EINTR) {
    if (std::chrono::steady_clock::now() > deadline) break;
    std::this_thread::sleep_for(kPause);
  }
  if (error == EWOULDBLOCK) {
    const std::string who = holder(fd_);
    ::close(fd_);
    throw runtime_failure(
        fmt::format("{}: in use by {}; wait for its end, or choose another [training] checkpoint_dir", dir, who));
  }
  is_held_ = error == 0;
  if (!is_held_) return;
  const std::string line = me() + "\n";
  if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, line.data(), line.size(), 0) != std::ssize(line)) {
    // On a full disk nobody learns who it is; it is locked all the same.
  }
}

DirectoryLock::~DirectoryLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace stretto::exec
