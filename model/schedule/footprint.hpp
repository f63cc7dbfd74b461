#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/schedule/bind.hpp"

namespace stretto {

// The bytes that the operations of a bound program access. Views depend on few of a call's coordinates, so most calls
// access the same bytes as an earlier call of their block. Such operations share a footprint, which is resolved once. A
// view of a tensor in one input storage that is never written may be resolved to any of the tensor's instances, because
// nothing conflicts with it. `schedule` and `program` must outlive this object. Not thread-safe: views() resolves
// lazily.
class Footprints {
 public:
  // Throws as resolve() does, for views that share a footprint with an earlier view of another instance.
  Footprints(const Schedule& schedule, const BoundProgram& program);

  std::uint32_t count() const { return static_cast<std::uint32_t>(first_op_.size()); }
  // Returns the footprint of an operation (index into BoundProgram::ops). Footprints are numbered in the order of first
  // use.
  std::uint32_t of(std::uint32_t op) const { return of_[op]; }
  // Returns the first operation that has the footprint; a template has equal accesses wherever it is called.
  std::uint32_t first_op(std::uint32_t footprint) const { return first_op_[footprint]; }
  // Returns the views, [access], resolved on the first call. Throws as resolve() does for the footprint's first
  // operation.
  std::span<const BoundView> views(std::uint32_t footprint) {
    if (!is_resolved_[footprint]) resolve_views(footprint);
    return std::span(views_).subspan(view_begin_[footprint], view_begin_[footprint + 1] - view_begin_[footprint]);
  }

 private:
  friend std::vector<Footprints> footprints_of(const Schedule& schedule, std::span<const BoundProgram> programs);
  // `is_only_read`: [tensor], the schedule's.
  Footprints(const Schedule& schedule, const BoundProgram& program, const std::vector<bool>& is_only_read);
  void resolve_views(std::uint32_t footprint);

  const Schedule& schedule_;
  const BoundProgram& program_;
  std::vector<std::uint32_t> of_;          // [op]
  std::vector<std::uint32_t> first_op_;    // [footprint]
  std::vector<std::uint32_t> view_begin_;  // [footprint], with one more entry at the end
  std::vector<BoundView> views_;
  std::vector<bool> is_resolved_;  // [footprint]
};

// Returns the footprints of each program.
std::vector<Footprints> footprints_of(const Schedule& schedule, std::span<const BoundProgram> programs);

}  // namespace stretto
