#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/verify/class_ranges.hpp"

namespace stretto {

// Internal to the verifier. Some columns of a matrix: `rows` ranges of `row_bytes` bytes, `ld_bytes` apart.
struct Columns {
  std::int64_t begin = 0, rows = 1, row_bytes = 0, ld_bytes = 1;  // row_bytes <= ld_bytes
  std::int64_t end() const { return begin + (rows - 1) * ld_bytes + row_bytes; }
};

// Pieces: the bytes between neighbouring ends of ranges and of rows. Bytes that the same ranges cover may be one piece
// although they are not contiguous: between two cuts everything repeats after the least common multiple of the leading
// dimensions, so one period stands for all. A matrix of a million rows has no more pieces than one of two.
class Pieces {
 public:
  // `cuts`: ascending, distinct; begin and end of every range and of all columns.
  Pieces(std::vector<std::int64_t> cuts, std::span<const Columns> columns);

  std::uint32_t count() const { return first_.back(); }
  // Returns the piece that begins at the `cut`-th cut; count() at the last one. A range between two cuts covers the
  // pieces between them.
  std::uint32_t first_of_band(std::size_t cut) const { return first_[cut]; }
  // Returns the pieces of columns that the constructor was given: ascending, disjoint.
  std::vector<ByteRange> of(const Columns& columns) const;

 private:
  // Calls visit(band, begin, end) for the rows within one period of each band that the columns cross.
  template <class Visit>
  void visit_rows(const Columns& columns, Visit visit) const;
  std::size_t band(std::int64_t cut) const;

  std::vector<std::int64_t> cuts_;    // neighbours bound a band
  std::vector<std::int64_t> period_;  // [band] bytes of a period, at most the bytes of the band
  std::vector<std::uint32_t> first_;  // [band] its first piece; one more entry at the end
  std::vector<std::int64_t> begin_;   // [piece]
};

}  // namespace stretto
