#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/ops/expr.hpp"
#include "model/schedule/ids.hpp"

namespace stretto {

// The state map: where each rank keeps which elements of the model's learnable arrays, and which rank updates them.
// Lowering writes the map; checkpoints, weights, initial values and the comparison of data flows read it, so they need
// not know axes of the mesh or parse names. Positions that differ between ranks are expressions of the rank's
// coordinates.
//
//   array ── cuts ──► a rank's part ── piece ──► elements of a bucket ── windows ──► elements of storages
//
// All numbers are elements, row-major, unless their comment says otherwise.

// The values that exist for every learnable element.
enum class StatePart : std::uint8_t {
  parameters,  // the values that the model computes with
  gradients,   // valid after backward; reduced in the range that a rank owns
  adam_m,
  adam_v,
  master,  // full-precision parameters that the optimizer updates, when computation uses rounded ones
};
constexpr int kStateParts = static_cast<int>(StatePart::master) + 1;
const char* name_of(StatePart part);

// A rectangle of an array: its element (i, j) is element begin + i·ld + j of the array.
struct ArrayCut {
  Expr begin;
  std::int64_t rows = 1, cols = 0, ld = 0;
};

// A learnable array, uncut and without padding, in the shape that it has in files. An array inside the layers
// represents one array in each layer.
struct ModelArray {
  std::string name;  // within a layer: "qkv.weight"
  std::int64_t rows = 1, cols = 1;
  double mean = 0, deviation = 0;  // initial values are normal(mean, deviation)
  // The concatenation of these cuts is a rank's part. Indices from elements() on are padding, which is 0 and in no
  // file.
  std::vector<ArrayCut> cuts = {};
  // false: state of how the model is computed (scales of delayed scaling), which files of weights do not have.
  bool of_model = true;
  std::int64_t elements() const { return rows * cols; }
};

// A bucket: parts of several arrays that are reduced and updated together, with padding between them. No storage has to
// hold the whole bucket.
struct StateBucket {
  struct Window {
    StorageId storage = 0;
    Expr begin;  // element of the bucket at which the storage begins
  };
  std::size_t program = 0;  // ranks that follow this program have the bucket
  Expr own_begin;           // the rank updates [own_begin, own_begin + own_elements)
  std::int64_t own_elements = 0;
  std::array<std::optional<Window>, kStateParts> windows = {};  // [part]; absent: no rank keeps the part
  std::optional<Window>& window(StatePart part) { return windows[static_cast<std::size_t>(part)]; }
  const std::optional<Window>& window(StatePart part) const { return windows[static_cast<std::size_t>(part)]; }
};

// Places a rank's part of an array in a bucket, from `offset` on.
struct StatePiece {
  std::uint32_t array = 0, bucket = 0;
  std::int64_t layer = -1;  // -1: outside the layers
  std::int64_t offset = 0;
};

struct StateMap {
  std::vector<ModelArray> arrays;
  std::vector<StateBucket> buckets;
  // Sorted in the model's registration order. An array that several programs hold (a tied embedding) has one piece for
  // each of them, one after the other.
  std::vector<StatePiece> pieces;

  const ModelArray& array_of(const StatePiece& piece) const { return arrays[piece.array]; }
  std::string full_name(const StatePiece& piece) const;  // Parameter::full_name()
  // Returns all pieces of the array whose first piece is pieces[first].
  std::span<const StatePiece> copies(std::size_t first) const;
};

// Elements [begin, begin + elements) of an array, at `offset` of a storage. `half`: the bits of f32 numbers that the
// storage has, where masters are parameters and remainders (AdamW): the upper ones, rounded to nearest with ties away
// from zero, or the lower ones. Both together are exact.
struct StateRun {
  enum class Half : std::uint8_t { none, upper, lower };
  std::int64_t begin = 0, elements = 0;
  StorageId storage = 0;
  std::int64_t offset = 0;
  Half half = Half::none;
};

enum class Share : std::uint8_t {
  held,  // all elements that a rank has
  // the elements that a rank updates: every element of each copy is owned by at least one rank; several owners have
  // equal values
  owned,
};
struct Schedule;
// Returns the elements of a piece that a rank has, in the order of the storage, without padding. Empty when the rank
// has none.
std::vector<StateRun> runs_of(const Schedule& schedule, const StatePiece& piece, StatePart part, std::int64_t rank,
                              Share share);

}  // namespace stretto
