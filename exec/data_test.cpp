#include "exec/data.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/rng.hpp"
#include "tests/message_of.hpp"
#include "tests/temp_dir.hpp"

using namespace stretto;
using namespace stretto::exec;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;
using stretto::testing::message_of;
using stretto::testing::TempDir;

namespace {

std::string shard(std::int32_t magic, std::int32_t version, std::int32_t count,
                  const std::vector<std::uint16_t>& tokens) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic, header[1] = version, header[2] = count;
  std::string out(reinterpret_cast<const char*>(header.data()), 1024);
  return out.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * 2);
}

std::vector<std::byte> bytes_of_string(const std::string& text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

TokenSource counting(std::int64_t tokens) {  // token i is i
  std::vector<std::byte> bytes;
  for (std::int64_t i = 0; i < tokens; ++i) bytes.push_back(std::byte(i & 255)), bytes.push_back(std::byte(i >> 8));
  return TokenSource::parse(bytes, "counting.bin");
}

}  // namespace

TEST_CASE("text is one token a byte", "[data]") {
  const TempDir dir;
  const TokenSource source = TokenSource::open(dir.write("corpus.txt", std::string("Hi\xff\0z", 5)));
  CHECK(source.size() == 5);
  CHECK(source.vocab_needed() == 256);
  CHECK(source.token(0) == 'H');
  CHECK(source.token(2) == 255);
  CHECK(source.token(3) == 0);
}

TEST_CASE("llm.c and nanoGPT shards hold 16-bit tokens", "[data]") {
  const TempDir dir;
  TokenSource source = TokenSource::open(dir.write("a.bin", shard(20240520, 1, 3, {50256, 7, 258})));
  CHECK(source.size() == 3);
  CHECK(source.token(0) == 50256);
  CHECK(source.token(2) == 258);
  source = TokenSource::open(dir.write("train.bin", std::string("\x50\xc4\x01\x00", 4)));
  CHECK(source.size() == 2);
  CHECK(source.token(0) == 50256);
  CHECK(source.token(1) == 1);
  CHECK(source.vocab_needed() == 65536);
  const TokenSource moved = std::move(source);
  CHECK(moved.token(1) == 1);
}

TEST_CASE("llm.c's shards of Llama 3 hold 32-bit tokens", "[data]") {
  const TempDir dir;
  // The tokens are 128255, 65536, and one that no vocabulary has.
  const std::string path = dir.write("a.bin", shard(20240801, 7, 3, {0xf4ff, 1, 0, 1, 0, 0x8000}));
  const TokenSource source = TokenSource::open(path);
  CHECK(source.size() == 3);
  CHECK(source.token(0) == 128255);
  CHECK(source.token(1) == 65536);
  CHECK(source.vocab_needed() > 128256);
  std::vector<std::int32_t> tokens(2), targets(2);
  CHECK_THAT(message_of([&] {
               fill_batch(source, {2, 1, 128256, 1}, 0, 0, tokens, targets);
             }),
             Contains(path + ": token 2 is 2147483648, but the model's vocabulary has 128256 entries"));
}

TEST_CASE("unusable files are input errors that name the file and the cause", "[data]") {
  const TempDir dir;
  const auto opening = [](const std::string& path) { return message_of([&] { TokenSource::open(path); }); };
  const auto fails = [&](const std::string& path, const std::string& cause) {
    INFO(path);
    CHECK_THAT(opening(path), Contains(path) && Contains(cause));
  };
  fails((dir.path() / "absent.txt").string(), "No such file");
  fails(dir.path().string(), "directory");
  fails(dir.write("empty.txt", ""), "empty");
  fails(dir.write("odd.bin", "abc"), "odd number of bytes (3)");
  fails(dir.write("cut.bin", shard(20240520, 1, 3, {1, 2, 3}).substr(0, 100)), "truncated");
  fails(dir.write("v2.bin", shard(20240520, 2, 3, {1, 2, 3})), "version 2");
  fails(dir.write("more.bin", shard(20240520, 1, 4, {1, 2, 3})), "says 4 tokens");
  fails(dir.write("less.bin", shard(20240520, 1, 2, {1, 2, 3})), "says 2 tokens");
  fails(dir.write("negative.bin", shard(20240520, 1, -1, {})), "says -1 tokens");
  fails(dir.write("v1.bin", shard(20240801, 1, 1, {1, 0})), "magic 20240801 and version 1; expected version 7");
  fails(dir.write("wide.bin", shard(20240801, 7, 2, {1, 0})), "says 2 tokens (8 bytes), but 4 bytes follow");
  const std::string fifo = (dir.path() / "fifo").string();
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  fails(fifo, "regular file");
}

TEST_CASE("an epoch visits every window once, in a new order each time", "[data]") {
  const TokenSource source = counting(1007);  // 100 windows of 10 and a remainder
  const Sampling sampling{9, 4, 65536, 1};
  std::vector<std::vector<std::int64_t>> epochs(2);
  for (std::int64_t step = 0; step < 50; ++step)
    for (std::int64_t i = 0; i < 4; ++i) epochs[step / 25].push_back(window_begin(source, sampling, step, i));
  for (const auto& epoch : epochs) {
    CHECK(std::set<std::int64_t>(epoch.begin(), epoch.end()).size() == 100);
    CHECK(*std::max_element(epoch.begin(), epoch.end()) == 990);
    CHECK_FALSE(std::is_sorted(epoch.begin(), epoch.end()));
  }
  CHECK(epochs[0] != epochs[1]);
  CHECK(window_begin(source, {9, 4, 65536, 2}, 0, 0) != epochs[0][0]);
}

TEST_CASE("a batch does not depend on how it is cut into ranks and micro-batches", "[data]") {
  const TokenSource source = counting(1007);
  const Sampling sampling{9, 8, 65536, 1};
  std::vector<std::int32_t> tokens(72), targets(72), part(18), part_targets(18);
  for (std::int64_t step : {0, 3, 40}) {
    fill_batch(source, sampling, step, 0, tokens, targets);
    for (std::size_t i = 0; i < tokens.size(); ++i) REQUIRE(targets[i] == tokens[i] + 1);
    for (std::int64_t first = 0; first < 8; first += 2) {
      fill_batch(source, sampling, step, first, part, part_targets);
      CHECK(std::equal(part.begin(), part.end(), tokens.begin() + first * 9));
      CHECK(std::equal(part_targets.begin(), part_targets.end(), targets.begin() + first * 9));
    }
  }
  // When the samples are split into steps differently, the sequence stays equal.
  std::vector<std::int32_t> half(36), half_targets(36);
  fill_batch(source, sampling, 1, 0, tokens, targets);
  fill_batch(source, {9, 4, 65536, 1}, 3, 0, half, half_targets);
  CHECK(std::equal(half.begin(), half.end(), tokens.begin() + 36));
}

TEST_CASE("too little data and tokens outside the vocabulary are named", "[data]") {
  const TokenSource source = counting(300);
  std::vector<std::int32_t> tokens(300), targets(300);
  CHECK_THAT(message_of([&] {
               fill_batch(source, {300, 1, 65536, 1}, 0, 0, tokens, targets);
             }),
             Contains("counting.bin") && Contains("holds 300 tokens") && Contains("at least 301"));
  tokens.resize(299), targets.resize(299);
  CHECK_NOTHROW(fill_batch(source, {299, 1, 300, 1}, 0, 0, tokens, targets));
  // The last token is only a target, but it counts.
  CHECK_THAT(message_of([&] {
               fill_batch(source, {299, 1, 299, 1}, 0, 0, tokens, targets);
             }),
             Contains("counting.bin: token 299 is 299") && Contains("299 entries"));
}

TEST_CASE("text and memory give the same tokens", "[data]") {
  const TempDir dir;
  const std::string text = "to be, or not to be";
  const TokenSource from_file = TokenSource::open(dir.write("a.txt", text));
  const TokenSource from_memory = TokenSource::parse(bytes_of_string(text), "a.txt");
  REQUIRE(from_file.size() == from_memory.size());
  for (std::int64_t i = 0; i < from_file.size(); ++i) CHECK(from_file.token(i) == from_memory.token(i));
}

TEST_CASE("data that is cut short while it is in use is an error", "[data]") {
  const TempDir dir;
  const std::string path = dir.write("a.txt", std::string(10000, 'x'));
  const TokenSource source = TokenSource::open(path);
  std::vector<std::int32_t> tokens(10000), targets(10000);
  const auto fill = [&] {
    for (std::int64_t step = 0; step < 1000; ++step)
      fill_batch(source, {9, 1, 256, 1}, step, 0, std::span(tokens).first(9), std::span(targets).first(9));
  };
  fill();
  fs::resize_file(path, 5000);
  CHECK_THAT(message_of(fill, ErrorKind::runtime), Contains(path) && Contains("cut short") && Contains("10000 bytes"));
}

TEST_CASE("other data has another identity", "[data]") {
  const TempDir dir;
  const auto identity = [&](const std::string& bytes) {
    return TokenSource::open(dir.write("a.txt", bytes)).identity();
  };
  const std::string small(1000, 'x'), large(9'000'000, 'x');
  CHECK(identity(small) == identity(small));
  CHECK_THAT(identity(small), Contains("1000 tokens"));
  CHECK(identity(small) != identity(small + "x"));
  std::string other = small;
  other[777] = 'y';
  CHECK(identity(small) != identity(other));
  for (const std::size_t at : {std::size_t{0}, large.size() - 1}) {
    other = large;
    other[at] = 'y';
    CHECK(identity(large) != identity(other));
  }
}

namespace stretto::exec {

TEST_CASE("several files are one sequence of windows, and none crosses files", "[data]") {
  const TempDir dir;
  const std::string a = dir.write("part-1.txt", "aaaaabbbbbcc"), b = dir.write("part-2.txt", "dddddeeeee");
  const std::string pattern = (fs::path(a).parent_path() / "part-*.txt").string();
  CHECK(files_of_data(pattern) == std::vector{a, b});
  CHECK_THAT(message_of([&] { files_of_data((fs::path(a).parent_path() / "no-*").string()); }), Contains("no file"));
  const TokenSource source = TokenSource::open({pattern}, {});
  CHECK(source.size() == 22);
  CHECK(source.windows(5) == 4);
  CHECK(source.name(12) == b);
  const Sampling sampling{4, 4, 256, 7};
  std::set<std::string> windows;
  std::vector<std::byte> scratch;
  for (std::int64_t sample = 0; sample < 4; ++sample) {
    std::vector<std::int32_t> tokens(5);
    source.read(window_begin(source, sampling, 0, sample), tokens, scratch);
    windows.insert(std::string(tokens.begin(), tokens.end()));
  }
  CHECK(windows == std::set<std::string>{"aaaaa", "bbbbb", "ddddd", "eeeee"});
}

TEST_CASE("weights are shares of samples, in every block of 1,024", "[data]") {
  const TempDir dir;
  const std::vector<std::string> paths = {dir.write("a.txt", std::string(1000, 'a')),
                                          dir.write("b.txt", std::string(30, 'b')),
                                          dir.write("c.txt", std::string(300, 'c'))};
  const TokenSource source = TokenSource::open(paths, {3, 1, 4});
  const Sampling sampling{9, 1024, 256, 7};
  for (std::int64_t step = 0; step < 3; ++step) {
    std::map<std::int32_t, int> samples;
    for (std::int64_t sample = 0; sample < 1024; ++sample)
      samples[source.token(window_begin(source, sampling, step, sample))] += 1;
    CHECK(samples == std::map<std::int32_t, int>{{'a', 384}, {'b', 128}, {'c', 512}});
  }
  CHECK(source.identity() != TokenSource::open(paths, {3, 1, 5}).identity());
}

TEST_CASE("the order and the numbers that docs/training.md gives as examples") {
  // Ten windows of two tokens; the first token of a window is the window's number.
  std::vector<std::byte> text;
  for (int i = 0; i < 20; ++i) text.push_back(static_cast<std::byte>(i / 2));
  const TokenSource source = TokenSource::parse(text, "t");
  const Sampling sampling{1, 5, 256, 1234};
  std::vector<std::int64_t> windows;
  for (std::int64_t n = 0; n < 20; ++n) windows.push_back(window_begin(source, sampling, n / 5, n % 5) / 2);
  CHECK(windows == std::vector<std::int64_t>{5, 6, 4, 2, 8, 3, 7, 9, 1, 0, 6, 9, 4, 5, 2, 8, 7, 1, 3, 0});
  CHECK(stream_of("wte.weight") == 0x61d3a46d83bc4189);
  const double first[] = {0.047200967, 0.023299014, -0.001616909};
  for (std::uint64_t i = 0; i < 3; ++i)
    CHECK(0.02 * normal(1234, stream_of("h.0.qkv.weight"), i) == Approx(first[i]).epsilon(1e-6));
}

}  // namespace stretto::exec
