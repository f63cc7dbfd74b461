#pragma once
#include <cstdint>
#include <string>

#include "model/ops/sequence_parts.hpp"

// Words for the sizes of a work, as describe() prints them.
namespace stretto {

inline std::string dims(std::int64_t a, std::int64_t b) { return std::to_string(a) + "x" + std::to_string(b); }

// Returns " keys 3+1/4": one part of four, the one after the third.
inline std::string parts_text(const char* what, const SequenceParts& parts) {
  if (parts.of == 1) return "";
  return what + parts.first.text() + "+" + std::to_string(parts.count) + "/" + std::to_string(parts.of);
}

inline std::string heads_text(std::int64_t heads, std::int64_t kv_heads) {
  return " heads " + std::to_string(heads) + (kv_heads == heads ? "" : " kv " + std::to_string(kv_heads));
}

}  // namespace stretto
