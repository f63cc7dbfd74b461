#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace stretto {

// Internal to the data-flow comparison: contents of memory as symbols instead of numbers. Pure functions and values.

std::uint64_t mix(std::uint64_t hash, std::uint64_t value);

// `length` elements that are consecutive members of one family. The family's hash says how its elements were computed;
// `index` is the place of the first element in the family. Families are defined over whole arrays (element 7 of "the
// sum of h.0.qkv.weight's gradients"), so that a value keeps its name wherever it is stored and however storages are
// cut. A uniform run has one value in every element. Uniform hash 0 is the number zero.
struct Run {
  static constexpr std::int64_t kUniform = std::numeric_limits<std::int64_t>::min();
  std::int64_t length = 0;
  std::uint64_t hash = 0;
  std::int64_t index = kUniform;
};
// Runs that continue one another are always merged: equal contents are equal sequences.
using Runs = std::vector<Run>;

std::int64_t length_of(const Runs& runs);
void append(Runs& to, Run run);
void append(Runs& to, const Runs& runs);
// Returns elements [begin, begin + length), which must exist.
Runs slice(const Runs& runs, std::int64_t begin, std::int64_t length);
// Replaces elements from `begin` on by all of `with`.
void overwrite(Runs& runs, std::int64_t begin, const Runs& with);
std::uint64_t fingerprint(const Runs& runs);

// Combine operands of equal length element by element: by the function `work` of them in this order, or by their sum in
// any order. The result is indexed as its first operand that is not uniform; other operands enter with their distance
// from it.
Runs map_elements(std::uint64_t work, std::span<const Runs> operands);
Runs sum_elements(std::span<const Runs> operands);

// Returns the sum of a function of every element, whatever the order: equal for equal sets of elements however they are
// cut.
std::uint64_t sum_over(const Runs& runs);

}  // namespace stretto
