#include "model/document_lengths.hpp"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string_view>

#include "base/budget.hpp"
#include "base/error.hpp"
#include "base/rng.hpp"
#include "base/toml.hpp"
#include "base/values_of.hpp"
#include "model/schedule/work.hpp"

namespace stretto {
namespace {

constexpr std::uint64_t kSeed = 1;
// Bounds of the work of drawing sequences: some milliseconds.
constexpr std::int64_t kSequences = 2048, kDraws = 1 << 18;
// Sequences of more documents than this differ by less than 2 % (the deviation of a sum of n is 1 / √n).
constexpr double kMostDocuments = 4096;

// Documents one after the other, at random: draw(i) is a function of i alone.
class LengthsDrawn {
 public:
  LengthsDrawn(const DocumentLengths& lengths, double mean) : lengths_(lengths), mean_(mean) {
    assert(mean >= 1 || lengths.kind == DocumentLengths::Kind::measured);
    if (lengths.kind == DocumentLengths::Kind::measured)
      mean_ = double(std::accumulate(lengths.measured.begin(), lengths.measured.end(), std::int64_t{0})) /
              double(lengths.measured.size());
  }
  double mean() const { return mean_; }
  double draw(std::uint64_t i) const {
    if (lengths_.kind == DocumentLengths::Kind::equal) return mean_;
    const double u = uniform(kSeed, 0, i);
    if (lengths_.kind == DocumentLengths::Kind::measured)
      return double(lengths_.measured[static_cast<std::size_t>(u * double(lengths_.measured.size()))]);
    return geometric(u);
  }
  // The mean of a function of a document's length; of geometric lengths, at quantiles at equal distances.
  template <typename F>
  double mean_of(F&& of) const {
    double sum = 0;
    switch (lengths_.kind) {
      case DocumentLengths::Kind::equal:
        return of(mean_);
      case DocumentLengths::Kind::measured:
        for (const std::int64_t length : lengths_.measured) sum += of(double(length));
        return sum / double(lengths_.measured.size());
      case DocumentLengths::Kind::geometric:
        break;
    }
    constexpr int kQuantiles = 1 << 12;
    for (int i = 0; i < kQuantiles; ++i) sum += of(geometric((i + 0.5) / kQuantiles));
    return sum / kQuantiles;
  }

 private:
  // The length that a share u of all documents is below or at.
  double geometric(double u) const { return mean_ <= 1 ? 1 : 1 + std::floor(std::log1p(-u) / std::log1p(-1 / mean_)); }

  const DocumentLengths& lengths_;
  double mean_;
};

// Pairs of a document of `length` tokens that no sequence's end cuts.
double pairs_of(double length) { return length * (length + 1) / 2; }

// Pairs of a document that lies anywhere in sequences of s tokens: of its length − d pairs at distance d, the share
// 1 − d/s is in one sequence. The sum over d from 0 to m − 1, with m = min(length, s).
double pairs_when_cut(double length, double s) {
  const double m = std::min(length, s);
  return length * m - (1 + length / s) * m * (m - 1) / 2 + (m - 1) * m * (2 * m - 1) / (6 * s);
}

// Pairs of a sequence whose tokens end their document with one probability.
double pairs_of_geometric(double mean, std::int64_t seq) {
  Attention whole;
  whole.seq = seq;
  whole.by_document = true;
  whole.document_tokens = mean;
  return attention_pairs(whole).count;
}

// Pairs of each drawn sequence where documents follow one another.
std::vector<double> drawn_chunks(const LengthsDrawn& source, double s) {
  std::vector<double> sequences;
  double rest = source.draw(0) * uniform(kSeed, 1, 0);  // the first sequence begins inside of a document
  std::int64_t draw = 0;
  while (std::ssize(sequences) < kSequences && draw < kDraws) {
    double left = s, pairs = 0;
    while (left > 0 && draw < kDraws) {
      if (rest < 1) rest = source.draw(static_cast<std::uint64_t>(++draw));
      const double taken = std::min(rest, left);
      pairs += pairs_of(taken);
      left -= taken;
      rest -= taken;
    }
    sequences.push_back(pairs);
  }
  return sequences;
}

struct Bin {
  double room = 0, pairs = 0;
};

// Sequences that are filled first fit. The last ones are left out: later documents would have filled them.
std::vector<Bin> drawn_bins(const LengthsDrawn& source, double s) {
  const double documents = std::max(1.0, s / std::min(s, source.mean()));
  // A document looks at all sequences, so that the work is documents · sequences².
  const auto most =
      static_cast<std::int64_t>(std::clamp(std::sqrt(double(1 << 24) / documents), 16.0, double(kSequences)));
  std::vector<Bin> bins;
  for (std::int64_t draw = 0; draw < kDraws; ++draw) {
    const double length = std::min(s, source.draw(static_cast<std::uint64_t>(draw)));
    auto bin = std::find_if(bins.begin(), bins.end(), [&](const Bin& b) { return b.room >= length; });
    if (bin == bins.end()) {
      if (std::ssize(bins) == most) break;
      bin = bins.insert(bins.end(), Bin{s, 0});
    }
    bin->room -= length;
    bin->pairs += pairs_of(length);
  }
  const std::size_t kept = std::max<std::size_t>(1, bins.size() - bins.size() / 8);
  bins.resize(kept);
  return bins;
}

void set_spread(PackedSequences& packed, const std::vector<double>& drawn) {
  const auto n = double(drawn.size());
  const double mean = std::accumulate(drawn.begin(), drawn.end(), 0.0) / n;
  double second = 0, third = 0;
  for (const double pairs : drawn) {
    const double off = pairs / mean - 1;
    second += off * off;
    third += off * off * off;
  }
  packed.deviation = std::sqrt(second / n);
  packed.skewness = packed.deviation > 1e-9 ? third / n / std::pow(packed.deviation, 3) : 0;
  packed.most = std::max(1.0, *std::max_element(drawn.begin(), drawn.end()) / mean);
}

// The inverse of the standard normal distribution, by bisection of its own definition.
double normal_at(double share) {
  double low = -9, high = 9;
  for (int i = 0; i < 60; ++i) {
    const double x = (low + high) / 2;
    (0.5 * std::erfc(-x / std::sqrt(2.0)) < share ? low : high) = x;
  }
  return (low + high) / 2;
}

}  // namespace

const char* name_of(DocumentLengths::Kind kind) { return name_in({"geometric", "equal", "measured"}, kind); }
const char* name_of(DocumentLengths::Packing packing) { return name_in({"chunk", "first_fit"}, packing); }

PackedSequences packed_sequences(const DocumentLengths& lengths, double mean, std::int64_t seq) {
  const LengthsDrawn source(lengths, mean);
  const auto s = double(seq);
  PackedSequences packed;
  if (lengths.packing == DocumentLengths::Packing::chunk) {
    packed.documents = s / source.mean();
    packed.pairs = lengths.kind == DocumentLengths::Kind::geometric
                       ? pairs_of_geometric(source.mean(), seq)
                       : packed.documents * source.mean_of([&](double length) { return pairs_when_cut(length, s); });
    if (packed.documents < kMostDocuments) set_spread(packed, drawn_chunks(source, s));
    return packed;
  }
  const auto cut = [&](double length) { return std::min(s, length); };
  const std::vector<Bin> bins = drawn_bins(source, s);
  std::vector<double> drawn;
  double room = 0;
  for (const Bin& bin : bins) {
    drawn.push_back(bin.pairs);
    room += bin.room;
  }
  packed.filled = 1 - room / (s * double(bins.size()));
  packed.documents = packed.filled * s / source.mean_of(cut);
  packed.pairs = packed.documents * source.mean_of([&](double length) { return pairs_of(cut(length)); });
  set_spread(packed, drawn);
  return packed;
}

double slowest_replica(const PackedSequences& packed, std::int64_t replicas, std::int64_t sequences) {
  if (replicas <= 1 || packed.deviation == 0) return 1;
  // The largest of n normal numbers is expected where the distribution is (n − 0.375) / (n + 0.25) (Blom 1958); the
  // mean of several sequences is nearly normal, but for its skewness (Cornish and Fisher 1938).
  const double n = double(replicas), z = normal_at((n - 0.375) / (n + 0.25));
  const double skewness = packed.skewness / std::sqrt(double(sequences));
  const double largest = z + (z * z - 1) * skewness / 6;
  return std::clamp(1 + std::max(0.0, largest) * packed.deviation / std::sqrt(double(sequences)), 1.0, packed.most);
}

double geometric_mean_of(double pairs, std::int64_t seq) {
  double low = 0, high = std::log(1e12);
  if (pairs >= pairs_of_geometric(std::exp(high), seq)) return std::exp(high);
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (pairs_of_geometric(std::exp(middle), seq) < pairs ? low : high) = middle;
  }
  return std::exp(high);
}

void read_measured(DocumentLengths& lengths) {
  Budget budget(lengths.file);
  const std::string text = read_text(lengths.file, budget);
  lengths.measured.clear();
  int number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    ++number;
    line = line.substr(0, line.find('#'));
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) continue;
    line = line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
    std::int64_t tokens = 0;
    const auto [end, failed] = std::from_chars(line.data(), line.data() + line.size(), tokens);
    if (failed != std::errc() || end != line.data() + line.size() || tokens < 1 || tokens > 1'000'000'000)
      throw input_error(lengths.file + ":" + std::to_string(number) +
                        ": expected the tokens of one document, from 1 to 1000000000, got " + in_quotes(line));
    budget.keep(sizeof tokens);
    lengths.measured.push_back(tokens);
  }
  if (lengths.measured.empty())
    throw input_error(lengths.file + ": expected a line with the tokens of a document, got none");
}

}  // namespace stretto
