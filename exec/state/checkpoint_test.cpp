#include "exec/state/checkpoint.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "base/checksum.hpp"
#include "base/error.hpp"
#include "exec/state/directory_lock.hpp"
#include "tests/message_of.hpp"
#include "tests/temp_dir.hpp"

using namespace stretto;
using namespace stretto::exec;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;
using stretto::testing::message_of;
using stretto::testing::TempDir;

namespace {

struct Arrays {
  std::vector<float> weight{1, 2, 3, 4, 5, 6};
  std::vector<double> loss{0.5};
  std::vector<std::uint16_t> half{0x3f80, 0x4000, 0xffff};
  std::vector<TensorEntry> tensors() const {
    return {{"h.0.qkv.weight", Dtype::f32, {2, 3}},
            {"loss", Dtype::f64, {1, 1}},
            {"a.bf16", Dtype::bf16, {3, 1}},
            {"none", Dtype::i32, {0, 4}}};
  }
  std::vector<std::span<const std::byte>> data() const {
    return {std::as_bytes(std::span(weight)), std::as_bytes(std::span(loss)), std::as_bytes(std::span(half)), {}};
  }
};

// Returns the contents of a checkpoint whose tensors are all in this process.
CheckpointContents whole(const std::vector<TensorEntry>& tensors, std::vector<std::span<const std::byte>> data) {
  CheckpointContents contents{tensors, {}, [data = std::move(data)](const Sink& sink) {
                                for (const auto& of_tensor : data) sink(of_tensor);
                              }};
  for (const TensorEntry& tensor : tensors) contents.parts.push_back({{0, tensor.shape[0], 0, tensor.shape[1]}});
  return contents;
}
CheckpointContents whole(const Arrays& arrays) { return whole(arrays.tensors(), arrays.data()); }
CheckpointContents whole(const std::vector<float>& values) {
  return whole({{"large", Dtype::f32, {std::ssize(values), 1}}}, {std::as_bytes(std::span(values))});
}

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void overwrite(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

TensorFile parse(const std::string& bytes) {
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  return TensorFile(ReadFile::of({data, data + bytes.size()}, "x.safetensors"));
}
std::string file_of(const std::string& json, const std::string& data = "") {
  std::string out;
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(json.size() >> (8 * i)));
  return out + json + data;
}
}  // namespace

TEST_CASE("a checkpoint comes back as it was written", "[checkpoint]") {
  const TempDir dir;
  const Arrays arrays;
  const std::string path =
      write_checkpoint(dir.str() + "/new/deep", 42, -1, {{"scenario", "quick \"start\""}}, whole(arrays));
  CHECK(path == dir.str() + "/new/deep/step-00000042.safetensors");
  TensorFile loaded = TensorFile::open(path);
  const TensorFile checkpoint = std::move(loaded);
  CHECK(checkpoint.metadata().at("step") == "42");
  CHECK(checkpoint.metadata().at("format") == "stretto-1");
  CHECK(checkpoint.has_checksum());
  CHECK(checkpoint.files() == 1);
  CHECK(checkpoint.metadata().at("scenario") == "quick \"start\"");
  CHECK(checkpoint.tensors().size() == 4);
  std::vector<std::byte> scratch;
  for (std::size_t i = 0; i < arrays.tensors().size(); ++i) {
    const TensorEntry written = arrays.tensors()[i];
    const StoredTensor* read_back = checkpoint.find(written.name);
    REQUIRE(read_back);
    CHECK(read_back->dtype == spelled(written.dtype));
    CHECK(read_back->shape == written.shape);
    const std::span<const std::byte> data = checkpoint.data(*read_back, scratch), given = arrays.data()[i];
    CHECK(std::equal(data.begin(), data.end(), given.begin(), given.end()));
    CHECK((written.name != "h.0.qkv.weight" || read_back->begin % 8 == 0));
  }
  CHECK(checkpoint.find("h.0.qkv") == nullptr);
  // Only the wanted elements of a tensor are read.
  float values[3] = {};
  const Stretch wanted[] = {{1, 2}, {5, 1}};
  checkpoint.read(*checkpoint.find("h.0.qkv.weight"), wanted, reinterpret_cast<std::byte*>(values));
  CHECK(std::vector(values, values + 3) == std::vector<float>{2, 3, 6});
}

TEST_CASE("the newest two checkpoints stay and leftovers of killed writers go", "[checkpoint]") {
  const TempDir dir;
  const Arrays arrays;
  overwrite(dir.path() / "step-00000005.safetensors.0123456789abcdef.tmp", "half");
  overwrite(dir.path() / "step-00000005.safetensors.tmp", "somebody's own");
  overwrite(dir.path() / "notes.txt", "mine");
  for (std::int64_t step : {10, 20, 30}) write_checkpoint(dir.str(), step, step - 10, {}, whole(arrays));
  const std::vector<std::string> kept{"notes.txt", "step-00000005.safetensors.tmp", "step-00000020.safetensors",
                                      "step-00000030.safetensors"};
  CHECK(dir.files() == kept);
  fs::remove(dir.path() / "step-00000005.safetensors.tmp");
  // A run that starts over next to an older one deletes neither its new checkpoint nor the older run's files.
  write_checkpoint(dir.str(), 5, -1, {}, whole(arrays));
  CHECK(dir.files().size() == 4);
  CHECK(fs::exists(dir.path() / "step-00000005.safetensors"));
  // A damaged checkpoint is not the one that is kept, and without one that is known to be complete all stay.
  overwrite(dir.path() / "step-00000030.safetensors", "damaged");
  write_checkpoint(dir.str(), 40, -1, {}, whole(arrays));
  CHECK(dir.files().size() == 5);
  write_checkpoint(dir.str(), 40, 20, {}, whole(arrays));
  CHECK(dir.files() == std::vector<std::string>{"notes.txt", "step-00000020.safetensors", "step-00000040.safetensors"});
}

TEST_CASE("find_latest falls back past damaged files and says so", "[checkpoint]") {
  const TempDir dir;
  CHECK_FALSE(find_latest(dir.str()).file);
  CHECK_FALSE(find_latest(dir.str() + "/absent").file);
  const Arrays arrays;
  write_checkpoint(dir.str(), 1, -1, {}, whole(arrays));
  const fs::path newest = write_checkpoint(dir.str(), 2, 1, {}, whole(arrays));
  LatestCheckpoint latest = find_latest(dir.str());
  CHECK(latest.step == 2);
  CHECK(latest.warnings.empty());

  const std::string whole = read(newest);
  const auto falls_back = [&](const std::string& bytes) {
    overwrite(newest, bytes);
    latest = find_latest(dir.str());
    REQUIRE(latest.file);
    CHECK(latest.step == 1);
    REQUIRE(latest.warnings.size() == 1);
    CHECK_THAT(latest.warnings[0], Contains(newest.string()));
  };
  for (std::size_t size = 0; size < whole.size(); size += 7) falls_back(whole.substr(0, size));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string flipped = whole;
    flipped[at] ^= 0x10;
    falls_back(flipped);
  }
  falls_back(whole + "x");
  falls_back(read(dir.path() / "step-00000001.safetensors"));  // copied under the wrong name
  // A checkpoint of an unknown format is not called damaged.
  std::string header = make_header({{"format", "stretto-3"}, {"step", "2"}}, {});
  Checksum checksum;
  checksum.add(header);
  header.replace(checksum_position(header), kNoChecksum.size(), checksum.digits());
  overwrite(newest, header);
  CHECK_THAT(message_of([&] { find_latest(dir.str()); }), Contains("format stretto-3, of a newer stretto"));
  fs::remove(newest);
  fs::create_directory(newest);
  CHECK_THAT(message_of([&] { find_latest(dir.str()); }), Contains("step-00000002") && Contains("directory"));
  fs::remove(newest);
  overwrite(newest, "");
  // Where no checkpoint is complete, or the system cannot find out, no run starts anew.
  overwrite(dir.path() / "step-00000001.safetensors", "");
  CHECK_THAT(message_of([&] { find_latest(dir.str()); }),
             Contains("step-00000002") && Contains("all 2 checkpoints are damaged") && Contains("begin anew"));
  fs::remove_all(newest);
  fs::create_symlink("nowhere", newest);
  CHECK_THAT(message_of([&] { find_latest(dir.str()); }), Contains("step-00000002") && Contains("No such file"));
}

TEST_CASE("malformed files are input errors", "[checkpoint]") {
  const auto fails = [](const std::string& bytes, const std::string& cause) {
    INFO(bytes);
    CHECK_THAT(message_of([&] { parse(bytes); }), Contains("x.safetensors") && Contains(cause));
  };
  fails("", "truncated");
  fails("1234567", "truncated");
  fails("GGUF" + std::string({3, 0, 0, 0}) + std::string(16, '\0'), "got a GGUF file");
  fails("version https://git-lfs.github.com/spec/v1\n", "got a pointer of Git LFS");
  fails(file_of(R"({"a\u0000b":1})"), "tensor a\\x00b: expected dtype");
  fails(std::string(8, '\xff') + "{}", "header takes 18446744073709551615 bytes");
  fails(file_of("{"), "malformed header");
  fails(file_of("[]"), "JSON object");
  fails(file_of(std::string(100000, '[')), "JSON object");
  fails(file_of(R"({"a":{"x":)" + std::string(100000, '[')), "malformed header");
  fails(file_of(R"({"a":1})"), "tensor a: expected dtype");
  fails(file_of(R"({"a":{"dtype":"F6","shape":[1],"data_offsets":[0,2]}})", "xx"), "dtype F6");
  fails(file_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "xxxx"), "non-negative");
  fails(file_of(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", "xxxx"), "non-negative");
  fails(file_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", "xxxx"), "too large");
  fails(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "xxxx"), "leave the 4 bytes");
  fails(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "xxxx"), "leave");
  fails(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "xxxx"), "shape takes 8");
  fails(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "xxxxyyyy"),
        "byte 0 of the data is in no");
  fails(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "xxxxyyyy"), "the file has 8");
  fails(
      file_of(
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
          "xxxx"),
      "in more than one");
  fails(
      file_of(
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
          "xxxx"),
      "\"a\" twice");
  fails(file_of(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "xxxx"),
        "dtype is there twice");
  fails(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", "xxxx"), "two integers");
  fails(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", "xxxx"), "two integers");
  fails(file_of(R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", "xxxx"), "shape: expected an array");
  fails(file_of(R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", "xxxx"), "non-negative");
  std::string ones = "1";
  for (int i = 0; i < 32; ++i) ones += ",1";
  fails(file_of(R"({"a":{"dtype":"F32","shape":[)" + ones + R"(],"data_offsets":[0,4]}})", "xxxx"), "32 dimensions");
  fails(file_of(R"({"__metadata__":{},"__metadata__":{}})"), "__metadata__ twice");
  fails(file_of(R"({"__metadata__":{"a":"","a":""}})"), "twice");
  fails(file_of("{} {}"), "malformed header");
  fails(file_of("{" + std::string(65, '\n') + "}"), "64 line breaks");
  fails(file_of(R"({"__metadata__":{"step":3}})"), "expected a string");
  fails(file_of(R"({"__metadata__":{"checksum":"0"}})"), "corrupt");
  CHECK_THAT(message_of([] { TensorFile::open("/"); }), Contains("directory"));
  CHECK_THAT(message_of([] { TensorFile::open("absent.safetensors"); }), Contains("No such file"));
}

TEST_CASE("safetensors files of other programs can be read", "[checkpoint]") {
  const TensorFile checkpoint = parse(file_of(
      R"({"b":{"dtype":"I32","note":{"x":[{}],"dtype":1},"shape":[],"data_offsets":[4,8]},"a":{"shape":[1,1],"data_offsets":[0,4],"dtype":"F32"}}   )",
      "xxxxyyyy"));
  CHECK_FALSE(checkpoint.has_checksum());
  REQUIRE(checkpoint.find("b"));
  std::vector<std::byte> scratch;
  CHECK(checkpoint.data(*checkpoint.find("b"), scratch)[0] == std::byte('y'));
}

TEST_CASE("a full disk is an error that leaves everything else as it was", "[checkpoint]") {
  const TempDir dir;
  const Arrays arrays;
  write_checkpoint(dir.str(), 1, -1, {}, whole(arrays));
  const auto before = dir.files();
  const std::vector<float> large(100'000);

  // The test runs in a child, because the limit that stands for a full disk applies to a process.
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{65536, 65536};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_checkpoint(dir.str(), 2, 1, {}, whole(large));
    } catch (const Error& error) {
      const std::string what = error.what();
      const bool good = error.kind() == ErrorKind::runtime && what.find("step-00000002") != std::string::npos &&
                        what.find("File too large") != std::string::npos;
      ::_exit(good ? 0 : 2);
    }
    ::_exit(3);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(dir.files() == before);
  CHECK(find_latest(dir.str()).step == 1);
}

TEST_CASE("an unusable checkpoint directory is named", "[checkpoint]") {
  const TempDir dir;
  overwrite(dir.path() / "file", "x");
  const std::string inside = (dir.path() / "file").string();
  CHECK_THAT(message_of([&] { write_checkpoint(inside, 1, -1, {}, {}); }, ErrorKind::runtime), Contains(inside));
  CHECK_THAT(message_of([&] { find_latest(inside); }), Contains(inside));
}

TEST_CASE("a writer killed at any moment leaves a usable newest checkpoint", "[checkpoint]") {
  const TempDir dir;
  const std::vector<float> data(50'000, 1.5f);
  const CheckpointContents tensors = whole(data);
  std::int64_t step = 1;
  write_checkpoint(dir.str(), step, -1, {}, tensors);
  // The loop takes a dozen moments, and more until one checkpoint has been completed: under a sanitizer on a busy
  // machine that takes long.
  for (int round = 0; round < 12 || (step == 1 && round < 100); ++round) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      for (std::int64_t next = step + 1;; ++next) write_checkpoint(dir.str(), next, next - 1, {}, tensors);
    }
    ::usleep(1500 + 1700 * round);
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    REQUIRE(WIFSIGNALED(status));
    const LatestCheckpoint latest = find_latest(dir.str());
    REQUIRE(latest.file);
    CHECK(latest.warnings.empty());
    CHECK(latest.step >= step);
    step = latest.step;
  }
  CHECK(step > 1);
}

TEST_CASE("one run at a time has a checkpoint directory", "[checkpoint]") {
  const TempDir dir;
  {
    std::optional<DirectoryLock> mine(DirectoryLock::take(dir.str()));
    CHECK(mine->is_held());
    const DirectoryLock of_my_second_process = DirectoryLock::share(dir.str());
    CHECK(of_my_second_process.is_held());
    mine.reset();  // it outlives the first
    const std::string message = message_of([&] { DirectoryLock::take(dir.str()); }, ErrorKind::runtime);
    CHECK_THAT(message,
               Contains(dir.str()) && Contains(fmt::format("process {} on ", ::getpid())) && Contains(" since "));
  }
  CHECK(DirectoryLock::take(dir.str()).is_held());
  CHECK_THAT(message_of([] { DirectoryLock::take("/absent/folder"); }), Contains("/absent/folder"));
  // The target of a link is not ours, nor is text that somebody wrote there.
  const std::string lock = dir.file("stretto.lock");
  for (const bool is_link : {false, true}) {
    fs::remove(lock);
    dir.write("theirs", "mine alone");
    if (is_link) {
      fs::create_symlink("theirs", lock);
      CHECK_THAT(message_of([&] { DirectoryLock::take(dir.str()); }), Contains("stretto.lock: expected a file"));
      CHECK_THAT(message_of([&] { DirectoryLock::share(dir.str()); }), Contains("got a link"));
    } else {
      fs::create_hard_link(dir.file("theirs"), lock);
      CHECK(DirectoryLock::take(dir.str()).is_held());
    }
    CHECK(fs::file_size(dir.file("theirs")) == 10);
  }
}

TEST_CASE("the time to read a header grows with the number of tensors, not its square", "[checkpoint]") {
  const auto seconds = [](int tensors) {
    std::string json = "{";
    for (int i = 0; i < tensors; ++i)
      json +=
          fmt::format("{}\"h.{}.w\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", i > 0 ? "," : "", i);
    const std::string file = file_of(json + "}");
    const auto begin = std::chrono::steady_clock::now();
    CHECK(static_cast<int>(parse(file).tensors().size()) == tensors);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  // Quadratic time would be 400 times as long.
  const double few = seconds(2000);
  CHECK(seconds(40000) < 100 * few + 0.2);
}
