#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// A step as execution traces of MLCommons' Chakra (Sridharan et al., arXiv 2305.14516), which ASTRA-sim and others
// simulate: a file for each rank, a node for each of its operations, in host issue order. docs/interchange.md states
// what nodes, sizes and durations mean. Names, numbers and types of fields are those of schema/protobuf/et_def.proto at
// github.com/mlcommons/chakra, commit 21585d8 (May 2026).

// When the operations of a step ran: those of the representatives of a folding, in a timeline.
struct StepTimes {
  const Folding& folding;
  const Timeline& timeline;
};

class ChakraTraces {
 public:
  // Without `times` every operation begins at 0 and takes 0. The schedule must outlive this.
  explicit ChakraTraces(const Schedule& schedule, std::optional<StepTimes> times = {});

  // The bytes of a rank's file. Throws Error(input) as bind() does.
  std::string of(std::int64_t rank) const;
  // The process groups as ASTRA-sim reads them: JSON, the number of each and its ranks. 0 means all ranks there, so
  // groups are numbered from 1.
  std::string groups() const;

 private:
  const Schedule& schedule_;
  std::optional<Folding> folding_;                         // where there are times
  std::map<std::int64_t, std::vector<TimelineRow>> rows_;  // by representative: [op]
  Picoseconds begin_ = 0;                                  // of the first row
  std::vector<std::vector<std::int64_t>> groups_;          // [number − 1] → ranks
  std::vector<std::vector<std::uint32_t>> group_of_;       // [communicator][rank] → number; 0: not a member
};

// Which operations of a program an operation waits for: all of them have finished before it starts.
//  - An edge start→start is not known to execution traces. The operation waits for what the other waits for instead, so
//    that it may start when the other may.
//  - Joined messages start together: each waits for what any of them waits for, and none for another.
//  - Edges to the step before are left out.
// [op] → indices of ops, ascending; the operation before it in its lane, and of what that waited for nothing again.
std::vector<std::vector<std::uint64_t>> dependencies_of(const BoundProgram& program, std::size_t lanes);

}  // namespace stretto
