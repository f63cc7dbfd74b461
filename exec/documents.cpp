#include "exec/documents.hpp"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "model/schedule/work.hpp"

namespace stretto::exec {

void find_documents(std::span<const std::int32_t> tokens, std::int64_t seq, std::int64_t end,
                    std::span<std::int32_t> first_positions) {
  assert(std::ssize(tokens) % seq == 0 && first_positions.size() == tokens.size());
  std::int32_t first = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto position = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % seq);
    if (position == 0) first = 0;
    first_positions[i] = first;
    if (tokens[i] == end) first = position + 1;
  }
}

void mask_ends(std::span<const std::int32_t> tokens, std::int64_t end, std::span<std::int32_t> targets) {
  assert(tokens.size() == targets.size());
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] == end) targets[i] = kNoTarget;
}

double loss_weight(const TokenSource& source, const Sampling& sampling, std::int64_t step, std::int64_t end) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(sampling.seq)), targets = tokens;
  std::int64_t ends = 0;
  for (std::int64_t sample = 0; sample < sampling.global_batch; ++sample) {
    fill_batch(source, sampling, step, sample, tokens, targets);
    ends += std::count(tokens.begin(), tokens.end(), end);
  }
  const std::int64_t all = sampling.global_batch * sampling.seq;
  return ends == all ? 0 : double(all) / double(all - ends);
}

Scenario with_measured_documents(Scenario scenario) {
  Training& training = scenario.training;
  if (!training.reset_attention_mask || training.mean_document_tokens > 0 ||
      training.packed_sequences.any() || training.data.empty()) return scenario;
  constexpr std::int64_t kMost = 1 << 20;
  std::vector<std::byte> scratch;
  std::int64_t read = 0, ends = 0;
  try {
    for (const std::string& path : training.data) {
      const TokenSource source = TokenSource::open(files_of_data(path).front());
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(std::min(source.size(), kMost)));
      source.read(0, tokens, scratch);
      read += std::ssize(tokens);
      ends += std::count(tokens.begin(), tokens.end(), training.eod_token);
    }
  } catch (const Error&) {
    return scenario;
  }
  if (ends == 0) return scenario;
  training.mean_document_tokens = double(read) / double(ends);
  training.packed_sequences =
      packed_sequences(training.document_lengths, training.mean_document_tokens, scenario.model.seq_length);
  return scenario;
}

}  // namespace stretto::exec
