#include "base/new_file.hpp"

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/temp_dir.hpp"

namespace stretto {

TEST_CASE("a temporary name is recognised, any other name is not", "[base]") {
  CHECK(name_under_temporary("a.json.0123456789abcdef.tmp") == "a.json");
  CHECK(name_under_temporary("a.0123456789abcdef.tmp.0123456789abcdef.tmp") == "a.0123456789abcdef.tmp");
  for (const char* name :
       {"", "a.json", "a.json.tmp", ".0123456789abcdef.tmp", "0123456789abcdef.tmp", "a.0123456789abcdeg.tmp",
        "a.0123456789ABCDEF.tmp", "a.123456789abcdef.tmp", "a_0123456789abcdef.tmp", "a.0123456789abcdef.tmp~"})
    CHECK(name_under_temporary(name).empty());
}

TEST_CASE("left-overs of one name go, and nothing else", "[base]") {
  const testing::TempDir dir;
  const std::string mine = "a.0123456789abcdef.tmp", other = "b.0123456789abcdef.tmp";
  for (const std::string& name : {std::string("a"), std::string("a.tmp"), mine, other}) dir.write(name, "x");
  const auto before = dir.files();
  remove_left_overs(dir.str() + "/");  // names no file
  remove_left_overs(dir.str(), {});
  remove_left_overs(dir.str(), {""});
  CHECK(dir.files() == before);
  {
    const NewFile writing(dir.file("a"));
    remove_left_overs(dir.file("a"));
    CHECK(dir.files().size() == 4);  // the file that is being written stays
  }
  CHECK(dir.files() == std::vector<std::string>{"a", "a.tmp", other});
}

TEST_CASE("a folder that is not kept leaves nothing", "[base]") {
  const testing::TempDir dir;
  const std::string fresh = dir.file("fresh");
  for (const bool is_kept : {false, true}) {
    NewFolder folder(fresh);
    folder.add(fresh + "/a", "x");
    if (is_kept) folder.keep();
  }
  CHECK(std::filesystem::exists(fresh + "/a"));
  {
    NewFolder folder(fresh);
    folder.add(fresh + "/b", "x");
  }
  CHECK(std::filesystem::exists(fresh + "/a"));
  CHECK_FALSE(std::filesystem::exists(fresh + "/b"));
}

}  // namespace stretto
