#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "exec/state/model_state.hpp"
#include "exec/state/tensor_parts.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::exec {

// The elements of one learnable array, parameters or a part of the optimizer's state, that the ranks of this process
// have, or the subset of them that they save. It refers to the schedule.
class StatePortion {
 public:
  enum class Of : std::uint8_t {
    // elements that any rank of this process holds a copy of
    held,
    // Elements that a rank of this process updates, and saves: where several ranks of the schedule update the same
    // elements, whose values are then equal, they take turns from array to array. The saved portions of all ranks are
    // the array, each element once.
    saved,
  };
  // `first` is the array's first piece in the state map.
  StatePortion(const Schedule& schedule, const MemoryOf& memory_of, std::size_t first, StatePart part, Of of);

  std::span<const Stretch> stretches() const { return stretches_; }
  std::int64_t elements() const { return elements_; }
  // Copy the portion's elements, stretch after stretch. Parameters are exact: they are read where the optimizer updates
  // them, and written there too. `gather` is for elements that are saved.
  void gather(std::span<double> values) const;
  void scatter(std::span<const double> values) const;

 private:
  struct Run {
    host::RankMemory* memory;
    StateRun run;
  };
  std::int64_t place_of(std::int64_t element) const;

  const Schedule& schedule_;
  std::vector<Run> runs_;
  std::vector<Stretch> stretches_;
  std::vector<std::int64_t> places_;  // [stretch] its begin in the portion
  std::int64_t elements_ = 0;
};

// Returns the first pieces of all learnable arrays, in the model's order.
std::vector<std::size_t> arrays_of(const StateMap& state);
// Returns the name of an array's part in files: StateMap::full_name() after prefix_in_files().
std::string name_in_files(const StateMap& state, std::size_t first, StatePart part);

}  // namespace stretto::exec
