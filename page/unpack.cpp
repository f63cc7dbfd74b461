// A WebAssembly module of its own, two kilobytes, that unpacks the page's predictor and data: browsers unpack gzip
// alone, and LZMA is a third smaller. page/worker.js lays the packed bytes into the memory and calls unpack(). The
// format is that of Igor Pavlov's "LZMA specification" (lzma-specification.txt of the LZMA SDK), as Python's
// lzma.FORMAT_ALONE writes it: a range coder of bits, each with a probability of 11 bits that begins at one half and
// follows what it has seen.
//   header: one byte (pb * 5 + lp) * 9 + lc, four bytes of the dictionary's size, eight of the output's length
#include <cstdint>

namespace {

constexpr int kBits = 11, kRate = 5, kStates = 12, kPlaces = 16;  // a place: the lowest bits of the position
constexpr std::uint32_t kTop = 1u << 24, kHeader = 13, kMostLiteralBits = 4, kLengths = 4;

struct Probability {
  std::uint16_t of_zero;
};

struct Lengths {
  Probability is_long, is_longest, low[kPlaces][8], middle[kPlaces][8], high[256];
};

struct Models {  // of probabilities alone
  Probability literals[0x300 << kMostLiteralBits];
  Probability is_match[kStates][kPlaces], is_repeat[kStates], is_repeat0[kStates], is_repeat1[kStates],
      is_repeat2[kStates];
  Probability is_longer[kStates][kPlaces], slots[kLengths][64], near[128], align[16];
  Lengths match, repeat;
};

struct Decoder {
  const std::uint8_t* in;
  const std::uint8_t* end;
  std::uint32_t range = 0xffffffff, code = 0;

  void normalize() {
    if (range >= kTop) return;
    range <<= 8;
    code = code << 8 | (in < end ? *in : 0);
    ++in;
  }
  unsigned bit(Probability& p) {
    const std::uint32_t bound = (range >> kBits) * p.of_zero;
    const bool is_one = code >= bound;
    if (is_one) {
      range -= bound;
      code -= bound;
      p.of_zero -= p.of_zero >> kRate;
    } else {
      range = bound;
      p.of_zero += ((1 << kBits) - p.of_zero) >> kRate;
    }
    normalize();
    return is_one;
  }
  std::uint32_t plain_bits(unsigned count) {  // without a model
    std::uint32_t found = 0;
    for (; count > 0; --count) {
      range >>= 1;
      const bool is_one = code >= range;
      if (is_one) code -= range;
      found = found << 1 | is_one;
      normalize();
    }
    return found;
  }
  std::uint32_t tree(Probability* p, unsigned count) {
    std::uint32_t node = 1;
    for (unsigned i = 0; i < count; ++i) node = node << 1 | bit(p[node]);
    return node - (1u << count);
  }
  std::uint32_t reversed(Probability* p, unsigned count) {  // lowest bit first
    std::uint32_t node = 1, found = 0;
    for (unsigned i = 0; i < count; ++i) {
      const unsigned one = bit(p[node]);
      node = node << 1 | one;
      found |= one << i;
    }
    return found;
  }
  std::uint32_t length(Lengths& of, std::uint32_t place) {  // 2 to 273
    if (!bit(of.is_long)) return 2 + tree(of.low[place], 3);
    if (!bit(of.is_longest)) return 10 + tree(of.middle[place], 3);
    return 18 + tree(of.high, 8);
  }
  // Returns the distance less one. It begins in one of 64 slots; from slot 4 on further bits follow.
  std::uint32_t distance(Models& m, std::uint32_t length) {
    const std::uint32_t slot = tree(m.slots[length - 2 < kLengths ? length - 2 : kLengths - 1], 6);
    if (slot < 4) return slot;
    const unsigned more = (slot >> 1) - 1;
    const std::uint32_t begin = (2 | (slot & 1)) << more;
    if (slot < 14) return begin + reversed(m.near + (begin - slot), more);
    const std::uint32_t high = plain_bits(more - 4) << 4;
    return begin + high + reversed(m.align, 4);
  }
};

Models models;

}  // namespace

// Unpacks `size` bytes at `in` to `out`, which has room for the length in the header, and returns that length; 0 where
// the stream is damaged or has no length. Call it once for each instance of the module: the models begin fresh.
extern "C" std::uint32_t unpack(const std::uint8_t* in, std::uint32_t size, std::uint8_t* out) {
  if (size < kHeader + 5 || in[0] >= 9 * 5 * 5) return 0;
  const unsigned lc = in[0] % 9, lp = in[0] / 9 % 5, pb = in[0] / 45;
  if (lc + lp > kMostLiteralBits || pb > 4) return 0;
  std::uint32_t total = 0;
  for (int i = 3; i >= 0; --i) total = total << 8 | in[5 + i];

  Decoder d{in + kHeader + 5, in + size};
  for (int i = 1; i < 5; ++i) d.code = d.code << 8 | in[kHeader + i];
  Models& m = models;
  Probability* const all = reinterpret_cast<Probability*>(&m);
  for (std::uint32_t i = 0; i < sizeof(Models) / sizeof(Probability); ++i) all[i].of_zero = 1 << (kBits - 1);
  std::uint32_t state = 0, repeats[4] = {};
  for (std::uint32_t done = 0; done < total;) {
    if (d.in > d.end + 4) return 0;
    const std::uint32_t place = done & ((1u << pb) - 1);
    if (!d.bit(m.is_match[state][place])) {
      const std::uint32_t before = done > 0 ? out[done - 1] : 0;
      Probability* p = m.literals + 0x300 * (((done & ((1u << lp) - 1)) << lc) + (before >> (8 - lc)));
      std::uint32_t node = 1;
      if (state >= 7) {  // after a match the byte that would have continued it says much about this one
        for (std::uint32_t likely = out[done - repeats[0] - 1]; node < 0x100;) {
          const std::uint32_t first = likely >> 7 & 1;
          likely <<= 1;
          const unsigned one = d.bit(p[((1 + first) << 8) + node]);
          node = node << 1 | one;
          if (first != one) break;
        }
      }
      while (node < 0x100) node = node << 1 | d.bit(p[node]);
      out[done++] = std::uint8_t(node);
      state = state < 4 ? 0 : state < 10 ? state - 3 : state - 6;
      continue;
    }
    std::uint32_t length = 0;
    if (!d.bit(m.is_repeat[state])) {
      length = d.length(m.match, place);
      for (int i = 3; i > 0; --i) repeats[i] = repeats[i - 1];
      repeats[0] = d.distance(m, length);
      state = state < 7 ? 7 : 10;
    } else {
      if (d.bit(m.is_repeat0[state])) {
        const int which = !d.bit(m.is_repeat1[state]) ? 1 : !d.bit(m.is_repeat2[state]) ? 2 : 3;
        const std::uint32_t again = repeats[which];
        for (int i = which; i > 0; --i) repeats[i] = repeats[i - 1];
        repeats[0] = again;
      } else if (!d.bit(m.is_longer[state][place])) {
        length = 1;
      }
      const bool is_one_byte = length == 1;
      if (!is_one_byte) length = d.length(m.repeat, place);
      state = is_one_byte ? (state < 7 ? 9 : 11) : (state < 7 ? 8 : 11);
    }
    if (repeats[0] >= done) return 0;
    for (; length > 0 && done < total; --length, ++done) out[done] = out[done - repeats[0] - 1];
  }
  return total;
}
