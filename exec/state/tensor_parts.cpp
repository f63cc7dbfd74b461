#include "exec/state/tensor_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>

namespace stretto::exec {

std::vector<Stretch> joined(std::vector<Stretch> stretches) {
  const auto before = [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; };
  if (!std::is_sorted(stretches.begin(), stretches.end(), before))
    std::sort(stretches.begin(), stretches.end(), before);
  std::size_t count = 0;
  for (const Stretch& next : stretches) {
    if (next.count == 0) continue;
    if (count > 0 && next.begin <= stretches[count - 1].end()) {
      Stretch& last = stretches[count - 1];
      last.count = std::max(last.end(), next.end()) - last.begin;
    } else {
      stretches[count++] = next;
    }
  }
  stretches.resize(count);
  return stretches;
}

std::int64_t elements_of(std::span<const Stretch> stretches) {
  std::int64_t elements = 0;
  for (const Stretch& stretch : stretches) elements += stretch.count;
  return elements;
}

std::vector<TensorPart> parts_of(std::span<const Stretch> stretches, std::int64_t cols) {
  std::vector<TensorPart> parts;
  const auto add = [&](const TensorPart& part) {
    if (part.rows() == 0) return;
    if (!parts.empty()) {
      TensorPart& last = parts.back();
      if (last.end_row == part.row && last.col == part.col && last.end_col == part.end_col) {
        last.end_row = part.end_row;
        return;
      }
    }
    parts.push_back(part);
  };
  for (const Stretch& stretch : stretches) {
    const std::int64_t first = stretch.begin / cols, last = (stretch.end() - 1) / cols;
    const std::int64_t begin = stretch.begin % cols, end = (stretch.end() - 1) % cols + 1;
    if (first == last) {
      add({first, first + 1, begin, end});
      continue;
    }
    // The stretch is a piece of the first row, whole rows, and a piece of the last row.
    const std::int64_t whole = first + (begin > 0), end_whole = last + (end == cols);
    if (begin > 0) add({first, first + 1, begin, cols});
    add({whole, end_whole, 0, cols});
    if (end < cols) add({last, last + 1, 0, end});
  }
  return parts;
}

std::string name_of_part(const std::string& tensor, const TensorPart& part, std::int64_t rows, std::int64_t cols) {
  if (part == TensorPart{0, rows, 0, cols}) return tensor;
  return fmt::format("{}[{}:{},{}:{}]", tensor, part.row, part.end_row, part.col, part.end_col);
}

std::optional<std::pair<std::string_view, TensorPart>> part_named(std::string_view name) {
  const std::size_t open = name.rfind('[');
  if (open == std::string_view::npos) return std::nullopt;
  TensorPart part;
  const char *at = name.data() + open + 1, *end = name.data() + name.size();
  for (const auto& [number, mark] : std::initializer_list<std::pair<std::int64_t*, char>>{
           {&part.row, ':'}, {&part.end_row, ','}, {&part.col, ':'}, {&part.end_col, ']'}}) {
    const auto [after, error] = std::from_chars(at, end, *number);
    if (error != std::errc{} || *number < 0 || after == end || *after != mark) return std::nullopt;
    at = after + 1;
  }
  if (at != end || part.rows() <= 0 || part.cols() <= 0) return std::nullopt;
  return std::pair(name.substr(0, open), part);
}

}  // namespace stretto::exec
