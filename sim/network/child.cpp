#include "sim/network/child.hpp"

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "base/error.hpp"

namespace stretto::sim {
namespace {

enum class Verdict : char { done = 'd', input = 'i', runtime = 'r' };

bool write_all(int file, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t written = ::write(file, data, size);
    if (written < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    data += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

std::string read_all(int file) {
  std::string bytes;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(file, buffer, sizeof buffer);
    if (got == 0) return bytes;
    if (got < 0) {
      if (errno == EINTR) continue;
      return {};
    }
    bytes.append(buffer, static_cast<std::size_t>(got));
  }
}

[[noreturn]] void run_as_child(const std::function<std::string()>& work, int pipe) {
  Verdict verdict = Verdict::done;
  std::string bytes;
  try {
    bytes = work();
  } catch (const Error& error) {
    verdict = error.kind() == ErrorKind::input ? Verdict::input : Verdict::runtime;
    bytes = error.what();
  } catch (const std::exception& error) {
    verdict = Verdict::runtime;
    bytes = std::string("simgrid: ") + error.what();
  }
  const char first = static_cast<char>(verdict);
  const bool sent = write_all(pipe, &first, 1) && write_all(pipe, bytes.data(), bytes.size());
  // The child runs no destructors and no exit handlers: they belong to the parent.
  ::_exit(sent ? 0 : 1);
}

}  // namespace

std::string run_in_child(const std::function<std::string()>& work) {
  int ends[2];
  if (::pipe(ends) != 0) throw runtime_failure(std::string("simgrid: cannot create a pipe: ") + std::strerror(errno));
  std::fflush(nullptr);  // SimGrid flushes standard output, so buffered text would be written twice
  const pid_t child = ::fork();
  if (child < 0) {
    const int reason = errno;
    ::close(ends[0]);
    ::close(ends[1]);
    throw runtime_failure(std::string("simgrid: cannot start a process: ") + std::strerror(reason));
  }
  if (child == 0) {
    ::close(ends[0]);
    run_as_child(work, ends[1]);
  }
  ::close(ends[1]);
  std::string bytes = read_all(ends[0]);
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status))
    throw runtime_failure("simgrid: the simulation process was ended by signal " + std::to_string(WTERMSIG(status)) +
                          " (" + ::strsignal(WTERMSIG(status)) + ")");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || bytes.empty())
    throw runtime_failure("simgrid: the simulation process ended without a result");
  const auto verdict = static_cast<Verdict>(bytes[0]);
  bytes.erase(0, 1);
  if (verdict == Verdict::input) throw input_error(bytes);
  if (verdict == Verdict::runtime) throw runtime_failure(bytes);
  return bytes;
}

}  // namespace stretto::sim
