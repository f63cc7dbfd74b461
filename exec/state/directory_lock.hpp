#pragma once
#include <string>
#include <utility>

namespace stretto::exec {

constexpr const char* kLockName = "stretto.lock";

// Locks a directory for one run that writes to it, by flock on the file kLockName in it, which names the holder. All
// processes of the run hold the lock, and other runs are kept out while any of them lives; it ends with this object or
// with the process, however that ends; the file stays. Several machines can hold it at once where their network file
// system does not pass on locks; where the file system has no locks nothing is locked. Move-only.
class DirectoryLock {
 public:
  // Takes the lock for the run's first process. Waits a few seconds, in which a run that has just been killed
  // disappears. Throws Error(runtime) that names the holder when the lock is still held, Error as system_error() when
  // the file cannot be written.
  static DirectoryLock take(const std::string& dir);
  // Takes the lock for the other processes of the run, when the first has it. Throws as take() does, and Error(input)
  // when they do not see its file.
  static DirectoryLock share(const std::string& dir);
  ~DirectoryLock();
  DirectoryLock(DirectoryLock&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), is_held_(std::exchange(other.is_held_, false)) {}
  DirectoryLock& operator=(DirectoryLock&&) = delete;

  bool is_held() const { return is_held_; }  // false: the file system has no locks

 private:
  explicit DirectoryLock(int fd) : fd_(fd) {}
  void lock(int how, const std::string& dir);

  int fd_ = -1;
  bool is_held_ = false;
};

}  // namespace stretto::exec
