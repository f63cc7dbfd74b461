#pragma once
#include <unistd.h>

#include <iostream>
#include <string>

namespace stretto::cli {

// One line on standard error that is overwritten while a command works; nothing when standard error is not a terminal.
class Progress {
 public:
  void show(const std::string& line) {
    if (terminal_) std::cerr << "\r\033[K" << line << std::flush;
  }
  void clear() {
    if (terminal_) std::cerr << "\r\033[K" << std::flush;
  }

 private:
  bool terminal_ = isatty(STDERR_FILENO) != 0;
};

}  // namespace stretto::cli
