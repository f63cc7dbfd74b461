#pragma once
#include <string>
#include <utility>

namespace stretto::exec {

constexpr const char* kLockName = "stretto.lock";

// Keeps others out of a directory that one run writes to, by flock on the file kLockName in it, which says who holds
// it. All processes of the run hold it, and others are kept out while any of them lives; it ends with this or with the
// process, however that ends; the file stays. Held by several machines at once where their network file system does not
// carry locks to the others; not at all where it knows no locks. Move-only.
class DirectoryLock {
 public:
  // For the run's first process. Waits a few seconds, in which a run that has just been killed is gone. Throws
  // Error(runtime) that says who holds it when it is held by then, Error as system_error() has it when the file cannot
  // be written.
  static DirectoryLock take(const std::string& dir);
  // For the others of the run, when the first has it. The same, and Error(input) when they do not see its file.
  static DirectoryLock share(const std::string& dir);
  ~DirectoryLock();
  DirectoryLock(DirectoryLock&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), is_held_(std::exchange(other.is_held_, false)) {}
  DirectoryLock& operator=(DirectoryLock&&) = delete;

  bool is_held() const { return is_held_; }  // false: the file system knows no locks

 private:
  explicit DirectoryLock(int fd) : fd_(fd) {}
  void lock(int how, const std::string& dir);

  int fd_ = -1;
  bool is_held_ = false;
};

}  // namespace stretto::exec
