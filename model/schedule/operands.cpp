#include "model/schedule/operands.hpp"

#include <variant>

namespace stretto {

OperandList operands_of(const Work& work, std::int64_t group_size) {
  return std::visit(
      [&]<class W>(const W& w) {
        if constexpr (std::is_same_v<W, Collective> || std::is_same_v<W, PointToPoint>)
          return operands(w, group_size);
        else
          return operands(w);
      },
      work);
}

bool may_be_in_place(const Work& work) {
  return std::holds_alternative<Elementwise>(work) || std::holds_alternative<Dropout>(work) ||
         std::holds_alternative<LayerNorm>(work) || std::holds_alternative<RmsNorm>(work) ||
         std::holds_alternative<Softmax>(work) || std::holds_alternative<Collective>(work);
}

}  // namespace stretto
