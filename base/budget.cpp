#include "base/budget.hpp"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "base/read_file.hpp"

namespace stretto {
namespace {

constexpr std::uint64_t kLooksBetweenChecks = 1 << 20;

double thread_processor_s() {
  timespec now{};
  if (::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0) return 0;
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

BudgetLimits BudgetLimits::in_proportion(std::uint64_t input_bytes, const char* advice) {
  // Each reader of long files looks at a character a few times, keeps a row in a few times its text, and reads ten
  // megabytes a second at the least.
  constexpr std::uint64_t kLooksOfByte = 64, kKeptOfByte = 32;
  constexpr double kSlowest_bytes_per_s = 1e6;
  const std::uint64_t bytes = std::min(input_bytes, std::uint64_t{1} << 48);
  BudgetLimits limits;
  limits.looks += kLooksOfByte * bytes;
  limits.bytes += kKeptOfByte * bytes;
  limits.rows += bytes;
  limits.processor_s += static_cast<double>(bytes) / kSlowest_bytes_per_s;
  limits.advice = advice;
  return limits;
}

Budget::Budget(std::string file, const BudgetLimits& limits)
    : file_(std::move(file)),
      limits_(limits),
      looks_until_check_(std::min(kLooksBetweenChecks, limits.looks)),
      looks_left_(limits.looks - looks_until_check_),
      bytes_left_(limits.bytes),
      rows_left_(limits.rows),
      begin_s_(thread_processor_s()) {}

void Budget::check(std::uint64_t characters) {
  const std::uint64_t left = looks_left_ + looks_until_check_;
  if (characters > left) fail(fmt::format("{} looks at characters", limits_.looks));
  looks_until_check_ = std::min(kLooksBetweenChecks, left - characters);
  looks_left_ = left - characters - looks_until_check_;
  if (thread_processor_s() - begin_s_ > limits_.processor_s)
    fail(fmt::format("{:g} s of processor time", limits_.processor_s));
}

void Budget::fail_bytes() const { fail(fmt::format("{} MiB of memory", limits_.bytes >> 20)); }

void Budget::fail_rows() {
  rows_left_ = 0;
  fail(fmt::format("{} rows", limits_.rows));
}

void Budget::fail(const std::string& what) const {
  throw input_error(fmt::format("{}{}: reading it takes more than {}: {}", file_,
                                line_ > 0 ? ":" + std::to_string(line_) : "", what, limits_.advice));
}

std::string read_text(const std::string& path, Budget& budget) {
  const ReadFile file = ReadFile::open(path);
  budget.keep(file.size());
  std::string text(file.size(), '\0');
  file.read(0, text.size(), reinterpret_cast<std::byte*>(text.data()));
  return text;
}

}  // namespace stretto
