#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/read_file.hpp"

namespace stretto::exec {

// Returns the files that a path names: the path itself, or those that a pattern of glob(7) matches, sorted by name.
// Throws Error(input) when a pattern matches none.
std::vector<std::string> files_of_data(const std::string& path);

// Training tokens in one or several files, one after the other; docs/data.md specifies the formats. Move-only. Reading
// is thread-safe.
class TokenSource {
 public:
  // Opens a file. Throws Error(input) with the path and the cause: missing, a directory, empty, a truncated header, a
  // token count that does not match the file, an unknown version.
  static TokenSource open(const std::string& path);
  // Opens several: `paths` may be patterns. `weights` is empty, or has the share of samples of each path, in any unit;
  // the files of one pattern share its weight by their sizes. Throws as open() and files_of_data() do.
  static TokenSource open(const std::vector<std::string>& paths, const std::vector<double>& weights);
  // Reads tokens from memory; `name` stands for the path, including its ending.
  static TokenSource parse(std::vector<std::byte> bytes, const std::string& name);

  std::int64_t size() const { return files_.back().begin + files_.back().size; }  // number of tokens
  // Reads tokens from `position` on, as many as `to` holds, all in one file. The caller keeps `scratch` for the next
  // call. Throws Error(runtime) when the file has become shorter since it was opened, or cannot be read.
  void read(std::int64_t position, std::span<std::int32_t> to, std::vector<std::byte>& scratch) const;
  std::int32_t token(std::int64_t position) const;
  // Returns 256 for text. Token shards do not state their vocabulary, so it is the largest that their tokens can need:
  // 65,536 for 16 bits, 2^31 for 32.
  std::int64_t vocab_needed() const;
  // Returns the position in its file of the token at `position`.
  std::int64_t in_file(std::int64_t position) const { return position - file_at(position).begin; }
  // Returns the name of the file that holds the token at `position`.
  const std::string& name(std::int64_t position = 0) const { return file_at(position).file.name(); }
  // Returns a text that identifies the data: the number of tokens and a checksum of 64 pieces of 64 KiB of each file at
  // equal distances, which is all of a file up to 4 MiB; weights too, if there are any. Throws as read() does.
  std::string identity() const;

  // Returns how many windows of `window` tokens there are; no window crosses files.
  std::int64_t windows(std::int64_t window) const;
  // Returns the first token of window `number` of the endless sequence of Sampling, for windows of `window` tokens.
  // Throws Error(input) when a path holds no window.
  std::int64_t window_begin(std::int64_t window, std::uint64_t seed, std::uint64_t number) const;

 private:
  struct File {
    ReadFile file;
    std::size_t first_byte = 0;  // byte of the first token
    std::int64_t begin = 0;      // position of the first token
    std::int64_t size = 0;       // tokens
    int bytes_per_token = 1;
  };
  // Files [first, last) that share a weight.
  struct Part {
    std::size_t first = 0, last = 0;
    double weight = 1;
  };
  static File opened(ReadFile file);
  void add(File file);
  const File& file_at(std::int64_t position) const;
  std::int64_t windows_of(const Part& part, std::int64_t window) const;
  std::int64_t window_in(const Part& part, std::int64_t window, std::uint64_t seed, std::uint64_t number) const;

  std::vector<File> files_;
  std::vector<Part> parts_;
};

// How samples are drawn. The tokens of each file are cut into windows of seq + 1 that do not overlap; each epoch visits
// every window once, in an order of its own that (seed, epoch) determines. Global sample `i` of step `s` is number s ·
// global_batch + i of that endless sequence: no layout, and no kill and resume, changes the training data. Paths with
// weights have such a sequence each. Of 1,024 samples a path gets its share, by largest remainders, in an order that
// (seed, block) determines.
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
