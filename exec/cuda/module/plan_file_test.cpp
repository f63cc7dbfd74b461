#include "exec/cuda/module/plan_file.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/temp_dir.hpp"

namespace stretto::cuda {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}
void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

}  // namespace

TEST_CASE("plans outlast the process, for the library and device that they were made for", "[cuda]") {
  const testing::TempDir dir;
  const std::string folder = (dir.path() / "cache/stretto").string();
  PlanFile first(folder, "library 1"), other(folder, "library 1");
  CHECK(first.find({1, 2}) == nullptr);
  first.put({1, 2}, {3, -4, INT64_MIN});
  first.save();
  // Plans that another process wrote meanwhile stay.
  other.put({5}, {6});
  other.save();
  const PlanFile again(folder, "library 1");
  REQUIRE(again.find({1, 2}) != nullptr);
  CHECK(*again.find({1, 2}) == PlanFile::Numbers{3, -4, INT64_MIN});
  CHECK(again.size() == 2);
  CHECK(again.note().empty());
  CHECK(PlanFile(folder, "library 2").size() == 0);
  // The file is written under another name first; no file of that name must be left.
  CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 1);
}

TEST_CASE("a file of plans that is damaged is made again, and a note says so", "[cuda]") {
  const testing::TempDir dir;
  const std::string folder = dir.path().string();
  PlanFile whole(folder, "library");
  whole.put({1, 2}, {3});
  whole.put({7}, {8, 9});
  whole.save();
  const std::string text = text_of(whole.path());
  std::vector<std::string> damaged = {"", "\n", text + text, text + "x"};
  for (std::size_t bytes = 1; bytes < text.size(); bytes += 7) damaged.push_back(text.substr(0, bytes));
  for (std::size_t at = 0; at < text.size(); at += 5) {
    damaged.push_back(text);
    damaged.back()[at] = static_cast<char>(damaged.back()[at] ^ 1);
  }
  for (const std::string& bad : damaged) {
    INFO(bad);
    write(whole.path(), bad);
    PlanFile file(folder, "library");
    CHECK(file.size() == 0);
    CHECK_THAT(file.note(), Catch::Contains(whole.path()) && Catch::Contains("damaged"));
    file.put({1}, {2});
    file.save();
    CHECK(PlanFile(folder, "library").size() == 1);
  }
}

TEST_CASE("plans that cannot be kept are no error", "[cuda]") {
  const testing::TempDir dir;
  write((dir.path() / "file").string(), "in the way");
  PlanFile file((dir.path() / "file").string(), "library");
  file.put({1}, {2});
  file.save();
  CHECK_THAT(file.note(), Catch::Contains("not kept"));
  PlanFile nowhere("", "library");
  nowhere.put({1}, {2});
  nowhere.save();
  CHECK(nowhere.note().empty());
  CHECK(nowhere.find({1}) != nullptr);
}

}  // namespace stretto::cuda
