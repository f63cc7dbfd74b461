#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace stretto::launch {

using Bytes = std::vector<std::byte>;

// Control messages between the processes of a job: a header, then the bytes that it announces.
struct Header {
  // Kinds of messages: a rank's part of a gather; the offer of a large part, which is sent when rank 0 permits it
  // (come); a result; two kinds of failure; a goodbye; a heartbeat.
  enum class Kind : std::uint32_t { part = 0x53545232, offer, come, result, failure, wrong_input, bye, alive };
  Kind kind = Kind::alive;
  std::uint32_t reserved = 0;
  std::uint64_t bytes = 0;
};

constexpr std::uint64_t kSmallPart = 4096;      // bytes of a part up to which it is sent without an offer
constexpr std::uint64_t kMostOfAReason = 4096;  // most bytes of a failure's text

// The messages that may arrive now.
struct Limits {
  bool to_rank_0 = true;              // parts and offers; at other ranks results and permissions
  std::optional<std::uint64_t> data;  // the most bytes of a part or a result; nothing: none is expected
};
// The least and the most bytes of a message of this kind; nothing where none may arrive.
struct SizeRange {
  std::uint64_t least = 0, most = 0;
};
std::optional<SizeRange> expected(Header::Kind kind, const Limits& limits);

struct ControlMessage {
  Header::Kind kind = Header::Kind::alive;
  Bytes bytes;
};

// A message that is being received. It takes memory for at most the expected bytes.
class Inbox {
 public:
  // Returns the place for the next bytes; never empty, at most 1 MiB.
  std::span<std::byte> room();
  // Takes `count` bytes that have been received there; returns the message when it is complete. Throws Error(runtime)
  // when it is no valid message, or longer than expected.
  std::optional<ControlMessage> take(std::size_t count, const Limits& limits);

 private:
  Header header_;
  Bytes bytes_;
  std::size_t got_ = 0;
  bool has_header_ = false;
};

// Packs the parts of all ranks into one result, each after its size, and unpacks them. unpack throws Error(runtime)
// when they are not `count` parts of at most `most` bytes.
Bytes pack(const std::vector<Bytes>& parts);
std::vector<Bytes> unpack(std::span<const std::byte> packed, std::size_t count, std::size_t most);

}  // namespace stretto::launch
