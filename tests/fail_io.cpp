// A preloaded library that makes system calls fail as with a bad or full disk: STRETTO_FAIL_IO="CALL PART ERRNO", where
// CALL is open, pread, write or fsync, PART a part of the file's path, and ERRNO a number.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

bool fails(const char* call, const char* path) {
  const char* text = std::getenv("STRETTO_FAIL_IO");
  char wanted[16], part[256];
  int error = 0;
  if (text == nullptr || std::sscanf(text, "%15s %255s %d", wanted, part, &error) != 3) return false;
  if (std::strcmp(wanted, call) != 0 || std::strstr(path, part) == nullptr) return false;
  errno = error;
  return true;
}

bool fails(const char* call, int fd) {
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t bytes = ::readlink(link, path, sizeof path - 1);
  if (bytes < 0) return false;
  path[bytes] = '\0';
  return fails(call, path);
}

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  static auto* const real = next<int(const char*, int, ...)>("open");
  return fails("open", path) ? -1 : real(path, flags, mode);
}
ssize_t pread(int fd, void* to, size_t bytes, off_t at) {
  static auto* const real = next<ssize_t(int, void*, size_t, off_t)>("pread");
  return fails("pread", fd) ? -1 : real(fd, to, bytes, at);
}
ssize_t write(int fd, const void* from, size_t bytes) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  return fails("write", fd) ? -1 : real(fd, from, bytes);
}
int fsync(int fd) {
  static auto* const real = next<int(int)>("fsync");
  return fails("fsync", fd) ? -1 : real(fd);
}
}
