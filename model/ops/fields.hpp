#pragma once
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace stretto {

// Helpers for an aggregate that lists the names of all its fields, 1 to 14, in order; JSON has them as keys:
//   struct Fill { std::int64_t elements = 0; double value = 0; static constexpr std::array kFields = {"elements",
//   "value"}; };
// A list with a missing or an additional name does not compile; two swapped names do. JSON, hashes and evaluation use
// these helpers, so a new field needs no other code. References to fields are valid as long as the object.

// Returns references to all fields of `object`, in order.
template <class Struct>
constexpr auto tie_fields(Struct& object) {
  constexpr std::size_t count = std::remove_const_t<Struct>::kFields.size();
  static_assert(count >= 1 && count <= 18, "add a case below");
  if constexpr (count == 1) {
    auto& [a] = object;
    return std::tie(a);
  } else if constexpr (count == 2) {
    auto& [a, b] = object;
    return std::tie(a, b);
  } else if constexpr (count == 3) {
    auto& [a, b, c] = object;
    return std::tie(a, b, c);
  } else if constexpr (count == 4) {
    auto& [a, b, c, d] = object;
    return std::tie(a, b, c, d);
  } else if constexpr (count == 5) {
    auto& [a, b, c, d, e] = object;
    return std::tie(a, b, c, d, e);
  } else if constexpr (count == 6) {
    auto& [a, b, c, d, e, f] = object;
    return std::tie(a, b, c, d, e, f);
  } else if constexpr (count == 7) {
    auto& [a, b, c, d, e, f, g] = object;
    return std::tie(a, b, c, d, e, f, g);
  } else if constexpr (count == 8) {
    auto& [a, b, c, d, e, f, g, h] = object;
    return std::tie(a, b, c, d, e, f, g, h);
  } else if constexpr (count == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = object;
    return std::tie(a, b, c, d, e, f, g, h, i);
  } else if constexpr (count == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = object;
    return std::tie(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (count == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = object;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k);
  } else if constexpr (count == 12) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = object;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
  } else if constexpr (count == 13) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = object;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m);
  } else if constexpr (count == 14) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = object;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
  } else if constexpr (count == 15) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = object;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o);
  } else if constexpr (count == 16) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = object;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
  } else if constexpr (count == 17) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q] = object;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q);
  } else {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r] = object;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r);
  }
}

// Calls visit(name, field) for each field, in order.
template <class Struct, class Visit>
constexpr void for_each_field(Struct& object, Visit&& visit) {
  const auto fields = tie_fields(object);
  [&]<std::size_t... i>(std::index_sequence<i...>) { (visit(Struct::kFields[i], std::get<i>(fields)), ...); }
  (std::make_index_sequence<std::tuple_size_v<decltype(fields)>>{});
}

}  // namespace stretto
