#pragma once
#include <cstdint>
#include <string>

namespace stretto::exec {

// Messages of executors about rows of experts: more than there is room for, which is an error because no token is
// dropped, and numbers from a tensor that point outside what they number, which only a wrong schedule has.
inline std::string no_room_at_rank(const std::string& rank, std::int64_t rows, std::int64_t capacity) {
  return "experts of " + rank + " get " + std::to_string(rows) +
         " rows, and moe_expert_rank_capacity_factor leaves room for " + std::to_string(capacity);
}
inline std::string no_room_at_expert(std::int64_t expert, std::int64_t rows, std::int64_t each) {
  return "expert " + std::to_string(expert) + " gets " + std::to_string(rows) +
         " rows, and moe_expert_capacity_factor leaves room for " + std::to_string(each) + ": no token is dropped";
}
inline std::string number_outside(const char* what, std::int64_t number, std::int64_t end) {
  return std::string("experts: ") + what + " " + std::to_string(number) + " is outside [0, " + std::to_string(end) +
         ")";
}
constexpr const char* kOffsetsDescend = "experts: offsets descend";

}  // namespace stretto::exec
