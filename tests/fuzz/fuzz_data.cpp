#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "exec/data.hpp"
#include "tests/fuzz/bounded.hpp"

// The first byte selects the file's ending and the sequence length; the rest is the file. Only stretto::Error may be
// thrown.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  if (size == 0) return 0;
  const fuzz::Bounded bounded(size, 16);
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  try {
    const auto source =
        exec::TokenSource::parse({bytes + 1, bytes + size}, (data[0] & 1) != 0 ? "fuzz.bin" : "fuzz.txt");
    const std::int64_t seq = 1 + (data[0] >> 1);
    std::vector<std::int32_t> tokens(2 * seq), targets(2 * seq);
    for (std::int64_t step = 0; step < 4; ++step)
      exec::fill_batch(source, {seq, 2, 50257, data[0]}, step, 0, tokens, targets);
  } catch (const Error&) {
  }
  return 0;
}
