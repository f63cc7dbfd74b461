#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "exec/launch/greeting.hpp"
#include "exec/launch/message.hpp"

namespace {

using namespace stretto;
using namespace stretto::launch;

// Delivers bytes as a socket would: in pieces, whose sizes the bytes themselves decide.
template <class Room, class Take>
void bring(std::span<const std::byte> bytes, Room room, Take take) {
  while (!bytes.empty()) {
    const std::span<std::byte> to = room();
    if (to.empty()) __builtin_trap();
    const std::size_t piece = 1 + std::to_integer<std::size_t>(bytes[0]);
    const std::size_t count = std::min({piece, to.size(), bytes.size()});
    std::memcpy(to.data(), bytes.data(), count);
    bytes = bytes.subspan(count);
    if (!take(count)) return;
  }
}

// A greeting without the token must be refused, whatever it says.
void greet(std::span<const std::byte> bytes) {
  Greeting greeting("the token");
  bring(
      bytes, [&] { return greeting.room(); },
      [&](std::size_t count) {
        const Greeting::Next next = greeting.take(count);
        if (std::holds_alternative<Caller>(next)) __builtin_trap();
        return !std::holds_alternative<Greeting::Refused>(next);
      });
}

void listen(const Limits& limits, std::span<const std::byte> bytes) {
  Inbox inbox;
  bring(
      bytes, [&] { return inbox.room(); },
      [&](std::size_t count) {
        const std::optional<ControlMessage> message = inbox.take(count, limits);
        if (!message) return true;
        const std::optional<SizeRange> range = expected(message->kind, limits);
        if (!range || message->bytes.size() < range->least || message->bytes.size() > range->most) __builtin_trap();
        const std::string shown =
            printable({reinterpret_cast<const char*>(message->bytes.data()), message->bytes.size()});
        if (std::any_of(shown.begin(), shown.end(), [](char c) { return (c >= 0 && c < ' ') || c == 127; }))
          __builtin_trap();
        return true;
      });
}

}  // namespace

// The first byte selects a kind of message between processes for the rest, and the second how much was requested. Only
// stretto::Error may be thrown.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size)).subspan(2);
  try {
    Limits limits{data[0] % 2 == 0, {}};
    if (data[1] != 0) limits.data = 16 * (data[1] - 1);
    if (data[0] % 4 < 2) {
      listen(limits, bytes);
    } else if (data[0] % 4 == 2) {
      greet(bytes);
    } else {
      const std::vector<Bytes> parts = unpack(bytes, data[1] % 8, data[1]);
      if (parts.size() != data[1] % 8 || pack(parts).size() != bytes.size()) __builtin_trap();
    }
  } catch (const Error&) {
  }
  return 0;
}
