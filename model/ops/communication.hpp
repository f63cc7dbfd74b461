#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "model/ops/expr.hpp"
#include "model/ops/operand_list.hpp"
#include "model/ops/pass.hpp"

namespace stretto {

// all_gather:     own shard R, whole buffer W.     Where the two overlap, the shard is slice `rank` of the whole.
// reduce_scatter: whole buffer R, own shard W.     Sum in rank order 0,1,…,n−1 whatever the shard, accumulated in the
//                 element type (bf16: in f32, rounded once), so results do not depend on timing. Or the maximum.
// all_reduce:     whole buffer A.                  Sum in rank order, or the maximum.
// all_to_all:     whole buffer R, whole buffer W.  Slice j of rank i becomes slice i of rank j.
// dispatch:       rows R, (offsets R), received W. An all-to-all whose slices are as long as `offsets` says: rows of
//                 experts, sorted by expert, go to the ranks that have the experts, and lie there by rank (see Rows).
//                 Without `experts` slices are equal, and there is no operand `offsets`.
// combine:        received R, (offsets R), rows W. The way back.
enum class CollectiveKind : std::uint8_t { all_gather, reduce_scatter, all_reduce, all_to_all, dispatch, combine };
const char* name_of(CollectiveKind kind);  // "all_gather", …
// Returns the kind that moves as many bytes between the same members: all_to_all of dispatch and combine.
CollectiveKind like_equal_slices(CollectiveKind kind);

// One phase of a collective's data movement, which all members must have ended before the next phase begins. Every
// member gets one slice of the whole from every member, itself included: the giver's own slice, or the getter's. The
// getter reduces the slices in the order of members, all to one place, or copies them. model/schedule/parcel.hpp has
// the numbers.
struct CollectivePhase {
  enum class Slice : std::uint8_t { of_giver, of_getter } source, target;
  bool reduces = false;
  bool from_result = false;  // givers give from the result of the previous phase
};

// The properties of a kind of collective that its executors and checkers need. A member gives its shard or the whole
// buffer, and gets its shard or the whole.
struct CollectiveRule {
  const char* name = "?";
  bool gives_shard = false, gets_shard = false;
  bool one_buffer = false;  // input and result are one operand, A
  bool of_rows = false;     // it moves rows of experts: dispatch and combine
  int phases = 0;
  std::array<CollectivePhase, 2> phase = {};

  bool reduces() const { return phase[0].reduces; }  // otherwise it only copies
  // Returns whether the shard may be a slice of the whole; a kind with two whole buffers needs two separate ones.
  bool in_place() const { return one_buffer || gives_shard != gets_shard; }
};
CollectiveRule rule_of(CollectiveKind kind);

// How a reduce-scatter or an all-reduce combines the members' elements. The maximum is defined for numbers: where one
// element is NaN the result is any of them (NCCL's ncclMax). ring_sum is the sum that goes round a ring: it begins with
// the member after the one whose slice it is, ends with that one, and is rounded to the element's type at each. NCCL's
// rings sum so, whatever is asked for; only the host can do either.
enum class Reduction : std::uint8_t { sum, max, ring_sum };
const char* name_of(Reduction reduction);  // "sum", "max", "ring_sum"

// A collective: the members of the group meet (rendezvous), transfer, and complete together.
struct Collective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  std::uint32_t communicator = 0;        // index into Schedule::communicators
  std::int64_t elements = 0;             // elements of the whole buffer; divisible by the group size unless all_reduce
  Reduction reduction = Reduction::sum;  // others only for kinds that reduce
  // For dispatch and combine, whose `elements` are those of a member's rows of `cols` elements, sorted by expert. With
  // `experts` data says how much goes where: member m has as many of the `experts` as every other, from m · experts /
  // members on, and room for `capacity` elements of the rows of all members that go there, by member and then by
  // expert. offsets[members, experts + 1] i32: the first of each member's rows of each expert, then all.
  std::int64_t experts = 0, cols = 0, capacity = 0;
  std::int64_t copies = 0;  // rows that a token has; several may go to one member

  bool by_rows() const { return rule_of(kind).of_rows && experts > 0; }
  static constexpr std::array kFields = {"kind",    "communicator", "elements", "reduction",
                                         "experts", "cols",         "capacity", "copies"};
  bool operator==(const Collective&) const = default;
};

// One message to or from the member of a communicator that is `offset` places after this one in the ring of members.
// The n-th send from one member to another meets the other's n-th receive from it, in issue order on both sides. Bytes
// move when both have started (a posted receive means that its buffer is free), and both complete together. send:
// buffer R.  receive: buffer W.
struct PointToPoint {
  bool is_send = false;
  std::uint32_t communicator = 0;
  Expr offset = 1;
  std::int64_t elements = 0;

  static constexpr std::array kFields = {"is_send", "communicator", "offset", "elements"};
  bool operator==(const PointToPoint&) const = default;
};

OperandList operands(const Collective& work, std::int64_t group_size);
OperandList operands(const PointToPoint& work, std::int64_t group_size);
std::string sizes_text(const Collective& work);
std::string sizes_text(const PointToPoint& work);

}  // namespace stretto
