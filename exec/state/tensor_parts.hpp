#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stretto::exec {

// Parts of a two-dimensional tensor that several files share between them.

// Elements [begin, begin + count) of a tensor, row-major.
struct Stretch {
  std::int64_t begin = 0, count = 0;
  std::int64_t end() const { return begin + count; }
  bool operator==(const Stretch&) const = default;
};
// Returns the elements of the stretches as ascending stretches without duplicates, as few as possible.
std::vector<Stretch> joined(std::vector<Stretch> stretches);
std::int64_t elements_of(std::span<const Stretch> stretches);

// Elements (i, j) with row ≤ i < end_row and col ≤ j < end_col.
struct TensorPart {
  std::int64_t row = 0, end_row = 0, col = 0, end_col = 0;
  std::int64_t rows() const { return end_row - row; }
  std::int64_t cols() const { return end_col - col; }
  bool operator==(const TensorPart&) const = default;
};
// Returns parts that hold exactly the joined stretches of a tensor with `cols` columns, in the same order of elements.
std::vector<TensorPart> parts_of(std::span<const Stretch> stretches, std::int64_t cols);

// Returns the name of a part in NumPy's notation: "h.0.qkv.weight[0:24,12:24]"; all of a tensor has the tensor's name.
std::string name_of_part(const std::string& tensor, const TensorPart& part, std::int64_t rows, std::int64_t cols);
// Returns the tensor's name and the part; nullopt for a name without a part.
std::optional<std::pair<std::string_view, TensorPart>> part_named(std::string_view name);

}  // namespace stretto::exec
