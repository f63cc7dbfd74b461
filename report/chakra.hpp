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
// simulate: a file for each rank, a node for each of its operations, in host issue order. docs/interchange.md defines
// nodes, sizes and durations. Names, numbers and types of fields are those of schema/protobuf/et_def.proto at
// github.com/mlcommons/chakra, commit 21585d8 (May 2026).

// The times of a step's operations, for the representatives of a folding, in a timeline.
struct StepTimes {
  const Folding& folding;
  const Timeline& timeline;
};

class ChakraTraces {
 public:
  // Without `times` every operation begins at 0 and takes 0. The schedule must outlive this object.
  explicit ChakraTraces(const Schedule& schedule, std::optional<StepTimes> times = {});

  // Returns the bytes of a rank's file. Throws Error(input) as bind() does.
  std::string of(std::int64_t rank) const;
  // Returns the process groups in ASTRA-sim's format: JSON, the number of each group and its ranks. ASTRA-sim reserves
  // 0 for all ranks, so groups are numbered from 1.
  std::string groups() const;

 private:
  const Schedule& schedule_;
  std::optional<Folding> folding_;                         // set where there are times
  std::map<std::int64_t, std::vector<TimelineRow>> rows_;  // [representative][op]
  Picoseconds begin_ = 0;                                  // begin of the first row
  std::vector<std::vector<std::int64_t>> groups_;          // [number − 1] → ranks
  std::vector<std::vector<std::uint32_t>> group_of_;       // [communicator][rank] → number; 0: not a member
};

// Returns the operations that each operation waits for: all of them have finished before it starts.
//  - Execution traces have no start→start edge. The operation waits for the other operation's waits instead, so that it
//    may
//    start when the other may.
//  - Joined messages start together: each waits for the waits of all of them, and none waits for another.
//  - Edges to the previous step are left out. [op] → indices of ops, ascending: the previous operation of its lane, and
//    no operation that the previous one waited for.
std::vector<std::vector<std::uint64_t>> dependencies_of(const BoundProgram& program, std::size_t lanes);

}  // namespace stretto
