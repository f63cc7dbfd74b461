#pragma once
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "calibrate/import/measurements.hpp"

namespace stretto::calibrate {

// A run of one program of nccl-tests: the header that precedes the rows of sizes.
struct NcclRun {
  std::string op;  // "all_reduce"; "" when the header does not say
  std::int64_t gpus = 0;
  std::set<std::string> hosts;
  std::string device;
};

// A row: one size. Times are those of one call, whatever the number of iterations; 0 where the program gives none.
struct NcclRow {
  double bytes = 0;
  std::string type;  // "float"
  double out_of_place_us = 0, in_place_us = 0;
  double algorithm_GBps = 0, bus_GBps = 0;  // of the first time in the row
  double wrong = 0;                         // number of wrong values
};

// Converts rows to points, out of place where a row has both, and counts the rows that it leaves out: other operations,
// other types than float, half and bfloat16, rows with wrong values. A sum in bytes or in doubles takes another time.
class NcclPoints {
 public:
  NcclPoints(const std::string& name, const ImportFile& said) : name_(name), said_(said) {}

  // Adds a row. Throws Error(input) "file:line: …" where neither the run nor the user says the operation or the number
  // of GPUs, where they differ, and where the ratio of the bandwidths belongs to another operation or another number of
  // GPUs.
  void add(const NcclRun& run, const NcclRow& row, int line);
  // Returns all added rows. Throws Error(input) when there is none.
  Measurements take();

 private:
  std::string place(int line) const;
  std::string op_of(const NcclRun& run, int line) const;
  sim::GroupSpan span_of(const NcclRun& run, int line) const;
  void check_bandwidths(CollectiveKind kind, std::int64_t gpus, const NcclRow& row, int line) const;

  const std::string& name_;
  const ImportFile& said_;
  Measurements found_;
  int rows_ = 0, wrong_rows_ = 0;
  std::set<std::string> other_ops_, other_types_;
};

// Returns the operation of a program ("…/all_reduce_perf", with any path and suffix); "" when there is none.
std::string op_of_program(std::string_view text);

}  // namespace stretto::calibrate
