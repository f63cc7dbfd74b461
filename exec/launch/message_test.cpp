#include "exec/launch/message.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

namespace stretto::launch {
namespace {

using Kind = Header::Kind;

// Returns the message made from a header and some bytes, received `piece` at a time.
std::optional<ControlMessage> hear(Header header, const std::string& text, const Limits& limits,
                                   std::size_t piece = 1 << 20) {
  Bytes all(sizeof header + text.size());
  std::memcpy(all.data(), &header, sizeof header);
  std::memcpy(all.data() + sizeof header, text.data(), text.size());
  Inbox inbox;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t count = std::min({piece, inbox.room().size(), all.size() - at});
    std::memcpy(inbox.room().data(), all.data() + at, count);
    at += count;
    if (std::optional<ControlMessage> message = inbox.take(count, limits)) return message;
  }
  return {};
}

Bytes packed(std::uint64_t size, std::size_t bytes) {
  Bytes all(sizeof size + bytes);
  std::memcpy(all.data(), &size, sizeof size);
  return all;
}

}  // namespace

TEST_CASE("a message comes in whatever pieces") {
  for (const std::size_t piece : {1, 7, 16, 17, 1000}) {
    const auto message = hear({Kind::part, 0, 11}, "hello world", {true, 11}, piece);
    REQUIRE(message);
    CHECK(message->kind == Kind::part);
    CHECK(std::string(reinterpret_cast<const char*>(message->bytes.data()), message->bytes.size()) == "hello world");
  }
  CHECK(hear({Kind::bye, 0, 0}, "", {true, {}}));
  CHECK_FALSE(hear({Kind::part, 0, 12}, "hello world", {true, 12}));
}

TEST_CASE("no more bytes of a message are taken than were expected, and none that nobody asked for") {
  const Limits at_rank_0{true, 4096}, elsewhere{false, 100}, nothing{false, {}};
  CHECK_THROWS_WITH(hear({Kind::part, 0, std::uint64_t{8} << 30}, "", at_rank_0),
                    "announced 8589934592 bytes where at most 4096 were expected");
  CHECK_THROWS(hear({Kind::result, 0, 101}, "", elsewhere));
  CHECK(hear({Kind::result, 0, 0}, "", elsewhere));
  CHECK_THROWS(hear({Kind::result, 0, 0}, "", nothing));
  CHECK_THROWS(hear({Kind::result, 0, 0}, "", at_rank_0));
  CHECK_THROWS(hear({Kind::part, 0, 0}, "", elsewhere));
  CHECK_THROWS(hear({Kind::offer, 0, 0}, "", at_rank_0));
  CHECK_THROWS(hear({Kind::offer, 0, 8}, "", elsewhere));
  CHECK_THROWS(hear({Kind::come, 0, 0}, "", at_rank_0));
  CHECK_THROWS(hear({Kind::failure, 0, kMostOfAReason + 1}, "", elsewhere));
  CHECK_THROWS(hear({Kind::alive, 0, 1}, "", elsewhere));
  for (const std::uint32_t kind : {0u, 1u, std::uint32_t(Kind::part) - 1, std::uint32_t(Kind::alive) + 1, ~0u})
    CHECK_THROWS_WITH(hear({Kind(kind), 0, 0}, "", at_rank_0), "said something that nobody asked for");
}

TEST_CASE("a result holds what it says that it holds") {
  const std::vector<Bytes> parts = {Bytes(3), Bytes(), Bytes(5)};
  CHECK(unpack(pack(parts), 3, 5) == parts);
  CHECK_THROWS(unpack(pack(parts), 3, 4));
  CHECK_THROWS(unpack(pack(parts), 2, 5));
  CHECK_THROWS(unpack(pack(parts), 4, 5));
  CHECK_THROWS(unpack(packed(std::uint64_t{1} << 40, 0), 1, std::size_t{1} << 41));
  CHECK_THROWS(unpack(packed(1000, 8), 1, 2000));
  CHECK_THROWS(unpack(packed(~std::uint64_t{0}, 8), 1, ~std::size_t{0}));
  CHECK_THROWS(unpack(Bytes(7), 1, 100));
}

}  // namespace stretto::launch
