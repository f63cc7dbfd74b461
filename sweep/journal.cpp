#include "sweep/journal.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/error.hpp"

namespace stretto::sweep {

namespace {

constexpr std::size_t kLongestLine = 16 << 20;  // blocks of zeros that a loss of power has left, too

// Returns the process that holds the lock of a file, as /proc/locks has it; 0: not known, as where the file is on
// another machine's disk.
long holder_of(const struct stat& file) {
  std::ifstream locks("/proc/locks");
  const std::string inode = ":" + std::to_string(file.st_ino) + " ";
  for (std::string line; std::getline(locks, line);) {
    // "1: FLOCK  ADVISORY  WRITE 4711 fd:01:131 0 EOF"
    if (line.find("FLOCK") == std::string::npos || line.find("WRITE") == std::string::npos ||
        line.find(inode) == std::string::npos)
      continue;
    std::istringstream words(line.substr(line.find("WRITE") + 5));
    long process = 0;
    if (words >> process && process > 0) return process;
  }
  return 0;
}

// Reads a line without its end. Returns false at the end of the file, and then leaves `ends_line`, which says whether a
// line break ended the line.
bool read_line(std::istream& file, std::string& line, bool& ends_line, const std::string& place) {
  line.clear();
  for (int c; (c = file.rdbuf()->sbumpc()) != std::char_traits<char>::eof();) {
    if (c == '\n') return ends_line = true;
    if (line.size() == kLongestLine) throw input_error(place + ": expected a line that `stretto sweep` wrote");
    line += static_cast<char>(c);
  }
  if (line.empty()) return false;
  ends_line = false;
  return true;
}

}  // namespace

Journal::Journal(std::string path, bool resumes) : path_(std::move(path)) {
  if (path_.empty()) return;
  fd_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) fail();
  try {
    lock();
    read(resumes);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

void Journal::lock() const {
  // The system gives the lock up when the process ends, however it ends. Where a file system knows no locks, nothing
  // can be said.
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  struct stat info {};
  const long process = ::fstat(fd_, &info) == 0 ? holder_of(info) : 0;
  throw input_error(path_ + ": another sweep writes this file" +
                    (process > 0 ? " (process " + std::to_string(process) + ")" : "") +
                    "; wait until it has ended, or name another --out");
}

void Journal::read(bool resumes) {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) fail();
  const auto bytes = static_cast<std::uintmax_t>(info.st_size);
  if (bytes == 0) return;
  if (!resumes)
    throw input_error(path_ + ": a sweep's file is there already; --resume goes on with it, or name another");
  bool ends_line = true;
  std::uintmax_t end = 0, kept = bytes;  // of the file
  std::ifstream file(path_, std::ios::binary);
  std::string line;
  for (int number = 1; read_line(file, line, ends_line, path_ + ":" + std::to_string(number)); ++number) {
    const std::uintmax_t begin = std::exchange(end, end + line.size() + (ends_line ? 1 : 0));
    if (!line.empty() && line.back() == '\r') line.pop_back();  // an editor's end of a line
    if (line.empty()) continue;
    // Every line that was written as a whole ends with a brace. Blocks that a loss of power kept from the disk are
    // zeros.
    const bool is_zeros = !ends_line && line.find_first_not_of('\0') == std::string::npos;
    if (is_zeros || (line.front() == '{' && line.back() != '}')) {
      ++cut_;
      if (!ends_line) kept = begin;
      continue;
    }
    Point point = point_of(line, path_ + ":" + std::to_string(number));
    std::string key = point.key;
    points_.insert_or_assign(std::move(key), std::move(point));
  }
  if (kept < end && ::ftruncate(fd_, static_cast<off_t>(kept)) != 0) fail();
  if (kept == end && end > 0 && !ends_line && ::write(fd_, "\n", 1) != 1) fail();
}

Journal::~Journal() {
  if (fd_ >= 0) ::close(fd_);
}

const Point* Journal::find(const std::string& key) const {
  const auto found = points_.find(key);
  return found == points_.end() ? nullptr : &found->second;
}

void Journal::add(const Point& point) {
  if (fd_ < 0) return;
  // One write: lines of two processes that append to one file do not mix.
  const std::string line = line_of(point);
  const ssize_t written = ::write(fd_, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return;
  // A disk that took a part of the line says only at the next attempt that it is full.
  if (written >= 0 && ::write(fd_, line.data() + written, line.size() - std::size_t(written)) >= 0) errno = ENOSPC;
  fail();
}

void Journal::fail() const { throw runtime_failure(path_ + ": " + std::strerror(errno)); }

}  // namespace stretto::sweep
