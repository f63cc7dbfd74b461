#include "model/verify/pieces.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

namespace stretto {

Pieces::Pieces(std::vector<std::int64_t> cuts, std::span<const Columns> columns) : cuts_(std::move(cuts)) {
  const std::size_t bands = cuts_.empty() ? 0 : cuts_.size() - 1;
  period_.assign(bands, 1);
  for (const Columns& of : columns)
    for (std::size_t b = band(of.begin), last = band(of.end()); b < last; ++b)
      period_[b] = std::min(std::lcm(period_[b], of.ld_bytes), cuts_[b + 1] - cuts_[b]);
  std::vector<std::pair<std::size_t, std::int64_t>> ends;  // of rows, with their bands
  for (const Columns& of : columns)
    visit_rows(of, [&](std::size_t b, std::int64_t begin, std::int64_t end) {
      ends.emplace_back(b, begin);
      ends.emplace_back(b, end);
    });
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  first_.reserve(bands + 1);
  begin_.reserve(bands + ends.size());
  auto end = ends.begin();
  for (std::size_t b = 0; b < bands; ++b) {
    first_.push_back(static_cast<std::uint32_t>(begin_.size()));
    begin_.push_back(cuts_[b]);
    for (; end != ends.end() && end->first == b; ++end)
      if (end->second > cuts_[b] && end->second < cuts_[b] + period_[b]) begin_.push_back(end->second);
  }
  first_.push_back(static_cast<std::uint32_t>(begin_.size()));
}

std::size_t Pieces::band(std::int64_t cut) const {
  const auto at = std::lower_bound(cuts_.begin(), cuts_.end(), cut);
  assert(at != cuts_.end() && *at == cut);
  return static_cast<std::size_t>(at - cuts_.begin());
}

template <class Visit>
void Pieces::visit_rows(const Columns& columns, Visit visit) const {
  for (std::size_t b = band(columns.begin), last = band(columns.end()); b < last; ++b) {
    // All columns that cross a band cross the whole of it, so one period stands for all.
    const std::int64_t begin = cuts_[b], end = begin + period_[b];
    for (std::int64_t row = columns.begin + (begin - columns.begin) / columns.ld_bytes * columns.ld_bytes; row < end;
         row += columns.ld_bytes)
      if (row + columns.row_bytes > begin) visit(b, std::max(row, begin), std::min(row + columns.row_bytes, end));
  }
}

std::vector<ByteRange> Pieces::of(const Columns& columns) const {
  std::vector<ByteRange> result;
  visit_rows(columns, [&](std::size_t b, std::int64_t begin, std::int64_t end) {
    const auto first = begin_.begin() + first_[b], last = begin_.begin() + first_[b + 1];
    const ByteRange pieces{std::lower_bound(first, last, begin) - begin_.begin(),
                           std::lower_bound(first, last, end) - begin_.begin()};
    if (!result.empty() && result.back().end == pieces.begin)
      result.back().end = pieces.end;
    else
      result.push_back(pieces);
  });
  return result;
}

}  // namespace stretto
