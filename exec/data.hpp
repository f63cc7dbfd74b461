#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/read_file.hpp"

namespace stretto::exec {

// A file of training tokens; docs/data.md specifies the formats. Move-only. Reading is thread-safe.
class TokenSource {
 public:
  // Opens a file. Throws Error(input) with the path and the cause: missing, a directory, empty, a truncated header, a
  // token count that does not match the file, an unknown version.
  static TokenSource open(const std::string& path);
  // Reads tokens from memory; `name` stands for the path, including its ending.
  static TokenSource parse(std::vector<std::byte> bytes, const std::string& name);

  std::int64_t size() const { return size_; }  // number of tokens
  // Reads tokens from `position` on, as many as `to` holds, all in [0, size). The caller keeps `scratch` for the next
  // call. Throws Error(runtime) when the file has become shorter since it was opened, or cannot be read.
  void read(std::int64_t position, std::span<std::int32_t> to, std::vector<std::byte>& scratch) const;
  std::int32_t token(std::int64_t position) const;
  // Returns 256 for text. Token shards do not state their vocabulary, so it is the largest that their tokens can need:
  // 65,536 for 16 bits, 2^31 for 32.
  std::int64_t vocab_needed() const {
    return bytes_per_token_ == 4 ? std::int64_t{1} << 31 : 1 << 8 * bytes_per_token_;
  }
  const std::string& name() const { return file_.name(); }
  // Returns a text that identifies the data: the number of tokens and a checksum of 64 pieces of 64 KiB at equal
  // distances, which is all of a file up to 4 MiB. Throws as read() does.
  std::string identity() const;

 private:
  explicit TokenSource(ReadFile file);

  ReadFile file_;
  std::size_t first_byte_ = 0;  // byte of the first token
  std::int64_t size_ = 0;
  int bytes_per_token_ = 1;
};

// How samples are drawn. The tokens are cut into windows of seq + 1 that do not overlap; each epoch visits every window
// once, in an order of its own that (seed, epoch) determines. Global sample `i` of step `s` is number s · global_batch
// + i of that endless sequence: no layout, and no kill and resume, changes the training data.
struct Sampling {
  std::int64_t seq = 0;           // tokens of a sample
  std::int64_t global_batch = 0;  // samples of a step, over all ranks
  std::int64_t vocab_size = 0;
  std::uint64_t seed = 0;
};

// Returns the first token of the window that global sample `sample` of `step` reads. Throws Error(input) when the
// source is shorter than one window; the message says how many tokens are needed.
std::int64_t window_begin(const TokenSource& source, const Sampling& sampling, std::int64_t step, std::int64_t sample);

// Fills consecutive global samples first_sample, first_sample + 1, …, as many as `tokens` holds (tokens.size() is a
// multiple of seq, targets.size() equal). Row-major [samples, seq]; a target is the token that follows. Throws
// Error(input) as window_begin does, and for a token that is not below vocab_size, naming file, position and token;
// Error(runtime) as TokenSource::read() does.
void fill_batch(const TokenSource& source, const Sampling& sampling, std::int64_t step, std::int64_t first_sample,
                std::span<std::int32_t> tokens, std::span<std::int32_t> targets);

}  // namespace stretto::exec
