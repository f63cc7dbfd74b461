#include "report/step_log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.hpp"

namespace stretto {

void append(int fd, const std::string& path, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      throw runtime_failure(path + ": cannot append: " + std::generic_category().message(written < 0 ? errno : ENOSPC));
    done += static_cast<std::size_t>(written);
  }
}

int open_to_append(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) throw runtime_failure(path + ": cannot open: " + std::generic_category().message(errno));
  return fd;
}

double wall_s() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

StepLog::StepLog(std::string path, std::vector<std::string> columns)
    : path_(std::move(path)), columns_(std::move(columns)), fd_(open_to_append(path_)) {
  struct stat info {};
  if (path_.ends_with(".csv") && ::fstat(fd_, &info) == 0 && info.st_size == 0)
    append(fd_, path_, fmt::format("step,wall_s,{}\n", fmt::join(columns_, ",")));
}

StepLog::~StepLog() { ::close(fd_); }

void StepLog::add(std::int64_t step, const StepValues& values) {
  const double now_s = wall_s();
  if (!path_.ends_with(".csv")) {
    nlohmann::json line = {{"step", step}, {"wall_s", now_s}};
    // JSON has no infinities.
    for (const auto& value : values)
      line[value.first] = std::isfinite(value.second) ? nlohmann::json(value.second) : nlohmann::json(nullptr);
    append(fd_, path_, line.dump() + "\n");
    return;
  }
  std::string line = fmt::format("{},{:.3f}", step, now_s);
  for (const std::string& column : columns_) {
    const auto found =
        std::find_if(values.begin(), values.end(), [&](const auto& value) { return value.first == column; });
    line += found == values.end() ? "," : fmt::format(",{}", found->second);
  }
  append(fd_, path_, line + "\n");
}

}  // namespace stretto
