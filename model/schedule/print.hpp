#pragma once
#include <string>

#include "model/schedule/schedule.hpp"

namespace stretto {

struct PrintOptions {
  bool order = true;   // the order of each role's program
  bool blocks = true;  // the operations of each block
};

// Returns the schedule as text for people: mesh, lanes, communicators, bytes of buffers by kind, the order, then the
// operations of every block once. Repetition in the order is folded: consecutive layers into `h.0..11`, consecutive
// micro-batches into `×8 micro-batches 0..7`. A call that waits, or that calls only part of its block, stands on a line
// of its own. Deterministic; not meant to be parsed (write_schedule_json is).
std::string print_schedule(const Schedule& schedule, const PrintOptions& options = {});

}  // namespace stretto
