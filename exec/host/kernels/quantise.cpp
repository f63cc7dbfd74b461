#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/rng.hpp"
#include "base/scaling.hpp"
#include "exec/code_groups.hpp"
#include "exec/host/kernels/codes.hpp"
#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/magnitude.hpp"
#include "exec/host/kernels/scratch.hpp"

namespace stretto::host {
namespace {

// Rows of a strip: blocks of every scaling end at its end.
constexpr std::int64_t kStrip = kBlockwise;

// The random words of Quantise, as model/ops/codes.hpp specifies them.
struct RandomWords {
  std::array<std::uint32_t, 2> key{};
  std::uint32_t first_sample = 0, first_site = 0;

  // words[kNvBlock], `step` apart, of a block of numbers, `step` apart too.
  void of_block(const float* numbers, std::int64_t step, std::size_t copy, std::uint32_t* words) const {
    exec::BlockHash hash;
    for (std::int64_t i = 0; i < kNvBlock; ++i) hash.add(numbers[i * step]);
    const std::uint32_t site = first_site + static_cast<std::uint32_t>(copy);
    for (std::uint32_t quarter = 0; quarter < kNvBlock / 4; ++quarter) {
      const auto four = philox4x32(
          {quarter, static_cast<std::uint32_t>(hash.value), static_cast<std::uint32_t>(hash.value >> 32), site}, key);
      for (std::uint32_t j = 0; j < 4; ++j) words[(4 * quarter + j) * step] = four[j];
    }
  }

  // words[cols] of a row of x, for one of the two copies.
  void of_row(const Quantise& work, std::int64_t row, std::size_t copy, std::uint32_t* words) const {
    const std::uint32_t site = first_site + static_cast<std::uint32_t>(copy);
    const SequencePlace token = place_of_row(work.parts, work.seq, work.first_row.value() + row);
    const std::int64_t first = work.first_column.value();
    for (std::int64_t c = 0; c < work.cols;) {
      const auto four =
          philox4x32({static_cast<std::uint32_t>((first + c) / 4), static_cast<std::uint32_t>(token.position),
                      first_sample + static_cast<std::uint32_t>(token.sample), site},
                     key);
      for (std::int64_t j = (first + c) % 4; j < 4 && c < work.cols; ++j, ++c)
        words[c] = four[static_cast<std::size_t>(j)];
    }
  }
};

// Casts a row: factors[c] multiplies column c. Without words to nearest.
template <class F>
void cast_row(const float* x, const float* factors, std::int64_t cols, const std::uint32_t* words,
              std::uint8_t* codes) {
  if (words == nullptr)
    for (std::int64_t c = 0; c < cols; ++c) codes[c] = to_code<F>(x[c] * factors[c]);
  else
    for (std::int64_t c = 0; c < cols; ++c) codes[c] = to_code_stochastically<F>(x[c] * factors[c], words[c]);
}

using exec::block_scale;
using exec::BlockScale;

// Writes codes[count, cols], one a byte, as rows [first, first + count) of `to`.
void store_rows(const std::uint8_t* codes, std::int64_t first, std::int64_t count, const Codes& to) {
  for (std::int64_t r = 0; r < count; ++r) {
    const std::uint8_t* from = codes + r * to.cols;
    std::uint8_t* row = to.row(first + r);
    if (to.per_byte() == 1)
      std::memcpy(row, from, static_cast<std::size_t>(to.cols));
    else
      for (std::int64_t c = 0; c < to.cols; c += 2) row[c / 2] = static_cast<std::uint8_t>(from[c] | from[c + 1] << 4);
  }
}

// Writes codes[count, to.rows], one a byte, as columns [first, first + count) of `to`.
void store_columns(const std::uint8_t* codes, std::int64_t first, std::int64_t count, const Codes& to) {
  constexpr std::int64_t kTile = 32;  // rows of `to` whose lines stay in L1
  for (std::int64_t begin = 0; begin < to.rows; begin += kTile)
    for (std::int64_t c = begin; c < std::min(begin + kTile, to.rows); ++c) {
      std::uint8_t* row = to.row(c);
      const std::uint8_t* from = codes + c;
      if (to.per_byte() == 1)
        for (std::int64_t r = 0; r < count; ++r) row[first + r] = from[r * to.rows];
      else
        for (std::int64_t r = 0; r < count; r += 2)
          row[(first + r) / 2] = static_cast<std::uint8_t>(from[r * to.rows] | from[(r + 1) * to.rows] << 4);
    }
}

// Scratch of a thread, kept between calls.
struct Strip {
  std::vector<float> x, turned;         // rows of x, and of x after the Hadamard transform
  std::vector<float> factors;           // for each column
  std::vector<std::uint8_t> codes;      // one a byte
  std::vector<std::uint32_t> amaxes;    // bits of the largest magnitude of each column of a block
  std::vector<std::uint32_t> words[2];  // random words of kNvBlock rows, for each copy
  void fit(std::int64_t cols, bool hadamard) {
    const auto all = static_cast<std::size_t>(kStrip * cols), row = static_cast<std::size_t>(cols);
    if (x.size() < all) x.resize(all);
    if (hadamard && turned.size() < all) turned.resize(all);
    if (codes.size() < all) codes.resize(all);
    if (amaxes.size() < row) amaxes.resize(row);
    for (std::vector<std::uint32_t>& of_rows : words)
      if (of_rows.size() < kNvBlock * row) of_rows.resize(kNvBlock * row);
    if (factors.size() < row) factors.resize(row);
  }
};

// The operands of the work, by name; absent ones are nullptr.
struct Operands {
  const Operand *x, *scale = nullptr, *amax = nullptr, *offsets = nullptr, *key = nullptr, *codes = nullptr,
                    *column_codes = nullptr, *inverse = nullptr, *recorded = nullptr;
  Operands(const Quantise& work, std::span<const Operand> all) {
    const Operand* next = all.data();
    x = next++;
    if (work.scaling == Scaling::tensor)
      scale = next++;
    else if (rule_of(work.scaling).has_factor)
      amax = next++;
    if (work.has_offsets()) offsets = next++;
    if (work.stochastic) key = next++;
    if (work.rowwise) codes = next++;
    if (work.columnwise != ColumnCopy::none) column_codes = next++;
    if (rule_of(work.scaling).has_factor) inverse = next++;
    if (work.records) recorded = next++;
    assert(next == all.data() + all.size());
  }
};

template <class F>
class Quantiser {
 public:
  Quantiser(const Quantise& work, const Operands& operands, bool has_places, Strip& strip)
      : work_(work), of_(operands), rule_(rule_of(work.scaling)), has_places_(has_places), strip_(strip) {
    if (of_.codes) rowwise_ = codes_of(*of_.codes, work.scaling, ScaledAlong::rows, work.rows, work.cols);
    const bool transposed = work.columnwise == ColumnCopy::transposed;
    if (transposed)
      columnwise_ = codes_of(*of_.column_codes, work.scaling, ScaledAlong::rows, work.cols, work.rows);
    else if (of_.column_codes)
      columnwise_ = codes_of(*of_.column_codes, work.scaling, ScaledAlong::columns, work.rows, work.cols);
    if (of_.key) {
      const auto* words = data_of<const std::int32_t>(*of_.key);
      const auto word = [&](int i) { return static_cast<std::uint32_t>(words[i]); };
      random_ = {{word(0), word(1)}, word(2), 16 + 2 * static_cast<std::uint32_t>(work.layer)};
    }
    if (of_.amax)
      for (int copy = 0; copy < 2; ++copy)
        of_tensor_[copy] = nv_tensor_scale(data_of<float>(*of_.amax)[work.hadamard ? copy : 0]);
    strip_.fit(work.cols, work.hadamard);
  }

  void run() {
    for (std::int64_t first = 0; first < work_.rows; first += kStrip) {
      const std::int64_t count = std::min(kStrip, work_.rows - first);
      const std::int64_t own = std::clamp<std::int64_t>(of_.x->rows - first, 0, count);  // others are zeros
      if (work_.of_codes)
        decode(codes_of(*of_.x, work_.scaling, ScaledAlong::rows, of_.x->rows, work_.cols), first, own,
               strip_.x.data());
      else
        read_rows(*of_.x, first, own, strip_.x.data());
      std::fill_n(strip_.x.begin() + own * work_.cols, (count - own) * work_.cols, 0.0f);
      if (of_.recorded) magnitude_.add(strip_.x.data(), count * work_.cols);
      if (work_.of_codes) move_rows(first, own, count);
      if (rule_.block == 0)
        by_tensor(first, count);
      else if (rule_.is_square)
        by_squares(first, count);
      else
        by_blocks(first, count);
    }
    write_scalars();
  }

 private:
  const float* row_of_strip(const std::vector<float>& strip, std::int64_t r) const {
    return strip.data() + r * work_.cols;
  }
  // Casts row `r` of a strip that begins at row `first` of x; copy 0 is along rows, 1 along columns.
  void cast(const std::vector<float>& strip, std::int64_t first, std::int64_t r, std::size_t copy) {
    const std::uint32_t* words = of_.key ? words_of(strip, first, r, copy) : nullptr;
    cast_row<F>(row_of_strip(strip, r), strip_.factors.data(), work_.cols, words, strip_.codes.data() + r * work_.cols);
  }

  // Returns the words of a row, by the places of its numbers or by their blocks. Rows of a strip follow one another.
  const std::uint32_t* words_of(const std::vector<float>& strip, std::int64_t first, std::int64_t r, std::size_t copy) {
    std::uint32_t* words = strip_.words[copy].data();
    const float* row = row_of_strip(strip, r);
    if (has_places_) {
      random_.of_row(work_, first + r, copy, words);
    } else if (copy == 0) {
      for (std::int64_t c = 0; c < work_.cols; c += kNvBlock) random_.of_block(row + c, 1, copy, words + c);
    } else {  // blocks down the columns
      if (r % kNvBlock == 0)
        for (std::int64_t c = 0; c < work_.cols; ++c) random_.of_block(row + c, work_.cols, copy, words + c);
      words += r % kNvBlock * work_.cols;
    }
    return words;
  }

  void store_both(std::int64_t first, std::int64_t count) {
    if (of_.codes) store_rows(strip_.codes.data(), first, count, rowwise_);
    store_columnwise(first, count);
  }
  void store_columnwise(std::int64_t first, std::int64_t count) {
    if (work_.columnwise == ColumnCopy::plain) store_rows(strip_.codes.data(), first, count, columnwise_);
    if (work_.columnwise == ColumnCopy::transposed) store_columns(strip_.codes.data(), first, count, columnwise_);
  }
  void put_scale(const Codes& codes, std::int64_t r, std::int64_t c, const BlockScale& scale) const {
    codes.put_scale(r, c, scale.bits);
  }
  void put_column_scale(std::int64_t r, std::int64_t c, const BlockScale& scale) const {
    if (work_.columnwise == ColumnCopy::plain) put_scale(columnwise_, r, c, scale);
    if (work_.columnwise == ColumnCopy::transposed) put_scale(columnwise_, c, r, scale);
  }

  void by_tensor(std::int64_t first, std::int64_t count) {
    std::fill(strip_.factors.begin(), strip_.factors.end(), *data_of<float>(*of_.scale));
    for (std::int64_t r = 0; r < count; ++r) cast(strip_.x, first, r, 0);
    store_both(first, count);
  }

  // Squares have one scale for both copies, and so the codes of both are equal.
  void by_squares(std::int64_t first, std::int64_t count) {
    const std::int64_t block = rule_.block;
    for (std::int64_t top = 0; top < count; top += block) {
      const std::int64_t below = std::min(top + block, count);
      for (std::int64_t left = 0; left < work_.cols; left += block) {
        Magnitude magnitude;
        const std::int64_t width = std::min(block, work_.cols - left);
        for (std::int64_t r = top; r < below; ++r) magnitude.add(row_of_strip(strip_.x, r) + left, width);
        const BlockScale scale = block_scale(work_.scaling, magnitude.largest(), F::kMax, of_tensor_[0]);
        std::fill_n(strip_.factors.begin() + left, width, scale.factor);
        const bool one_scale = work_.scaling == Scaling::block_128x128;
        for (std::int64_t i = 0; i < (one_scale ? 1 : block); ++i) {
          if (of_.codes) put_scale(rowwise_, first + top + i, left, scale);
          put_column_scale(first + top, left + i, scale);
        }
      }
      for (std::int64_t r = top; r < below; ++r) cast(strip_.x, first, r, 0);
    }
    store_both(first, count);
  }

  // Rows of codes stay what they are, with their scales; rows without numbers are codes of zeros.
  void move_rows(std::int64_t first, std::int64_t own, std::int64_t count) {
    const auto bytes = static_cast<std::size_t>(work_.x_cols());
    for (std::int64_t r = 0; r < own; ++r)
      std::memcpy(rowwise_.row(first + r), row_of<std::uint8_t>(*of_.x, first + r), bytes);
    for (std::int64_t r = own; r < count; ++r) std::memset(rowwise_.row(first + r), 0, bytes);
  }

  void by_blocks(std::int64_t first, std::int64_t count) {
    if (of_.codes && !work_.of_codes) {
      for (std::int64_t r = 0; r < count; ++r) {
        for (std::int64_t c = 0; c < work_.cols; c += rule_.block) {
          Magnitude magnitude;
          const std::int64_t width = std::min(rule_.block, work_.cols - c);
          magnitude.add(row_of_strip(strip_.x, r) + c, width);
          const BlockScale scale = block_scale(work_.scaling, magnitude.largest(), F::kMax, of_tensor_[0]);
          std::fill_n(strip_.factors.begin() + c, width, scale.factor);
          put_scale(rowwise_, first + r, c, scale);
        }
        cast(strip_.x, first, r, 0);
      }
      store_rows(strip_.codes.data(), first, count, rowwise_);
    }
    if (work_.columnwise == ColumnCopy::none) return;
    if (work_.hadamard)
      for (std::int64_t r = 0; r < count; r += kNvBlock)
        hadamard_down_columns(row_of_strip(strip_.x, r), work_.cols, strip_.turned.data() + r * work_.cols);
    const std::vector<float>& x = work_.hadamard ? strip_.turned : strip_.x;
    for (std::int64_t top = 0; top < count; top += rule_.block) {
      std::uint32_t* amaxes = strip_.amaxes.data();
      std::fill_n(amaxes, work_.cols, 0u);
      const std::int64_t below = std::min(top + rule_.block, count);
      for (std::int64_t r = top; r < below; ++r) {
        const float* row = row_of_strip(x, r);
        for (std::int64_t c = 0; c < work_.cols; ++c) amaxes[c] = std::max(amaxes[c], Magnitude::bits_of(row[c]));
      }
      for (std::int64_t c = 0; c < work_.cols; ++c) {
        const BlockScale scale = block_scale(work_.scaling, std::bit_cast<float>(amaxes[c]), F::kMax, of_tensor_[1]);
        strip_.factors[static_cast<std::size_t>(c)] = scale.factor;
        put_column_scale(first + top, c, scale);
      }
      for (std::int64_t r = top; r < below; ++r) cast(x, first, r, 1);
    }
    store_columnwise(first, count);
  }

  void write_scalars() {
    if (of_.inverse) {
      float* inverse = data_of<float>(*of_.inverse);
      if (of_.scale)
        *inverse = 1 / *data_of<float>(*of_.scale);
      else
        for (std::int64_t i = 0; i < elements_of(*of_.inverse); ++i) inverse[i] = of_tensor_[i].inverse;
    }
    if (of_.recorded) {
      float& recorded = *data_of<float>(*of_.recorded);
      recorded = larger_magnitude(recorded, magnitude_.largest());
    }
  }

  const Quantise& work_;
  const Operands& of_;
  const ScalingRule rule_;
  const bool has_places_;  // rows are tokens of a sequence
  Codes rowwise_, columnwise_;
  Strip& strip_;
  RandomWords random_;
  NvTensorScale of_tensor_[2];
  Magnitude magnitude_;
};

// Makes codes of x, which may have fewer rows than the work: others are zeros.
void quantise(const Quantise& work, std::span<const Operand> operands, bool has_places) {
  const Operands by_name(work, operands);
  thread_local Strip strip;
  with_format(work.format, [&]<class F>(F) { Quantiser<F>(work, by_name, has_places, strip).run(); });
}

// Each group becomes codes as a matrix of its own, whose rows are rounded up with zeros.
void quantise_groups(const Quantise& work, std::span<const Operand> operands) {
  const Operands by_name(work, operands);
  Quantise one = work;
  one.groups = one.capacity = 0;
  one.equal = false;
  const exec::RowGroups groups(by_name.offsets, work.grouped());
  groups.for_each(group_rows_of(work.scaling), [&](std::int64_t g, std::int64_t at, std::int64_t rows,
                                                   std::int64_t first, std::int64_t padded) {
    // A group without rows has a scale too. The numbers of the second copy follow those of all groups.
    const auto of = [&](const Operand& numbers) { return exec::element_of(numbers, g); };
    std::array<float, 2> amax{}, inverse{};
    const auto pair = [&](std::array<float, 2>& two, AccessMode mode) {
      const std::int64_t count = work.hadamard ? 2 : 1;
      return Operand{two.data(), Dtype::f32, 1, count, count, mode};
    };
    std::vector<Operand> of_group = {exec::rows_of(*by_name.x, at, rows)};
    if (by_name.scale) of_group.push_back(of(*by_name.scale));
    if (by_name.amax) {
      for (std::int64_t copy = 0; copy < (work.hadamard ? 2 : 1); ++copy)
        amax[static_cast<std::size_t>(copy)] = data_of<float>(*by_name.amax)[copy * work.groups + g];
      of_group.push_back(pair(amax, AccessMode::read));
    }
    if (by_name.key) of_group.push_back(*by_name.key);
    if (by_name.codes)
      of_group.push_back(
          exec::codes_of_group(*by_name.codes, work.scaling, ScaledAlong::rows, first, padded, work.cols));
    if (by_name.column_codes)
      of_group.push_back(work.columnwise == ColumnCopy::transposed
                             ? exec::transposed_of_group(*by_name.column_codes, work.scaling, first, padded, work.cols)
                             : exec::codes_of_group(*by_name.column_codes, work.scaling, ScaledAlong::columns, first,
                                                    padded, work.cols));
    if (by_name.inverse) of_group.push_back(pair(inverse, AccessMode::write));
    if (by_name.recorded) of_group.push_back(of(*by_name.recorded));
    one.rows = padded;
    quantise(one, of_group, false);
    for (std::int64_t copy = 0; by_name.inverse && copy < (work.hadamard ? 2 : 1); ++copy)
      data_of<float>(*by_name.inverse)[copy * work.groups + g] = inverse[static_cast<std::size_t>(copy)];
  });
}

}  // namespace

void run_kernel(const Quantise& work, std::span<const Operand> operands) {
  if (work.groups > 0) return quantise_groups(work, operands);
  assert(has_shape(operands[0], work.rows, work.cols));
  quantise(work, operands, true);
}

void run_kernel(const TransposeCodes& work, std::span<const Operand> operands) {
  assert(operands.size() == 2 && operands[0].dtype == work.format && operands[1].dtype == work.format);
  const Codes from = codes_of(operands[0], work.scaling, ScaledAlong::columns, work.rows, work.cols);
  const Codes to = codes_of(operands[1], work.scaling, ScaledAlong::rows, work.cols, work.rows);
  std::uint8_t* strip = thread_scratch<std::uint8_t>(kStrip * work.cols);
  for (std::int64_t first = 0; first < work.rows; first += kStrip) {
    const std::int64_t count = std::min(kStrip, work.rows - first);
    for (std::int64_t r = 0; r < count; ++r) {
      const std::uint8_t* row = from.row(first + r);
      std::uint8_t* codes = strip + r * work.cols;
      if (from.per_byte() == 1)
        std::memcpy(codes, row, static_cast<std::size_t>(work.cols));
      else
        for (std::int64_t c = 0; c < work.cols; c += 2) {
          codes[c] = row[c / 2] & 15;
          codes[c + 1] = row[c / 2] >> 4;
        }
    }
    store_columns(strip, first, count, to);
  }
  const ScalingRule rule = from.rule();
  if (rule.block == 0) return;
  const std::int64_t step = work.scaling == Scaling::block_128x128 ? rule.block : 1;
  for (std::int64_t r = 0; r < work.rows; r += rule.block)
    for (std::int64_t c = 0; c < work.cols; c += step)
      std::memcpy(to.scale_at(c, r), from.scale_at(r, c), static_cast<std::size_t>(rule.scale_bytes));
}

}  // namespace stretto::host
