#include "report/protobuf.hpp"

#include <bit>

namespace stretto {
namespace {

enum WireType : unsigned { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

// Seven bits a byte, the lowest first; all but the last have the highest bit.
void put_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>((value & 0x7f) | 0x80));
  to.push_back(static_cast<char>(value));
}

void put_fixed(std::string& to, std::uint64_t bits, int bytes) {
  for (int i = 0; i < bytes; ++i) to.push_back(static_cast<char>(bits >> (8 * i) & 0xff));
}

void put_tag(std::string& to, int field, WireType type) { put_varint(to, static_cast<unsigned>(field) << 3 | type); }

}  // namespace

void ProtoMessage::add(int field, std::uint64_t value) {
  put_tag(bytes_, field, kVarint);
  put_varint(bytes_, value);
}

void ProtoMessage::add_fixed(int field, double value) {
  put_tag(bytes_, field, kFixed64);
  put_fixed(bytes_, std::bit_cast<std::uint64_t>(value), 8);
}

void ProtoMessage::add_fixed(int field, float value) {
  put_tag(bytes_, field, kFixed32);
  put_fixed(bytes_, std::bit_cast<std::uint32_t>(value), 4);
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
