#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace stretto::launch {

using Bytes = std::vector<std::byte>;

// Control messages between the processes of a job: a header, followed by the bytes that it announces.
struct Header {
  // A part of what is gathered, or the offer of a large one, which is sent when rank 0 says that it may come; a result;
  // two kinds of failure; a goodbye; a sign of life.
  enum class Kind : std::uint32_t { part = 0x53545232, offer, come, result, failure, wrong_input, bye, alive };
  Kind kind = Kind::alive;
  std::uint32_t reserved = 0;
  std::uint64_t bytes = 0;
};

constexpr std::uint64_t kSmallPart = 4096;      // a part of at most so many bytes is sent unasked
constexpr std::uint64_t kMostOfAReason = 4096;  // bytes of a failure

// The messages that may arrive now.
struct Limits {
  bool to_rank_0 = true;              // parts and offers; elsewhere results, and that a part may come
  std::optional<std::uint64_t> data;  // the most bytes of a part or a result; nothing: none is expected
};
// The least and the most bytes of a message of this kind; nothing where none may come.
struct SizeRange {
  std::uint64_t least = 0, most = 0;
};
std::optional<SizeRange> expected(Header::Kind kind, const Limits& limits);

struct ControlMessage {
  Header::Kind kind = Header::Kind::alive;
  Bytes bytes;
};

// A message as its bytes come. Memory is taken for no more than was expected.
class Inbox {
 public:
  // Where the next bytes go; never empty, at most 1 MiB.
  std::span<std::byte> room();
  // `count` bytes have come there; the message when it is whole. Throws Error(runtime) when it is none of ours, or
  // longer than expected.
  std::optional<ControlMessage> take(std::size_t count, const Limits& limits);

 private:
  Header header_;
  Bytes bytes_;
  std::size_t got_ = 0;
  bool has_header_ = false;
};

// Parts of all ranks as one result, each behind its size, and back. Throws Error(runtime) when they are not `count`
// parts of at most `most` bytes.
Bytes pack(const std::vector<Bytes>& parts);
std::vector<Bytes> unpack(std::span<const std::byte> packed, std::size_t count, std::size_t most);

}  // namespace stretto::launch
