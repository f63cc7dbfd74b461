#include "report/protobuf.hpp"

namespace stretto {
namespace {

enum WireType : unsigned { kVarint = 0, kLengthDelimited = 2 };

// Seven bits a byte, the lowest first; all but the last have the highest bit.
void put_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>((value & 0x7f) | 0x80));
  to.push_back(static_cast<char>(value));
}

void put_tag(std::string& to, int field, WireType type) { put_varint(to, static_cast<unsigned>(field) << 3 | type); }

}  // namespace

void ProtoMessage::add(int field, std::uint64_t value) {
  put_tag(bytes_, field, kVarint);
  put_varint(bytes_, value);
}

void ProtoMessage::add(int field, std::string_view value) {
  put_tag(bytes_, field, kLengthDelimited);
  put_varint(bytes_, value.size());
  bytes_ += value;
}

void ProtoMessage::add(int field, std::span<const std::uint64_t> values) {
  if (values.empty()) return;
  std::string packed;
  for (const std::uint64_t value : values) put_varint(packed, value);
  add(field, std::string_view(packed));
}

std::string ProtoMessage::delimited() const {
  std::string text;
  put_varint(text, bytes_.size());
  return text + bytes_;
}

}  // namespace stretto
