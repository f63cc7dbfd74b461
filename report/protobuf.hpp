#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace stretto {

// The bytes of a Protocol Buffers message (protobuf.dev/programming-guides/encoding), field by field. Whoever reads it
// knows the fields' numbers and types from a schema; a reader takes a field that is absent for 0 or "".
class ProtoMessage {
 public:
  // Of type (u)int32, (u)int64, bool or an enumeration, written also when it is 0.
  void add(int field, std::uint64_t value);
  // Of type string or bytes.
  void add(int field, std::string_view value);
  void add(int field, const ProtoMessage& message) { add(field, std::string_view(message.bytes_)); }
  // Repeated, of type uint64: packed; none when there are no values.
  void add(int field, std::span<const std::uint64_t> values);

  const std::string& bytes() const { return bytes_; }
  // With its length before it, as files that hold several messages have them.
  std::string delimited() const;

 private:
  std::string bytes_;
};

}  // namespace stretto
