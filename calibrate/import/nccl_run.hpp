#pragma once
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "calibrate/import/measurements.hpp"

namespace stretto::calibrate {

// A run of one program of nccl-tests: the header that precedes the rows of sizes.
struct NcclRun {
  std::string op;                 // "all_reduce"; "" when the header does not say
  std::int64_t gpus = 0;          // lines "Rank N" of one group
  std::int64_t last_rank = -1;    // the largest N among them
  bool has_other_groups = false;  // ranks of concurrent groups are counted through
  std::set<std::string> hosts;
  std::string device;
  int headers = 0;  // before the rows: two runs may be equal but for it
  bool operator==(const NcclRun&) const = default;
};

// A printed number, and one step of its last digit: 0.01 for "75.53".
struct PrintedNumber {
  double value = 0, step = 0;
};

// A row: one size. Times are those of one call, whatever the number of iterations; 0 where the program gives none.
struct NcclRow {
  double bytes = 0;
  std::string type;   // "float"
  std::string redop;  // "sum", "none"; "" where the row does not say
  std::string root;   // "-1": the operation has none
  double out_of_place_us = 0, in_place_us = 0;
  PrintedNumber algorithm_GBps, bus_GBps;  // of the first time in the row
  double wrong = 0;                        // number of wrong values
  // whether the program counted them
  bool is_checked_out_of_place = false, is_checked_in_place = false;
};

// The ratios of bus to algorithm bandwidth that the printed digits of rows leave open.
struct RatioRange {
  double low = 0, high = 1e300;
  bool is_known() const { return low > 0; }
  bool has(double ratio) const { return ratio >= low && ratio <= high; }
  void narrow(const RatioRange& more);
};
RatioRange ratio_of(const NcclRow& row);

// Converts rows to points, out of place where a row has both, and counts the rows that it leaves out: other operations,
// other types than float, half and bfloat16, rows with wrong values. A sum in bytes or in doubles takes another time.
class NcclPoints {
 public:
  NcclPoints(const std::string& name, const ImportFile& said) : name_(name), said_(said) {}

  // Adds a row; `line` is 0 where the file has none.
  void add(const NcclRun& run, const NcclRow& row, int line);
  // Returns all added rows. Throws Error(input) when there is none, and "file:line: …" where neither the file nor the
  // user says the operation or the number of GPUs, and where what they say contradicts the rows: the lines "Rank N",
  // the reduction, and the ratio of the bandwidths, as exactly as it is printed.
  Measurements take();

 private:
  // Rows one after another that one header precedes, with one reduction, and values counted at equal places.
  struct Series {
    NcclRun run;
    std::vector<std::pair<NcclRow, int>> rows;  // and lines
    RatioRange ratio;
  };
  std::string place(int line) const;
  void take(const Series& series);
  std::string op_of(const Series& series) const;
  sim::GroupSpan span_of(const Series& series, CollectiveKind kind) const;
  void check_bandwidths(CollectiveKind kind, std::int64_t gpus, const NcclRow& row, int line) const;

  const std::string& name_;
  const ImportFile& said_;
  std::vector<Series> series_;
  Measurements found_;
  int rows_ = 0, wrong_rows_ = 0;
  std::set<std::string> other_ops_, other_types_;
};

// Returns the operation of a program ("…/all_reduce_perf", with any path and suffix); "" when there is none.
std::string op_of_program(std::string_view text);

}  // namespace stretto::calibrate
