#pragma once
#include <string>

namespace stretto::exec {

constexpr const char* kLockName = "stretto.lock";

// Keeps others out of a directory that one run writes to, by flock on the file kLockName in it, which says who holds
// it. Ends with this or with the process, however that ends; the file stays. Held by several machines at once where
// their network file system does not carry locks to the others.
class DirectoryLock {
 public:
  // Waits a few seconds, in which a run that has just been killed is gone. Throws Error(runtime) that says who holds it
  // when it is held by then, Error as system_error() has it when the file cannot be written. Where the file system
  // knows no locks nothing is locked.
  explicit DirectoryLock(const std::string& dir);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  bool is_held() const { return is_held_; }  // false: the file system knows no locks

 private:
  int fd_ = -1;
  bool is_held_ = false;
};

}  // namespace stretto::exec
