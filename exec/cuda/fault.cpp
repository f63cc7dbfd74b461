#include "exec/cuda/fault.hpp"

#include <type_traits>
#include <variant>

#include "exec/expert_errors.hpp"

namespace stretto::cuda {
namespace {

// The end of the numbers that a work's tensors may hold, or the room that it has.
struct Limits {
  std::int64_t experts = 0, each = 0, rows = 0;
};

Limits limits_of(const Work& work) {
  return std::visit(
      [](const auto& one) {
        Limits limits;
        if constexpr (requires { one.experts; }) limits.experts = one.experts;
        if constexpr (requires { one.each; }) limits.each = one.each;
        if constexpr (requires { one.capacity; }) limits.rows = one.capacity;
        if constexpr (requires { one.matrix_rows(); }) limits.rows = one.matrix_rows();
        return limits;
      },
      work);
}

}  // namespace

std::string text_of(const Fault& fault, const Work& work) {
  const Limits limits = limits_of(work);
  switch (fault.kind) {
    case Fault::Kind::index:
      return exec::number_outside("index", fault.value, limits.experts);
    case Fault::Kind::offset:
      return exec::number_outside("offset", fault.value, limits.rows + 1);
    case Fault::Kind::position:
      return exec::number_outside("position", fault.value, limits.rows);
    case Fault::Kind::rows_of_expert:
      return exec::no_room_at_expert(fault.at, fault.value, limits.each);
    case Fault::Kind::rows_of_rank:
      return exec::no_room_at_rank("this rank", fault.value, limits.rows);
    case Fault::Kind::none:
      break;
  }
  return "";
}

}  // namespace stretto::cuda
