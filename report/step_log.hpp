#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace stretto {

// Named numbers of a training step, for instance {"loss", 3.2}.
using StepValues = std::vector<std::pair<std::string, double>>;

// Appends a line for every step to a file, and flushes it: what is written survives a kill, and a run that resumes goes
// on in the same file. ".csv": a table whose first line names the columns step, wall_s and those of `columns`; a value
// that a line does not have is an empty cell. Other names: a JSON object a line with the same keys. `wall_s` is the
// time since 1970. Throws Error(runtime) with the path and the system's reason.
class StepLog {
 public:
  StepLog(std::string path, std::vector<std::string> columns);
  ~StepLog();
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;
  // `step` is the number of steps done. Names in `values` are among the columns.
  void add(std::int64_t step, const StepValues& values);

 private:
  std::string path_;
  std::vector<std::string> columns_;
  int fd_ = -1;
};

// Appends text to a descriptor, all of it. Throws Error(runtime) that names `path`.
void append(int fd, const std::string& path, const std::string& text);
// Opens a file to append to. Throws Error(runtime).
int open_to_append(const std::string& path);
// Returns the time since 1970 in seconds.
double wall_s();

}  // namespace stretto
