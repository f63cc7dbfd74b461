#pragma once
#include <cstdint>
#include <string>

#include "base/error.hpp"

namespace stretto {

// Limits of the cost of reading one foreign input. Every reader of files that other people or programs wrote takes a
// Budget and charges it where the work is done, so that no input, however small, takes unbounded time or memory.
struct BudgetLimits {
  // Characters looked at or copied, counted each time: a search of n characters for m costs up to n·m.
  std::uint64_t looks = std::uint64_t{1} << 26;
  std::uint64_t bytes = std::uint64_t{1} << 26;  // bytes that the reader keeps, over the whole input
  std::uint64_t rows = std::uint64_t{1} << 22;   // rows, events or values
  double processor_s = 20;                       // time of the reading thread on a processor, whatever it was spent on
  const char* advice = "such files are usually a thousand times cheaper; give a shorter one";

  // Returns the limits for a file of `input_bytes` that is read once from its beginning to its end, however long it is:
  // in proportion to its size, with `advice`.
  static BudgetLimits in_proportion(std::uint64_t input_bytes, const char* advice);
};

// Counts what the reading of one input costs. Each function throws Error(input) where its limit is passed: "FILE:line:
// reading it takes more than …: the advice". Not thread-safe; a copy goes on from where the original was.
class Budget {
 public:
  explicit Budget(std::string file, const BudgetLimits& limits = {});

  void look(std::uint64_t characters) {
    if (characters >= looks_until_check_) return check(characters);
    looks_until_check_ -= characters;
  }
  void keep(std::uint64_t bytes) {
    if (bytes > bytes_left_) fail_bytes();
    bytes_left_ -= bytes;
  }
  void add_row() {
    if (rows_left_-- == 0) fail_rows();
  }
  // Says where the reader is, for messages: a line from 1 on; 0: not known.
  void at_line(int line) { line_ = line; }

  const std::string& file() const { return file_; }

 private:
  void check(std::uint64_t characters);  // charges the looks since the last check, and asks for the time
  [[noreturn]] void fail_bytes() const;
  [[noreturn]] void fail_rows();
  [[noreturn]] void fail(const std::string& what) const;

  std::string file_;
  BudgetLimits limits_;
  std::uint64_t looks_until_check_, looks_left_;  // both together are what is left
  std::uint64_t bytes_left_, rows_left_;
  double begin_s_;  // the thread's processor time at the beginning
  int line_ = 0;
};

// Returns a file's bytes as text, charged as kept. Throws as ReadFile::open() does; Error(input) where the file is
// larger than the budget, before it is read.
std::string read_text(const std::string& path, Budget& budget);

}  // namespace stretto
