#pragma once
#include <unistd.h>

#include <condition_variable>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>

#include "base/printable.hpp"
#include "model/scenario.hpp"

namespace stretto::cli {

// One line on standard error that is overwritten while a command works; nothing when standard error is not a terminal.
class Progress {
 public:
  void show(const std::string& line) {
    if (terminal_) std::cerr << "\r\033[K" << printable(line) << std::flush;
  }
  void clear() {
    if (terminal_) std::cerr << "\r\033[K" << std::flush;
  }

 private:
  bool terminal_ = isatty(STDERR_FILENO) != 0;
};

// "building the schedule of a step, about 24 million operations".
std::string about_building(const Scenario& scenario);

// Says on standard error what takes so long, once, when it has taken two seconds on a terminal, or ten elsewhere.
class Patience {
 public:
  explicit Patience(std::string what);
  ~Patience();
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

 private:
  void wait();
  std::string what_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace stretto::cli
