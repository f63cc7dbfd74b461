#include "sweep/journal.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/error.hpp"

namespace stretto::sweep {

Journal::Journal(std::string path, bool resumes) : path_(std::move(path)) {
  if (path_.empty()) return;
  std::error_code problem;
  const auto bytes = std::filesystem::file_size(path_, problem);
  if (!resumes && !problem && bytes > 0)
    throw input_error(path_ + ": a sweep's file is there already; --resume goes on with it, or name another");
  bool ends_line = true;
  std::uintmax_t end = 0, kept = problem ? 0 : bytes;  // of the file
  if (resumes && !problem && bytes > 0) {
    std::ifstream file(path_);
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
      ends_line = !file.eof();
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
  }
  fd_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) fail();
  if (kept < end && ::ftruncate(fd_, static_cast<off_t>(kept)) != 0) fail();
  if (kept == end && !ends_line && ::write(fd_, "\n", 1) != 1) fail();
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
