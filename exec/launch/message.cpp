#include "exec/launch/message.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace stretto::launch {

std::optional<SizeRange> expected(Header::Kind kind, const Limits& limits) {
  using Kind = Header::Kind;
  switch (kind) {
    case Kind::part:
    case Kind::result:
      if ((kind == Kind::part) != limits.to_rank_0 || !limits.data) return {};
      return SizeRange{0, *limits.data};
    case Kind::offer:
      if (!limits.to_rank_0) return {};
      return SizeRange{sizeof(std::uint64_t), sizeof(std::uint64_t)};
    case Kind::come:
      if (limits.to_rank_0) return {};
      return SizeRange{0, 0};
    case Kind::failure:
    case Kind::wrong_input:
      return SizeRange{0, kMostOfAReason};
    case Kind::bye:
    case Kind::alive:
      return SizeRange{0, 0};
  }
  return {};
}

std::span<std::byte> Inbox::room() {
  constexpr std::size_t piece = std::size_t{1} << 20;
  if (!has_header_) return std::as_writable_bytes(std::span(&header_, 1)).subspan(got_);
  const std::span<std::byte> left = std::span(bytes_).subspan(got_);
  return left.first(std::min(piece, left.size()));
}

std::optional<ControlMessage> Inbox::take(std::size_t count, const Limits& limits) {
  got_ += count;
  if (!has_header_) {
    if (got_ < sizeof header_) return {};
    const std::optional<SizeRange> range = expected(header_.kind, limits);
    if (!range) throw runtime_failure("said something that nobody asked for");
    if (header_.bytes < range->least || header_.bytes > range->most)
      throw runtime_failure(
          fmt::format("announced {} bytes where at most {} were expected", header_.bytes, range->most));
    has_header_ = true;
    got_ = 0;
    bytes_.resize(header_.bytes);
  }
  if (got_ < bytes_.size()) return {};
  has_header_ = false;
  got_ = 0;
  return ControlMessage{header_.kind, std::exchange(bytes_, {})};
}

Bytes pack(const std::vector<Bytes>& parts) {
  Bytes packed;
  for (const Bytes& part : parts) {
    const std::uint64_t size = part.size();
    const auto head = std::as_bytes(std::span(&size, 1));
    packed.insert(packed.end(), head.begin(), head.end());
    packed.insert(packed.end(), part.begin(), part.end());
  }
  return packed;
}

std::vector<Bytes> unpack(std::span<const std::byte> packed, std::size_t count, std::size_t most) {
  std::vector<Bytes> parts;
  while (!packed.empty() && parts.size() < count) {
    std::uint64_t size = 0;
    if (packed.size() < sizeof size) break;
    std::memcpy(&size, packed.data(), sizeof size);
    packed = packed.subspan(sizeof size);
    if (size > most || size > packed.size()) break;
    parts.emplace_back(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(size));
    packed = packed.subspan(size);
  }
  if (!packed.empty() || parts.size() != count)
    throw runtime_failure(fmt::format("rank 0 sent a result that is not {} parts of at most {} bytes", count, most));
  return parts;
}

}  // namespace stretto::launch
