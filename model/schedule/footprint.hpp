#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/schedule/bind.hpp"

namespace stretto {

// Where the accesses of a bound program lie. Views name few of the coordinates of a call, so that most calls touch what
// an earlier call of their block has touched. Operations that do share a footprint, and it is resolved once. A view of a
// tensor that lies in one input storage and is never written may be of any of its instances: nothing can conflict with
// it. `schedule` and `program` must outlive this.
class Footprints {
 public:
  // Throws as resolve() does of views that an earlier one of another instance stands for.
  Footprints(const Schedule& schedule, const BoundProgram& program);

  std::uint32_t count() const { return static_cast<std::uint32_t>(first_op_.size()); }
  // The footprint of an operation (index into BoundProgram::ops); in order of first use.
  std::uint32_t of(std::uint32_t op) const { return of_[op]; }
  // The first operation that has it; a template has the same accesses wherever it is called.
  std::uint32_t first_op(std::uint32_t footprint) const { return first_op_[footprint]; }
  // [access], resolved when first asked for. Throws as resolve() does of the first operation that has the footprint.
  std::span<const BoundView> views(std::uint32_t footprint);

 private:
  const Schedule& schedule_;
  const BoundProgram& program_;
  std::vector<std::uint32_t> of_;          // [op]
  std::vector<std::uint32_t> first_op_;    // [footprint]
  std::vector<std::uint32_t> view_begin_;  // [footprint], one more at the end
  std::vector<BoundView> views_;
  std::vector<bool> is_resolved_;  // [footprint]
};

// Of every program.
std::vector<Footprints> footprints_of(const Schedule& schedule, std::span<const BoundProgram> programs);

}  // namespace stretto
