#include "report/tensorboard.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <iterator>

#include "tests/temp_dir.hpp"

using namespace stretto;
using stretto::testing::TempDir;

TEST_CASE("CRC-32C of the examples of RFC 3720, B.4", "[tensorboard]") {
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AAu);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62A8AB43u);
  CHECK(crc32c("123456789") == 0xE3069283u);
}

TEST_CASE("an event file is records of length, checksum and event", "[tensorboard]") {
  const TempDir dir;
  const std::string path = dir.write("events", "");
  {
    TensorBoardLog log(path);
    log.add(7, {{"loss", 2.5}});
  }
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> records;
  for (std::size_t at = 0; at + 12 < bytes.size();) {
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, 8);
    REQUIRE(at + 16 + length <= bytes.size());
    records.push_back(bytes.substr(at + 12, length));
    at += 16 + length;
  }
  REQUIRE(records.size() == 2);
  // Field 3, a string of 13 bytes; then field 2 of 7, and field 5: a summary of one value, {tag, float 2.5}.
  CHECK(records[0].find("\x1a\x0d"
                        "brain.Event:2") == 9);
  CHECK(records[1].substr(9) == std::string("\x10\x07\x2a\x0d\x0a\x0b\x0a\x04loss\x15\x00\x00\x20\x40", 17));
}
