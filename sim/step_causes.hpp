#pragma once
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "sim/inputs.hpp"

namespace stretto::sim {

// The times of a row. Each follows from other times and from costs. `meet` is the time at which a
// communication begins to move bytes, `moved` the one at which this rank has moved its own; a send has no `moved`.
enum class RowTime : std::uint8_t { ready, start, meet, moved, end };
constexpr std::uint32_t kRowTimes = 5;

// A time of a step: row · kRowTimes + RowTime, and after the times of all rows, those at which the hosts begin their
// segments (HostClock).
using TimeId = std::uint32_t;

// How a time changes with the times and costs from which it follows.
struct Explanation {
  struct Time {
    TimeId time = 0;
    std::int32_t steps_ago = 0;  // -1: in the next step
    double weight = 0;           // all weights add up to 1
  };
  // per picosecond of Demand::alone, of CollectiveCost::movement, of FlatOp::issued and of FlatOp::awaited; per unit of
  // KernelInterference::slows and ::slowed, in picoseconds
  enum class Cost : std::uint8_t { computes, moves, issued, awaited, slows, slowed };
  struct Part {
    Cost cost = Cost::computes;
    std::uint32_t of = 0;                   // OpId; of the host's costs the row of an operation
    DemandClass cls = DemandClass::memory;  // of the computation concurrent with a communication
    double weight = 0;
  };
  std::vector<Time> times;
  std::vector<Part> parts;
};

// Says which times and costs each time of a simulated step follows from: rows show which of several causes came last,
// and how long activities of a device were concurrent. A second look at the rows, so that an engine that runs a step
// does nothing for it.
class StepCauses {
 public:
  // `timeline` has the rows of all of `inputs.programs`, in order, and its step is steady. All is borrowed.
  StepCauses(const SimInputs& inputs, const Timeline& timeline);

  // Returns why the rows explain nothing: a machine with costs that no published GPU has, or times that are not those
  // which the costs give. "" where they do.
  const std::string& why_not() const { return why_not_; }

  std::uint32_t times() const { return segment_begin_.back(); }
  TimeId id(std::uint32_t row, RowTime time) const { return row * kRowTimes + static_cast<std::uint32_t>(time); }
  std::uint32_t last_row() const { return last_; }  // the row that ends the step
  // Returns the row that ends last of those that end by then.
  std::optional<std::uint32_t> last_row_before(Picoseconds time) const;
  // Returns the row of an operation of the same name on the same lane that ends so much later.
  std::optional<std::uint32_t> twin_of(std::uint32_t row, Picoseconds later) const;

  struct Place {
    std::uint32_t program = 0, op = 0;  // BoundProgram::ops
  };
  Place place_of(std::uint32_t row) const;

  // Explains a time. Returns false where the rows do not say what it follows from.
  bool explain(TimeId time, Explanation& result) const;

 private:
  struct Cause {
    TimeId time = 0;
    std::int32_t steps_ago = 0;
    Picoseconds at = -1;
  };
  struct Segment {
    Picoseconds begin = 0;
    std::uint32_t ended_by = 0;  // the row for which the host waited before
    bool waited = false;         // that ended later than the host came to it
  };
  // A computation, or the movement of a communication. Times count from one origin in all steps.
  struct Activity {
    Picoseconds begin = 0, end = 0;
    std::uint32_t row = 0;
    std::int32_t steps_ago = 0;
  };
  // A moment at which another activity begins to slow one, or no longer does.
  struct Breakpoint {
    Picoseconds at = 0;
    Cause cause;
    Activity by;
    bool begins = false;
    double stretch = 0;  // by which the time of the work is longer
    DemandClass cls = DemandClass::memory;
  };

  std::uint32_t row_at(std::uint32_t program, LaneId lane, std::uint32_t position) const {
    return row_begin_[program] + inputs_.programs[program].lanes[lane][position];
  }
  const TimelineRow& row(std::uint32_t number) const { return timeline_.rows[number]; }
  const FlatOp& flat_of(std::uint32_t row) const;
  OpId op_of(std::uint32_t row) const;
  std::uint32_t first_of_group(std::uint32_t row) const;
  bool is_receive(std::uint32_t row) const { return flat_of(row).kind == FlatKind::receive; }
  bool is_near(Picoseconds a, Picoseconds b) const { return std::abs(a - b) <= tolerance_; }
  std::string refusal() const;

  void join_members();
  void find_segments();
  void find_activities();
  Picoseconds moved_by(std::uint32_t row, Picoseconds from, const std::vector<Activity>& computes) const;
  void add_neighbours(std::vector<Activity>& activities) const;
  std::vector<Breakpoint> breakpoints_of(std::uint32_t row, Picoseconds begin, Picoseconds end) const;

  std::optional<Cause> cause_of_ready(std::uint32_t row) const;
  std::optional<Cause> cause_of_start(std::uint32_t row) const;
  std::optional<Cause> cause_of_meeting(std::uint32_t row) const;
  std::optional<Cause> cause_of_complete(std::uint32_t row) const;
  Cause cause_of_moving(std::uint32_t row) const;
  Cause cause_of_segment(std::uint32_t program, std::uint32_t number) const;
  void explain_work(std::uint32_t row, Explanation& result) const;

  const SimInputs& inputs_;
  const Timeline& timeline_;
  Picoseconds period_ = 0, tolerance_ = 0;
  std::string why_not_;
  std::uint32_t last_ = 0;
  std::vector<std::uint32_t> row_begin_;            // [program], with one more
  std::vector<std::uint32_t> segment_begin_;        // [program] TimeId of its first segment, with one more
  std::vector<std::vector<Segment>> segments_;      // [program]
  std::vector<std::vector<std::uint32_t>> groups_;  // rows of a collective's members, or of a send and its receive
  std::vector<std::uint32_t> group_;                // [row] → groups_, or kAlone
  std::vector<Picoseconds> moved_;                  // [row]
  // [program] by their begin, with those of the steps before and after that reach into this one
  std::vector<std::vector<Activity>> computes_, kernels_;
  Picoseconds longest_kernel_ = 0;
  static constexpr std::uint32_t kAlone = ~std::uint32_t{0};
};

}  // namespace stretto::sim
