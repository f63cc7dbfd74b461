#include "diagnose/alignment.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "diagnose/kinds.hpp"

namespace stretto::diagnose {
namespace {

// Scores. A sure kernel outweighs leaving out an operation and a kernel together; side, bytes and length decide between
// operations that fit equally.
constexpr double kKind = 3, kSideAgrees = 0.4, kSideDiffers = -0.8, kLength = 1, kBytes = 1;
constexpr double kExtraKernel = -0.3, kMissingItem = -0.6;
constexpr std::size_t kMostCells = std::size_t{1} << 28;

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Returns 1 for numbers that are about equal (a prediction's error says nothing about which operation it is), less for
// others, and half where one is not known.
double nearness(double a, double b) {
  if (a <= 0 || b <= 0) return 0.5;
  constexpr double kAboutEqual = 1.3;
  return std::exp(std::min(0.0, std::log(kAboutEqual) - std::abs(std::log(a / b))));
}

// The steps that led to a cell: of its best score (bits 0 and 1), and of the score with its kernel matched to its item
// (bit 2).
enum Step : std::uint8_t { kMatched = 0, kExtra = 1, kMissing = 2, kFurther = 4 };

class AlignmentTable {
 public:
  AlignmentTable(const std::vector<Item>& items, const std::vector<Piece>& pieces) : items_(items), pieces_(pieces) {
    for (const Item& item : items) {
      auto& fits = fits_.emplace_back();
      for (std::size_t cls = 0; cls < fits.size(); ++cls)
        fits[cls] = fit_of(*item.operation, static_cast<trace::KernelClass>(cls));
    }
    const std::size_t all = items.size() + 1;
    width_ = std::min(all, std::max<std::size_t>(64, kMostCells / (pieces.size() + 1)));
    steps_.resize((pieces.size() + 1) * width_, kExtra);
  }

  std::vector<std::int32_t> run() {
    const std::size_t count = pieces_.size();
    std::vector<float> best(width_, kNever), matched(width_, kNever), next_best(width_), next_matched(width_);
    // Length of the kernels so far of the item of a cell that is matched, in microseconds.
    std::vector<float> lengths(width_, 0), next_lengths(width_, 0);
    std::size_t first = first_of(0);
    for (std::size_t c = 0; c < width_ && first + c <= items_.size(); ++c) {
      if (first + c == 0) {
        best[c] = 0;
      } else if (c > 0) {
        best[c] = best[c - 1] + float(kMissingItem);
        step(0, c) = kMissing;
      }
    }
    for (std::size_t i = 1; i <= count; ++i) {
      const std::size_t before = first, now = first_of(i);
      const Piece& piece = pieces_[i - 1];
      const auto at = [&](const std::vector<float>& row, std::size_t j) {
        return j < before || j >= before + width_ ? kNever : row[j - before];
      };
      for (std::size_t c = 0; c < width_; ++c) {
        const std::size_t j = now + c;
        next_best[c] = next_matched[c] = kNever;
        if (j > items_.size()) continue;
        std::uint8_t how = kExtra;
        if (j > 0) {
          const Fit& fit = fits_[j - 1][static_cast<std::size_t>(piece.cls)];
          const float begins = fit.first < 0 ? kNever : at(best, j - 1) + first_score(items_[j - 1], piece, fit);
          const float before_us = at(matched, j) == kNever ? 0 : lengths[j - before];
          const float goes_on =
              fit.further < 0 ? kNever : at(matched, j) + further_score(items_[j - 1], piece, fit, before_us);
          next_matched[c] = std::max(begins, goes_on);
          next_lengths[c] = float(piece.us) + (goes_on > begins ? before_us : 0);
          if (goes_on > begins) how |= kFurther;
        }
        const float extra = at(best, j) + float(kExtraKernel);
        const float missing = c > 0 ? next_best[c - 1] + float(kMissingItem) : kNever;
        next_best[c] = std::max({next_matched[c], extra, missing});
        how &= kFurther;
        if (next_best[c] == next_matched[c] && next_matched[c] > kNever)
          how |= kMatched;
        else
          how |= next_best[c] == extra ? kExtra : kMissing;
        step(i, c) = how;
      }
      best.swap(next_best);
      matched.swap(next_matched);
      lengths.swap(next_lengths);
      first = now;
    }
    return walk_back();
  }

 private:
  std::uint8_t& step(std::size_t i, std::size_t c) { return steps_[i * width_ + c]; }

  // Returns the first item that is tried for the first i kernels: around the kernel's place.
  std::size_t first_of(std::size_t i) const {
    if (width_ > items_.size()) return 0;
    const double place = i == 0 ? 0 : i > pieces_.size() - 1 ? 1 : pieces_[i - 1].place;
    const auto middle = std::lower_bound(items_.begin(), items_.end(), place,
                                         [](const Item& item, double p) { return item.place < p; });
    const std::ptrdiff_t begin = (middle - items_.begin()) - static_cast<std::ptrdiff_t>(width_ / 2);
    const auto last = static_cast<std::ptrdiff_t>(items_.size() + 1 - width_);
    return static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(begin, 0, last));
  }

  static float first_score(const Item& item, const Piece& piece, const Fit& fit) {
    double score =
        kKind * fit.first + kLength * nearness(item.us, piece.us) + kBytes * nearness(item.bytes, piece.bytes);
    const trace::Side side = side_of(item.operation->phase);
    if (side != trace::Side::unknown && piece.side != trace::Side::unknown)
      score += side == piece.side ? kSideAgrees : kSideDiffers;
    return float(score);
  }

  // A further kernel is welcome as far as it brings the item nearer to its predicted length.
  static float further_score(const Item& item, const Piece& piece, const Fit& fit, double before_us) {
    return float(fit.further +
                 kLength * (nearness(item.us, before_us + piece.us) - nearness(item.us, std::max(before_us, 1e-6))));
  }

  std::vector<std::int32_t> walk_back() {
    std::vector<std::int32_t> result(pieces_.size(), kNoItem);
    std::size_t i = pieces_.size(), j = items_.size();
    bool within = false;  // the kernel is to be matched to item j, whatever the best step is
    while (i > 0) {
      const std::size_t first = first_of(i);
      if (j < first || j >= first + width_) break;
      const std::uint8_t how = step(i, j - first);
      const int kind = within ? kMatched : how & 3;
      if (kind == kMissing) {
        --j;
      } else if (kind == kExtra) {
        --i;
      } else {
        result[--i] = static_cast<std::int32_t>(j) - 1;
        within = (how & kFurther) != 0;
        if (!within) --j;
      }
    }
    return result;
  }

  const std::vector<Item>& items_;
  const std::vector<Piece>& pieces_;
  std::vector<std::array<Fit, static_cast<std::size_t>(trace::KernelClass::other) + 1>> fits_;  // [item][class]
  std::size_t width_ = 0;            // items that are tried for one kernel
  std::vector<std::uint8_t> steps_;  // [kernels][item − first]
};

}  // namespace

std::vector<std::int32_t> align(const std::vector<Item>& items, const std::vector<Piece>& pieces) {
  if (items.empty() || pieces.empty()) return std::vector<std::int32_t>(pieces.size(), kNoItem);
  return AlignmentTable(items, pieces).run();
}

}  // namespace stretto::diagnose
