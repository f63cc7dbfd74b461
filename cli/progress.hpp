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

// One line on standard error that is overwritten while a command works. Where standard error is not a terminal, a line
// every 30 s, the first after 30 s or at begin(). For one thread.
class Progress {
 public:
  // Shows the line at once, on a terminal or not.
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
  // Removes the line from the terminal; call it before other text is printed.
  void clear() {
    if (terminal_) clear_line();
  }

 private:
  static constexpr std::chrono::seconds kBetweenLines{30};
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
};

// Prints on standard error that building the scenario's schedule takes long, once, when it has taken two seconds on a
// terminal, or ten elsewhere. Its destructor silences it, and it keeps no reference to the scenario.
class Patience {
 public:
  explicit Patience(const Scenario& scenario);

 private:
  std::jthread thread_;
};

}  // namespace stretto::cli
