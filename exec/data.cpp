#include "exec/data.hpp"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <cassert>
#include <filesystem>
#include <iterator>
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

// Samples among which paths with weights get their shares: a share is exact to a thousandth of it.
constexpr std::uint64_t kBlock = 1024;

std::int32_t int32_at(std::span<const std::byte> bytes, std::size_t index) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | std::to_integer<std::uint32_t>(bytes[4 * index + i]);
  return static_cast<std::int32_t>(value);
}

}  // namespace

std::vector<std::string> files_of_data(const std::string& path) {
  std::error_code ignored;
  if (path.find_first_of("*?[") == path.npos || std::filesystem::exists(path, ignored)) return {path};
  ::glob_t found{};
  const int result = ::glob(path.c_str(), 0, nullptr, &found);
  std::vector<std::string> files(found.gl_pathv, found.gl_pathv + (result == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  if (files.empty()) throw input_error(path + ": no file of training data matches the pattern");
  return files;
}

TokenSource TokenSource::open(const std::string& path) { return open(std::vector{path}, {}); }

TokenSource TokenSource::open(const std::vector<std::string>& paths, const std::vector<double>& weights) {
  assert(!paths.empty() && (weights.empty() || weights.size() == paths.size()));
  TokenSource source;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::size_t first = source.files_.size();
    for (const std::string& file : files_of_data(paths[i])) source.add(opened(ReadFile::open(file)));
    if (!weights.empty()) source.parts_.push_back({first, source.files_.size(), weights[i]});
  }
  if (weights.empty()) source.parts_.push_back({0, source.files_.size(), 1});
  return source;
}

TokenSource TokenSource::parse(std::vector<std::byte> bytes, const std::string& name) {
  TokenSource source;
  source.add(opened(ReadFile::of(std::move(bytes), name)));
  source.parts_.push_back({0, 1, 1});
  return source;
}

TokenSource::File TokenSource::opened(ReadFile read) {
  File result{.file = std::move(read)};
  const ReadFile& file = result.file;
  const std::string& name = file.name();
  const std::size_t file_bytes = file.size();
  if (file_bytes == 0) throw input_error(name + ": the file of training data is empty");
  std::vector<std::byte> scratch;
  const std::span<const std::byte> begin = file.view(0, std::min(file_bytes, kShardHeaderBytes), scratch);
  const std::int32_t magic = file_bytes >= 4 ? int32_at(begin, 0) : 0;
  const auto shard =
      std::find_if(std::begin(kShards), std::end(kShards), [&](const ShardKind& kind) { return kind.magic == magic; });
  if (shard != std::end(kShards)) {
    if (file_bytes < kShardHeaderBytes)
      throw input_error(fmt::format("{}: truncated llm.c shard: the header takes {} bytes, the file has {}", name,
                                    kShardHeaderBytes, file_bytes));
    if (const std::int32_t version = int32_at(begin, 1); version != shard->version)
      throw input_error(fmt::format("{}: llm.c shard of magic {} and version {}; expected version {}", name, magic,
                                    version, shard->version));
    result.bytes_per_token = shard->bytes_per_token;
    const std::int64_t count = int32_at(begin, 2);
    const std::size_t held_bytes = file_bytes - kShardHeaderBytes;
    if (count <= 0 || count * result.bytes_per_token != static_cast<std::int64_t>(held_bytes))
      throw input_error(fmt::format("{}: the header says {} tokens ({} bytes), but {} bytes follow it", name, count,
                                    count * result.bytes_per_token, held_bytes));
    result.first_byte = kShardHeaderBytes;
    result.size = count;
  } else if (name.ends_with(".bin")) {
    if (file_bytes % 2 != 0)
      throw input_error(fmt::format("{}: expected 16-bit tokens, got an odd number of bytes ({})", name, file_bytes));
    result.bytes_per_token = 2;
    result.size = static_cast<std::int64_t>(file_bytes / 2);
  } else {
    result.size = static_cast<std::int64_t>(file_bytes);
  }
  return result;
}

void TokenSource::add(File file) {
  file.begin = files_.empty() ? 0 : size();
  files_.push_back(std::move(file));
}

const TokenSource::File& TokenSource::file_at(std::int64_t position) const {
  const auto after = std::upper_bound(files_.begin(), files_.end(), position,
                                      [](std::int64_t value, const File& file) { return value < file.begin; });
  return *std::prev(after);
}

std::int64_t TokenSource::vocab_needed() const {
  int bytes = 1;
  for (const File& file : files_) bytes = std::max(bytes, file.bytes_per_token);
  return bytes == 4 ? std::int64_t{1} << 31 : 1 << 8 * bytes;
}

void TokenSource::read(std::int64_t position, std::span<std::int32_t> to, std::vector<std::byte>& scratch) const {
  const File& file = file_at(position);
  assert(position >= file.begin && std::ssize(to) <= file.begin + file.size - position);
  const auto bytes = static_cast<std::size_t>(file.bytes_per_token);
  const std::span<const std::byte> from = file.file.view(
      file.first_byte + static_cast<std::size_t>(position - file.begin) * bytes, to.size() * bytes, scratch);
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
  for (const File& one : files_) {
    const ReadFile& file = one.file;
    const std::size_t last = file.size() - std::min(file.size(), kPiece);
    for (std::size_t i = 0; i < kPieces; ++i) {
      // Pieces of a small file follow one another.
      const std::size_t at = file.size() <= kPieces * kPiece ? i * kPiece : last * i / (kPieces - 1);
      if (at >= file.size()) break;
      const std::span<const std::byte> piece = file.view(at, std::min(kPiece, file.size() - at), scratch);
      checksum.add(piece.data(), piece.size());
    }
  }
  std::string text = fmt::format("{} tokens, {}", size(), checksum.digits());
  if (parts_.size() > 1)
    for (const Part& part : parts_)
      text += fmt::format("{}{:g}", &part == parts_.data() ? ", weights " : " ", part.weight);
  return text;
}

std::int64_t TokenSource::windows_of(const Part& part, std::int64_t window) const {
  std::int64_t count = 0;
  for (std::size_t i = part.first; i < part.last; ++i) count += files_[i].size / window;
  return count;
}

std::int64_t TokenSource::windows(std::int64_t window) const {
  std::int64_t count = 0;
  for (const Part& part : parts_) count += windows_of(part, window);
  return count;
}

std::int64_t TokenSource::window_in(const Part& part, std::int64_t window, std::uint64_t seed,
                                    std::uint64_t number) const {
  const std::int64_t windows = windows_of(part, window);
  if (windows == 0)
    throw input_error(fmt::format("{}: holds {} tokens; a sequence of {} needs at least {}",
                                  files_[part.first].file.name(), files_[part.first].size, window - 1, window));
  const auto count = static_cast<std::uint64_t>(windows);
  const std::uint64_t epoch = number / count;
  const std::uint64_t order = random_bits(seed, stream_of("data.shuffle"), epoch);
  auto chosen = static_cast<std::int64_t>(permuted(number % count, count, seed, order));
  for (std::size_t i = part.first;; ++i) {
    const std::int64_t here = files_[i].size / window;
    if (chosen < here) return files_[i].begin + chosen * window;
    chosen -= here;
  }
}

std::int64_t TokenSource::window_begin(std::int64_t window, std::uint64_t seed, std::uint64_t number) const {
  if (parts_.size() == 1) return window_in(parts_.front(), window, seed, number);
  // The samples of a block that each path gets.
  double total = 0;
  for (const Part& part : parts_) total += part.weight;
  std::vector<std::uint64_t> samples(parts_.size());
  std::vector<std::size_t> by_remainder(parts_.size());
  std::uint64_t given = 0;
  const auto exact = [&](std::size_t i) { return parts_[i].weight / total * double(kBlock); };
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    by_remainder[i] = i;
    given += samples[i] = static_cast<std::uint64_t>(exact(i));
  }
  std::stable_sort(by_remainder.begin(), by_remainder.end(), [&](std::size_t a, std::size_t b) {
    return exact(a) - double(samples[a]) > exact(b) - double(samples[b]);
  });
  for (std::size_t i = 0; given < kBlock; ++i, ++given) samples[by_remainder[i % by_remainder.size()]] += 1;
  const std::uint64_t block = number / kBlock;
  const std::uint64_t order = random_bits(seed, stream_of("data.mix"), block);
  std::uint64_t place = permuted(number % kBlock, kBlock, seed, order);
  for (std::size_t i = 0;; ++i) {
    if (place < samples[i]) return window_in(parts_[i], window, seed, block * samples[i] + place);
    place -= samples[i];
  }
}

std::int64_t window_begin(const TokenSource& source, const Sampling& sampling, std::int64_t step, std::int64_t sample) {
  assert(sampling.seq > 0 && step >= 0 && sample >= 0 && sample < sampling.global_batch);
  return source.window_begin(sampling.seq + 1, sampling.seed,
                             static_cast<std::uint64_t>(step * sampling.global_batch + sample));
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
        throw input_error(fmt::format("{}: token {} is {}, but the model's vocabulary has {} entries",
                                      source.name(begin), source.in_file(begin) + static_cast<std::int64_t>(i),
                                      static_cast<std::uint32_t>(token), sampling.vocab_size));
      if (i < seq) tokens[row * seq + i] = token;
      if (i > 0) targets[row * seq + i - 1] = token;
    }
  }
}

}  // namespace stretto::exec
