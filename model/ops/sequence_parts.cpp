#include "model/ops/sequence_parts.hpp"

#include <cassert>

namespace stretto {

std::vector<SequenceRun> runs_of(const SequenceParts& parts, std::int64_t seq, std::int64_t batch,
                                 std::int64_t sample) {
  if (parts.of == 1) return {{sample * seq, 0, seq}};
  const std::int64_t chunk = seq / (2 * parts.of), first = parts.first.value();
  std::vector<SequenceRun> runs;
  for (std::int64_t i = 0; i < parts.count; ++i) {
    const std::int64_t part = first + i, row = (i * batch + sample) * 2 * chunk;
    assert(part >= 0 && part < parts.of);
    runs.push_back({row, part * chunk, chunk});
    runs.push_back({row + chunk, (2 * parts.of - 1 - part) * chunk, chunk});
  }
  return runs;
}

std::string problem_of(const SequenceParts& parts, std::int64_t seq) {
  if (parts.of < 1 || parts.count < 1 || parts.count > parts.of)
    return "a sequence has at least as many parts as are held";
  if (parts.of > 1 && seq % (2 * parts.of) != 0)
    return "2 x " + std::to_string(parts.of) + " chunks must divide the sequence of " + std::to_string(seq);
  return "";
}

}  // namespace stretto
