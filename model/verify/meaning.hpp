#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/schedule/bind.hpp"
#include "model/verify/cells.hpp"

namespace stretto {

// Internal to the verifier: whether each read gets the intended value. A schedule without races may still read a wrong
// value: a slot is reused too early, a bucket is reduced before its last gradient. docs/verifier.md ("Meaning") has the
// rules, which need no other schedule to compare with.

struct WrongValue {
  CellUse use;
  std::string why;  // continues "… reads x[0,64), "
};

// Facts about values that follow from the templates of a schedule, for all of its programs. A value type.
struct ValueRules {
  explicit ValueRules(const Schedule& schedule);

  std::vector<bool> is_communication;         // [OpId]
  std::vector<bool> carries_version;          // [OpId]: reads parameters and writes parameters
  std::vector<bool> keeps_version;            // [OpId]: writes parameters of the previous step
  std::vector<bool> is_updated;               // [storage]: a computation writes it; other parameters are frozen
  std::vector<std::uint32_t> first_instance;  // [tensor], as number_instances() returns them
  std::vector<std::uint32_t>
      same_places;  // [tensor]: equal for tensors whose instances lie in the same storages, one by one
};

// Follows the values in the cells of one program, in an order in which nothing races.
class Meaning {
 public:
  // All but `cells` must outlive this object. `rules` are the schedule's.
  Meaning(const Schedule& schedule, const ValueRules& rules, const BoundProgram& program, std::uint32_t cells);

  // Returns whether operation `op` of `step`, 0 or 1, reads and writes the intended values. Every operation of step 0
  // must be visited. In step 1 only those operations must be visited that were the first on their lane in step 0 to
  // access a cell that was not yet written.
  bool visit(std::uint32_t op, std::uint32_t step, std::span<const CellUse> uses);
  // The first wrong access of the operation visited last; valid after visit() has returned false.
  const WrongValue& wrong() const { return wrong_; }

 private:
  // Identity of an activation's or workspace's value: micro-batch and chunk of its writer, tensor and position in the
  // tensor. The identity is one number, so that the common case is one comparison for each cell.
  using Stamp = std::uint64_t;
  // Where an operand comes from: how many chunks away it was written, and through which tensor.
  struct HandOver {
    std::int64_t chunks = 0;
    std::size_t tensor = 0;
    bool operator==(const HandOver&) const = default;
  };
  // State of gradients and scalars, which accumulate during the step. Each field has an array of its own, so that loops
  // over cells are vectorised.
  struct Sums {
    std::vector<std::uint32_t> consumer;       // op + 1 of the first reader of the current sum; 0: none
    std::vector<std::uint32_t> reader;         // op + 1 of the last reader
    std::vector<std::uint32_t> terms;          // number of terms in the sum
    std::vector<std::uint64_t> micro_batches;  // sum of the hashes of the terms' micro-batches
  };

  // Return false, and set wrong_, when the value is not the intended one.
  bool is_of_unit(std::uint32_t op, Stamp own, const CellUse& use);
  bool is_same_way(std::uint32_t op, const CellUse& use, HandOver from);
  bool takes_sum(std::uint32_t op);
  bool read_sum(std::uint32_t op, const CellUse& use);
  bool read_parameter(std::uint32_t op, std::uint32_t step, const CellUse& use);
  bool write_sum(std::uint32_t op, const CellUse& use);
  void write_parameter(std::uint32_t op, std::uint32_t step, const CellUse& use);

  bool is_communication_at(std::uint32_t op) const { return rules_.is_communication[program_.ops[op].op]; }
  bool is_balanced(const CellUse& use);
  bool is_unread(std::uint32_t op, const CellUse& use);
  std::string written_as(Stamp stamp) const;
  std::size_t tensor_of(std::uint64_t instance) const;

  const Schedule& schedule_;
  const ValueRules& rules_;
  const BoundProgram& program_;
  std::vector<std::uint64_t> hash_;  // [micro-batch]
  std::uint64_t each_once_ = 0;      // sum of the hashes of all micro-batches
  std::vector<Stamp> stamps_;        // [cell]; 0: nobody has written
  // Template, layer, chunk and access of a read whose value was written through another tensor or by another chunk.
  using Reading = std::array<std::int64_t, 4>;
  struct ReadingHash {
    std::size_t operator()(const Reading& reading) const {
      std::uint64_t hash = 0;
      for (const std::int64_t part : reading) hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15u;
      return hash ^ hash >> 32;
    }
  };
  std::unordered_map<Reading, HandOver, ReadingHash> handed_over_;
  std::vector<bool> is_handed_over_;             // [OpId]: some read of the operation is in handed_over_
  Sums sums_;                                    // [cell]
  std::vector<std::uint8_t> versions_;           // [cell] of a parameter: number of its updates
  std::optional<std::uint8_t> carried_version_;  // version of the parameter that the current operation has read
  bool is_updated_yet_ = false;                  // some cell has a version other than 0
  WrongValue wrong_;
};

}  // namespace stretto
