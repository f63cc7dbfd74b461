// Tests of checkpoints of several processes: a shard of each, and a manifest.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <numeric>
#include <random>

#include "base/error.hpp"
#include "exec/state/checkpoint.hpp"
#include "tests/as_processes.hpp"
#include "tests/message_of.hpp"
#include "tests/temp_dir.hpp"

namespace stretto::testing {
namespace {

using namespace exec;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

constexpr std::int64_t kRows = 9, kCols = 7, kElements = kRows * kCols;
const std::vector<TensorEntry> kTensors = {{"a", Dtype::f32, {kRows, kCols}}, {"a.b", Dtype::f64, {kRows, kCols}}};

// Returns element `i` of both tensors in a step.
double value(std::int64_t step, std::int64_t i) { return double(100 * step + i); }

// Returns the elements that a process has of both tensors.
CheckpointContents contents_of(std::int64_t step, const std::vector<Stretch>& stretches) {
  CheckpointContents contents{kTensors, {2, parts_of(stretches, kCols)}, {}};
  contents.emit = [=](const Sink& sink) {
    for (const Stretch& stretch : stretches)
      for (std::int64_t i = stretch.begin; i < stretch.end(); ++i) {
        const auto one = static_cast<float>(value(step, i));
        sink(std::as_bytes(std::span(&one, 1)));
      }
    for (const Stretch& stretch : stretches)
      for (std::int64_t i = stretch.begin; i < stretch.end(); ++i) {
        const double one = value(step, i);
        sink(std::as_bytes(std::span(&one, 1)));
      }
  };
  return contents;
}

// Returns [process]: each element in one process, in stretches of random lengths, or of columns.
std::vector<std::vector<Stretch>> split(std::size_t processes, unsigned seed, bool by_columns = false) {
  std::mt19937 random(seed);
  std::vector<std::vector<Stretch>> split(processes);
  for (std::int64_t at = 0; at < kElements;) {
    const auto most = by_columns ? 2 - std::min<std::int64_t>(at % kCols, 4) / 4 : std::int64_t{20};
    const std::int64_t count = std::min<std::int64_t>(kElements - at, 1 + std::int64_t(random()) % most);
    split[by_columns ? std::size_t(at % kCols) * processes / kCols : random() % processes].push_back({at, count});
    at += count;
  }
  for (std::vector<Stretch>& stretches : split) stretches = joined(stretches);
  return split;
}

std::vector<std::string> write(const std::string& dir, std::int64_t step, std::int64_t before,
                               const std::vector<std::vector<Stretch>>& split) {
  return as_processes(std::ssize(split), 20, [&](launch::ProcessGroup& group) {
    const CheckpointContents contents = contents_of(step, split[static_cast<std::size_t>(group.rank())]);
    write_checkpoint(dir, step, before, {{"who", "me"}}, contents, &group);
  });
}

void write_whole(const std::string& dir, std::int64_t step, std::int64_t before) {
  write_checkpoint(dir, step, before, {{"who", "me"}}, contents_of(step, {{0, kElements}}));
}

bool are_empty(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) CHECK(error == "");
  return std::all_of(errors.begin(), errors.end(), [](const std::string& error) { return error.empty(); });
}

template <class T>
void check_reads(const TensorFile& file, const std::string& name, std::int64_t step,
                 const std::vector<Stretch>& wanted) {
  const StoredTensor* tensor = file.find(name);
  REQUIRE(tensor);
  CHECK(tensor->shape == std::vector<std::int64_t>{kRows, kCols});
  std::vector<T> values(static_cast<std::size_t>(elements_of(wanted)));
  file.read(*tensor, wanted, reinterpret_cast<std::byte*>(values.data()));
  std::size_t next = 0;
  bool is_right = true;
  for (const Stretch& stretch : wanted)
    for (std::int64_t i = stretch.begin; i < stretch.end(); ++i)
      is_right = is_right && values[next++] == T(value(step, i));
  CHECK(is_right);
}

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("stretches are parts, and parts have names", "[checkpoint]") {
  using Parts = std::vector<TensorPart>;
  const auto parts = [](std::vector<Stretch> stretches) { return parts_of(joined(std::move(stretches)), kCols); };
  CHECK(parts({}).empty());
  CHECK(parts({{0, kElements}}) == Parts{{0, kRows, 0, kCols}});
  CHECK(parts({{3, 2}}) == Parts{{0, 1, 3, 5}});
  CHECK(parts({{3, 30}}) == Parts{{0, 1, 3, 7}, {1, 4, 0, 7}, {4, 5, 0, 5}});
  CHECK(parts({{14, 7}, {7, 7}, {7, 3}, {21, 0}}) == Parts{{1, 3, 0, 7}});
  CHECK(parts({{2, 3}, {9, 3}, {16, 3}}) == Parts{{0, 3, 2, 5}});  // columns
  for (const TensorPart& part : parts({{3, 30}})) {
    const std::string name = name_of_part("h.0.w[x]", part, kRows, kCols);
    const auto named = part_named(name);
    REQUIRE(named);
    CHECK(named->first == "h.0.w[x]");
    CHECK(named->second == part);
  }
  CHECK(name_of_part("w", {0, kRows, 0, kCols}, kRows, kCols) == "w");
  for (const char* none : {"w", "w[", "w[]", "w[0:1]", "w[0:1,0:2", "w[0:1,0:2]x", "w[0:1,0:-2]", "w[1:1,0:2]",
                           "w[0:1,2:1]", "w[0:99999999999999999999,0:1]", "w[a:1,0:1]"})
    CHECK_FALSE(part_named(none));
}

TEST_CASE("what several processes have written is read in pieces of any other cut", "[checkpoint]") {
  const TempDir dir;
  for (const std::size_t processes : {2u, 3u, 5u})
    for (const bool by_columns : {false, true}) {
      const auto step = static_cast<std::int64_t>(processes * 2 + by_columns);
      REQUIRE(are_empty(write(dir.str(), step, -1, split(processes, unsigned(step), by_columns))));
      const LatestCheckpoint latest = find_latest(dir.str());
      REQUIRE(latest.file);
      CHECK(latest.step == step);
      CHECK(latest.warnings.empty());
      CHECK(latest.file->files() == 1 + processes);
      CHECK(latest.file->metadata().at("who") == "me");
      CHECK(latest.file->metadata().at("format") == "stretto-2");
      CHECK(latest.file->tensors().size() == 2);
      std::vector<std::byte> scratch;
      CHECK(latest.file->data(*latest.file->find("a"), scratch).size() == kElements * sizeof(float));
      for (unsigned seed = 0; seed < 6; ++seed)
        for (const std::vector<Stretch>& wanted : split(3, seed, seed % 2 == 0)) {
          check_reads<float>(*latest.file, "a", step, wanted);
          check_reads<double>(*latest.file, "a.b", step, wanted);
        }
      for (std::size_t shard = 1; shard <= processes; ++shard)
        CHECK_THAT(message_of([&] { TensorFile::open(latest.file->file_name(shard)); }),
                   Contains(fmt::format("is shard {} of {}", shard - 1, processes)));
    }
}

TEST_CASE("shards that are damaged, exchanged or missing make the checkpoint before the latest", "[checkpoint]") {
  const TempDir dir;
  const auto cut = split(3, 1);
  REQUIRE(are_empty(write(dir.str(), 1, -1, cut)));
  REQUIRE(are_empty(write(dir.str(), 2, 1, cut)));
  const fs::path manifest = dir.path() / "step-00000002.safetensors", shard = shard_name(manifest.string(), 1, 3);
  const auto falls_back = [&](const fs::path& damaged, const std::string& says) {
    // One process looks, then several that share the work: all must go on with the same checkpoint.
    std::mutex mutex;
    const auto look = [&](launch::ProcessGroup* processes) {
      const LatestCheckpoint latest = find_latest(dir.str(), processes);
      const std::lock_guard lock(mutex);
      REQUIRE(latest.file);
      CHECK(latest.step == 1);
      REQUIRE(latest.warnings.size() == 1);
      CHECK_THAT(latest.warnings[0], Contains(damaged.string()) && Contains(says));
    };
    look(nullptr);
    are_empty(as_processes(2, 20, [&](launch::ProcessGroup& group) { look(&group); }));
  };
  for (const fs::path& file : {manifest, shard}) {
    const std::string good = bytes_of(file);
    const std::string& name = file.filename().string();
    for (const std::size_t at : {std::size_t{0}, good.size() / 2, good.size() - 1}) {
      std::string bad = good;
      bad[at] ^= 1;
      dir.write(name, bad);
      falls_back(file, "");
    }
    dir.write(name, good.substr(0, good.size() - 1));
    falls_back(file, "");
    dir.write(name, bytes_of(file == manifest ? dir.path() / "step-00000001.safetensors"
                                              : fs::path(shard_name(dir.file("step-00000001.safetensors"), 1, 3))));
    falls_back(file, file == manifest ? "holds step 1" : "is of another checkpoint");
    dir.write(name, good);
  }
  const std::string good = bytes_of(shard);
  fs::remove(shard);
  falls_back(shard, "is missing");
  // A name that is not a file is not damage.
  fs::create_directory(shard);
  CHECK_THAT(message_of([&] { find_latest(dir.str()); }, ErrorKind::runtime),
             Contains(shard.string()) && Contains("directory"));
  fs::remove(shard);
  // Where no checkpoint is complete, no run starts anew.
  fs::remove(shard_name(dir.file("step-00000001.safetensors"), 0, 3));
  CHECK_THAT(message_of([&] { find_latest(dir.str()); }), Contains("all 2 checkpoints are damaged"));
  for (const std::string& error :
       as_processes(2, 20, [&](launch::ProcessGroup& group) { find_latest(dir.str(), &group); }))
    CHECK_THAT(error, Contains("all 2 checkpoints are damaged"));
  dir.write(shard.filename().string(), good);
  CHECK(find_latest(dir.str()).step == 2);
}

TEST_CASE("a checkpoint takes the place of others, whatever the number of their shards", "[checkpoint]") {
  const TempDir dir;
  const auto names = [](std::int64_t step, int shards) {
    std::vector<std::string> files = {fmt::format("step-{:08d}.safetensors", step)};
    for (int i = 0; i < shards; ++i) files.push_back(shard_name(files.front(), std::size_t(i), std::size_t(shards)));
    return files;
  };
  const auto has = [&](std::vector<std::vector<std::string>> expected) {
    std::vector<std::string> all;
    for (const auto& some : expected) all.insert(all.end(), some.begin(), some.end());
    std::sort(all.begin(), all.end());
    CHECK(dir.files() == all);
  };
  write_whole(dir.str(), 1, -1);
  are_empty(write(dir.str(), 2, 1, split(2, 2)));
  has({names(1, 0), names(2, 2)});
  // Killed runs leave halves of files, and shards without a manifest, also of the step that is written next.
  dir.write("step-00000003-rank-00000-of-00007.safetensors", "half");
  dir.write("step-00000001-rank-00000-of-00003.safetensors", "whole");
  dir.write("step-00000009-rank-00000-of-00003.safetensors.0123456789abcdef.tmp", "half");
  are_empty(write(dir.str(), 3, 2, split(3, 3)));
  has({names(2, 2), names(3, 3)});
  write_whole(dir.str(), 4, 3);
  has({names(3, 3), names(4, 0)});
  // Later ones belong to another run.
  are_empty(write(dir.str(), 3, -1, split(2, 3)));
  has({names(3, 2), names(4, 0)});
  CHECK(is_of_checkpoints("step-00000003-rank-00000-of-00007.safetensors.0123456789abcdef.tmp"));
  CHECK_FALSE(is_of_checkpoints("step-00000003-rank-00000-of-00007.safetensors.tmp"));
  CHECK_FALSE(is_of_checkpoints("step-00000003-rank-00007-of-00007.safetensors"));
}

TEST_CASE("one process that cannot write its shard is an error of all, and nothing is left of the step",
          "[checkpoint]") {
  const TempDir dir;
  write_whole(dir.str(), 1, -1);
  const auto before = dir.files();
  const auto cut = split(3, 4);
  const std::string in_the_way = "step-00000002-rank-00001-of-00003.safetensors";
  fs::create_directory(dir.path() / in_the_way);
  for (const std::string& error : write(dir.str(), 2, 1, cut))
    CHECK_THAT(error, Contains("step-00000002-rank-00001-of-00003.safetensors: cannot be written"));
  fs::remove(dir.path() / in_the_way);
  CHECK(dir.files() == before);
  CHECK(find_latest(dir.str()).step == 1);
}

}  // namespace stretto::testing
