#pragma once
#include <unistd.h>

#include <iostream>
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

// Says on standard error that building the scenario's schedule takes long, once, when it has taken two seconds on a
// terminal, or ten elsewhere.
class Patience {
 public:
  explicit Patience(const Scenario& scenario);

 private:
  std::jthread thread_;
};

}  // namespace stretto::cli
