#pragma once
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <string>
#include <thread>

#include "base/printable.hpp"
#include "cli/terminal.hpp"
#include "model/scenario.hpp"

namespace stretto::cli {

// One line on standard error that is overwritten while a command works. Where that is no terminal, a line every 30 s,
// the first after 30 s or what begin() says. For one thread.
class Progress {
 public:
  // Shows the line at once, wherever that is.
  void begin(const std::string& line) {
    shown_ = std::chrono::steady_clock::now() - kBetweenLines;
    show(line);
  }
  // Control characters of the line are escaped.
  void show(const std::string& line) {
    if (terminal_) {
      clear_line();
      std::cerr << printable(line) << std::flush;
    } else if (const auto now = std::chrono::steady_clock::now(); now - shown_ >= kBetweenLines) {
      std::cerr << printable(line) + "\n" << std::flush;
      shown_ = now;
    }
  }
  // Before anything else is printed: the line goes from the terminal.
  void clear() {
    if (terminal_) clear_line();
  }

 private:
  static constexpr std::chrono::seconds kBetweenLines{30};
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
};

// Says on standard error that building the scenario's schedule takes long, once, when it has taken two seconds on a
// terminal, or ten elsewhere. It is silent from its destructor on, and keeps nothing of the scenario.
class Patience {
 public:
  explicit Patience(const Scenario& scenario);

 private:
  std::jthread thread_;
};

}  // namespace stretto::cli
