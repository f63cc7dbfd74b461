#include "calibrate/import/measurements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

#include "base/budget.hpp"
#include "base/csv.hpp"
#include "base/error.hpp"
#include "base/toml.hpp"
#include "base/utf8.hpp"
#include "base/values_of.hpp"
#include "model/schedule/parcel.hpp"
#include "sim/accelerator/measured_time.hpp"
#include "trace/trace.hpp"

namespace stretto::calibrate {
namespace {

// Reads a whole number from 1 to 2^20 that is all of `text`.
bool take_count(std::string_view text, std::int64_t& count) {
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), count);
  return problem == std::errc() && end == text.data() + text.size() && count >= 1 && count <= 1 << 20;
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}
// Returns whether elements have a type of training: sums in other types take another time.
bool is_half(std::string_view dtype) {
  return is_one_of(dtype, {"half", "float16", "fp16", "f16", "bfloat16", "bf16"});
}

// The GPU of a table's rows, in a column "device" or "gpu", which a table need not have.
class DeviceColumn {
 public:
  // Adds the column to those that are read, where the table has it.
  DeviceColumn(std::string_view text, std::vector<std::string>& columns) {
    for (const char* key : {"device", "gpu"})
      if (at_ == 0 && has_csv_column(text, key)) {
        columns.push_back(key);
        at_ = columns.size() - 1;
      }
  }
  // Throws Error(input) where the rows are of several GPUs, which one platform cannot be.
  void take(const CsvRow& row, std::string& device) const {
    if (at_ == 0 || row.text(at_).empty()) return;
    if (device.empty()) device = row.text(at_);
    if (device != row.text(at_)) throw row.error(at_, "rows of one GPU, " + in_quotes(device));
  }

 private:
  std::size_t at_ = 0;  // 0: there is none, since other columns come first
};

std::string left_out(std::size_t rows, const std::string& why) {
  return fmt::format("rows not used: {} {}", rows, why);
}

}  // namespace

ImportFile parse_import(const std::string& text) {
  ImportFile file{text, "", 0, 0};
  const std::size_t equals = text.find('=');
  const std::string_view said = std::string_view(text).substr(0, equals);
  if (equals == std::string::npos || said.find('/') < said.find('@')) return file;
  const std::size_t at = std::min(said.size(), said.find('@'));
  file.op = said.substr(0, at);
  file.path = text.substr(equals + 1);
  if (const auto kind = sim::collective_named(file.op))
    file.op = name_of(*kind);
  else if (!file.op.empty()) {
    std::vector<std::string> ops;
    for (const CollectiveKind each : kinds_of_equal_slices()) ops.push_back(name_of(each));
    std::error_code ignored;
    if (std::filesystem::exists(text, ignored)) return {text, "", 0, 0};  // a file name with a "="
    const std::string nearest = nearest_spelling(file.op, ops);
    throw input_error("--import " + in_quotes(text) +
                      ": expected all_gather, reduce_scatter, all_reduce or all_to_all before \"=\"" +
                      (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
  }
  if (at == said.size()) return file;
  const std::string_view counts = said.substr(at + 1);
  const std::size_t slash = std::min(counts.size(), counts.find('/'));
  const bool is_whole = take_count(counts.substr(0, slash), file.gpus) &&
                        (slash == counts.size() || take_count(counts.substr(slash + 1), file.nodes));
  if (!is_whole || (file.nodes > 0 && file.gpus % file.nodes != 0))
    throw input_error("--import " + in_quotes(text) +
                      ": expected @GPUS or @GPUS/NODES before \"=\", as many GPUs on each node");
  if (file.nodes == 0) file.nodes = 1;
  return file;
}

Measurements read_collective_csv(std::string_view text, const std::string& name, const ImportFile& said) {
  std::vector<std::string> columns = {"bytes", "time_us"};
  const auto column = [&](const char* key, bool is_needed) {
    if (!is_needed && !has_csv_column(text, key)) return std::size_t{0};
    columns.push_back(key);
    return columns.size() - 1;
  };
  const std::size_t op = column("op", said.op.empty()), gpus = column("gpus", said.gpus == 0);
  const std::size_t nodes = column("nodes", false), dtype = column("dtype", false);
  const DeviceColumn device(text, columns);
  Measurements found;
  std::size_t other_ops = 0, other_types = 0;
  read_csv(text, name, columns, [&](const CsvRow& row) {
    device.take(row, found.device);
    const std::string_view named = op > 0 ? row.text(op) : said.op;
    const std::optional<CollectiveKind> kind = sim::collective_named(named);
    if (!kind || (!said.op.empty() && name_of(*kind) != said.op)) {
      ++other_ops;
      return;
    }
    if (dtype > 0 && !is_half(row.text(dtype)) && !is_one_of(row.text(dtype), {"float", "float32", "fp32"})) {
      ++other_types;
      return;
    }
    sim::CollectiveTime time{
        *kind, {said.gpus, std::max<std::int64_t>(1, said.nodes)}, row.number(0), sim::time_us(row, 1)};
    if (said.gpus == 0) time.span = {row.count(gpus), nodes > 0 ? row.count(nodes) : 1};
    if (time.span.members < 2) throw row.error(gpus, "at least 2");
    if (time.span.members % time.span.nodes != 0)
      throw row.error(nodes, fmt::format("a divisor of gpus, {}", time.span.members));
    found.collectives.push_back(time);
  });
  if (found.collectives.empty())
    throw input_error(
        name + ": expected rows of all_gather, reduce_scatter, all_reduce or all_to_all in 16 or 32 bits, got none");
  if (other_ops > 0) found.notes.push_back(left_out(other_ops, "of other operations"));
  if (other_types > 0) found.notes.push_back(left_out(other_types, "of other types than half, bfloat16 and float"));
  return found;
}

Measurements read_gemm_csv(std::string_view text, const std::string& name) {
  std::vector<std::string> columns = {"m", "n", "k", "time_us"};
  const bool has_dtype = has_csv_column(text, "dtype");
  if (has_dtype) columns.push_back("dtype");
  const DeviceColumn device(text, columns);
  Measurements found;
  std::size_t other_types = 0, unaligned = 0;
  read_csv(text, name, columns, [&](const CsvRow& row) {
    device.take(row, found.device);
    const std::array<std::int64_t, 3> shape = {row.count(0), row.count(1), row.count(2)};
    const auto low = has_dtype ? sim::product_type_named(row.text(4)) : std::nullopt;
    const bool is_low = low && sim::is_low(*low);
    if (has_dtype && !is_half(row.text(4)) && !is_low)
      ++other_types;
    else if (std::any_of(shape.begin(), shape.end(), [](std::int64_t side) { return side % 8 != 0; }))
      ++unaligned;
    else
      found.gemms.push_back({double(shape[0]), double(shape[1]), double(shape[2]), sim::time_us(row, 3),
                             is_low ? *low : sim::ProductType::bf16});
  });
  if (found.gemms.empty())
    throw input_error(name +
                      ": expected rows of half, bfloat16 or a low precision whose m, n and k 8 divides, got none");
  if (other_types > 0)
    found.notes.push_back(left_out(other_types, "of other types than half, bfloat16, fp8, fp8_block, mxfp8 and nvfp4"));
  if (unaligned > 0) found.notes.push_back(left_out(unaligned, "whose m, n or k 8 does not divide"));
  return found;
}

Measurements read_measurements(const ImportFile& file) {
  if (trace::looks_like_trace(file.path)) {
    Measurements found = read_kernel_times(file);
    found.file = std::filesystem::path(file.path).filename().string();
    return found;
  }
  const std::string& name = file.path;
  Budget budget(name);
  const std::string whole = read_text(name, budget);
  const std::string_view text = require_text(whole, name);
  const bool is_csv = has_csv_column(text, "time_us");
  const bool is_gemm = is_csv && (has_csv_column(text, "m") || has_csv_column(text, "k"));
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (is_gemm && !file.op.empty())
    throw input_error(name + ": expected times of " + file.op + ", as --import says, got times of GEMMs");
  Measurements found = is_gemm                                                 ? read_gemm_csv(text, name)
                       : is_csv                                                ? read_collective_csv(text, name, file)
                       : first != std::string_view::npos && text[first] == '{' ? read_nccl_json(text, name, file)
                                                                               : read_nccl_text(text, name, file);
  found.file = std::filesystem::path(file.path).filename().string();
  return found;
}

}  // namespace stretto::calibrate
