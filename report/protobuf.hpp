#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace stretto {

// The bytes of a Protocol Buffers message (protobuf.dev/programming-guides/encoding), field by field. A reader knows
// the fields' numbers and types from a schema, and reads an absent field as 0 or "".
class ProtoMessage {
 public:
  // Adds a field of type (u)int32, (u)int64, bool or an enumeration, even when it is 0.
  void add(int field, std::uint64_t value);
  // Add a field of type double or float.
  void add_fixed(int field, double value);
  void add_fixed(int field, float value);
  // Adds a field of type string or bytes.
  void add(int field, std::string_view value);
  void add(int field, const ProtoMessage& message) { add(field, std::string_view(message.bytes_)); }
  // Adds a repeated field of type uint64: packed; no field when there are no values.
  void add(int field, std::span<const std::uint64_t> values);

  const std::string& bytes() const { return bytes_; }
  // Returns the message with its length in front, for files that hold several messages.
  std::string delimited() const;

 private:
  std::string bytes_;
};

}  // namespace stretto
