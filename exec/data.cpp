#include "exec/data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/checksum.hpp"
#include "base/error.hpp"
#include "base/rng.hpp"

namespace stretto::exec {
namespace {

// llm.c's token shards: a header of 256 int32, then the tokens.
struct ShardKind {
  std::int32_t magic, version;
  int bytes_per_token;
};
constexpr ShardKind kShards[] = {{20240520, 1, 2},   // GPT-2's tokens
                                 {20240801, 7, 4}};  // Llama 3's
constexpr std::size_t kShardHeaderBytes = 1024;

std::int32_t int32_at(std::span<const std::byte> bytes, std::size_t index) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | std::to_integer<std::uint32_t>(bytes[4 * index + i]);
  return static_cast<std::int32_t>(value);
}

}  // namespace

TokenSource TokenSource::open(const std::string& path) { return TokenSource(ReadFile::open(path)); }

TokenSource TokenSource::parse(std::vector<std::byte> bytes, const std::string& name) {
  return TokenSource(ReadFile::of(std::move(bytes), name));
}

TokenSource::TokenSource(ReadFile file) : file_(std::move(file)) {
  const std::size_t file_bytes = file_.size();
  if (file_bytes == 0) throw input_error(name() + ": the file of training data is empty");
  std::vector<std::byte> scratch;
  const std::span<const std::byte> begin = file_.view(0, std::min(file_bytes, kShardHeaderBytes), scratch);
  const std::int32_t magic = file_bytes >= 4 ? int32_at(begin, 0) : 0;
  const auto shard =
      std::find_if(std::begin(kShards), std::end(kShards), [&](const ShardKind& kind) { return kind.magic == magic; });
  if (shard != std::end(kShards)) {
    if (file_bytes < kShardHeaderBytes)
      throw input_error(fmt::format("{}: truncated llm.c shard: the header takes {} bytes, the file has {}", name(),
                                    kShardHeaderBytes, file_bytes));
    if (const std::int32_t version = int32_at(begin, 1); version != shard->version)
      throw input_error(fmt::format("{}: llm.c shard of magic {} and version {}; expected version {}", name(), magic,
                                    version, shard->version));
    bytes_per_token_ = shard->bytes_per_token;
    const std::int64_t count = int32_at(begin, 2);
    const std::size_t held_bytes = file_bytes - kShardHeaderBytes;
    if (count <= 0 || count * bytes_per_token_ != static_cast<std::int64_t>(held_bytes))
      throw input_error(fmt::format("{}: the header says {} tokens ({} bytes), but {} bytes follow it", name(), count,
                                    count * bytes_per_token_, held_bytes));
    first_byte_ = kShardHeaderBytes;
    size_ = count;
  } else if (name().ends_with(".bin")) {
    if (file_bytes % 2 != 0)
      throw input_error(fmt::format("{}: expected 16-bit tokens, got an odd number of bytes ({})", name(), file_bytes));
    bytes_per_token_ = 2;
    size_ = static_cast<std::int64_t>(file_bytes / 2);
  } else {
    size_ = static_cast<std::int64_t>(file_bytes);
  }
}

void TokenSource::read(std::int64_t position, std::span<std::int32_t> to, std::vector<std::byte>& scratch) const {
  assert(position >= 0 && std::ssize(to) <= size_ - position);
  const auto bytes = static_cast<std::size_t>(bytes_per_token_);
  const std::span<const std::byte> from =
      file_.view(first_byte_ + static_cast<std::size_t>(position) * bytes, to.size() * bytes, scratch);
  for (std::size_t i = 0; i < to.size(); ++i) {
    std::uint32_t token = 0;
    for (std::size_t byte = bytes; byte-- > 0;)
      token = token << 8 | std::to_integer<std::uint32_t>(from[i * bytes + byte]);
    to[i] = static_cast<std::int32_t>(token);
  }
}

std::int32_t TokenSource::token(std::int64_t position) const {
  std::int32_t token = 0;
  std::vector<std::byte> scratch;
  read(position, std::span(&token, 1), scratch);
  return token;
}

std::string TokenSource::identity() const {
  constexpr std::size_t kPieces = 64, kPiece = 1 << 16;
  Checksum checksum;
  std::vector<std::byte> scratch;
  const std::size_t last = file_.size() - std::min(file_.size(), kPiece);
  for (std::size_t i = 0; i < kPieces; ++i) {
    // Pieces of a small file follow one another.
    const std::size_t at = file_.size() <= kPieces * kPiece ? i * kPiece : last * i / (kPieces - 1);
    if (at >= file_.size()) break;
    const std::span<const std::byte> piece = file_.view(at, std::min(kPiece, file_.size() - at), scratch);
    checksum.add(piece.data(), piece.size());
  }
  return fmt::format("{} tokens, {}", size_, checksum.digits());
}

std::int64_t window_begin(const TokenSource& source, const Sampling& sampling, std::int64_t step, std::int64_t sample) {
  assert(sampling.seq > 0 && step >= 0 && sample >= 0 && sample < sampling.global_batch);
  const std::int64_t window = sampling.seq + 1;
  const std::int64_t windows = source.size() / window;
  if (windows == 0)
    throw input_error(fmt::format("{}: holds {} tokens; a sequence of {} needs at least {}", source.name(),
                                  source.size(), sampling.seq, window));
  const auto number = static_cast<std::uint64_t>(step * sampling.global_batch + sample);
  const auto count = static_cast<std::uint64_t>(windows);
  const std::uint64_t epoch = number / count;
  const std::uint64_t order = random_bits(sampling.seed, stream_of("data.shuffle"), epoch);
  return static_cast<std::int64_t>(permuted(number % count, count, sampling.seed, order)) * window;
}

void fill_batch(const TokenSource& source, const Sampling& sampling, std::int64_t step, std::int64_t first_sample,
                std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
  const auto seq = static_cast<std::size_t>(sampling.seq);
  assert(tokens.size() == targets.size() && tokens.size() % seq == 0);
  std::vector<std::int32_t> window(seq + 1);
  std::vector<std::byte> scratch;
  for (std::size_t row = 0; row < tokens.size() / seq; ++row) {
    const std::int64_t begin = window_begin(source, sampling, step, first_sample + static_cast<std::int64_t>(row));
    source.read(begin, window, scratch);
    for (std::size_t i = 0; i <= seq; ++i) {
      const std::int32_t token = window[i];
      // A token from 2^31 on is negative here.
      if (token < 0 || token >= sampling.vocab_size)
        throw input_error(fmt::format("{}: token {} is {}, but the model's vocabulary has {} entries", source.name(),
                                      begin + static_cast<std::int64_t>(i), static_cast<std::uint32_t>(token),
                                      sampling.vocab_size));
      if (i < seq) tokens[row * seq + i] = token;
      if (i > 0) targets[row * seq + i - 1] = token;
    }
  }
}

}  // namespace stretto::exec
