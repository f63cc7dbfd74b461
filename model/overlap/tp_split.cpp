#include "model/overlap/tp_split.hpp"

#include <cassert>
#include <utility>

#include "model/lower/builder.hpp"

namespace stretto {

Operation SplitContext::message(const Operation& like, const std::string& suffix, bool is_send, const Expr& offset,
                                View view) const {
  const PointToPoint work{is_send, ring_communicator, offset, view.rows * view.cols};
  return {like.name + suffix, work, is_send ? send : recv, like.phase, {is_send ? read(view) : write(view)}};
}

Operation SplitContext::gemm(const Operation& whole, std::size_t piece, Gemm work, View a, View b, View c) const {
  Operation part = whole;
  part.name += "." + std::to_string(piece);
  part.work = work;
  part.lane = compute[piece % compute.size()];
  part.accesses[0].view = std::move(a);
  part.accesses[1].view = std::move(b);
  assert(!work.sums_columns() && "all pieces would add to the sums");
  if (work.epilogue != GemmEpilogue::none) {  // the epilogue's operand is cut like the result
    View& x = part.accesses[work.x_index()].view;
    const View& all = whole.accesses[work.c_index()].view;
    assert(x.ld == all.ld && "X is stored as C is");
    x.offset = x.offset + (c.offset - all.offset);
    x.rows = c.rows;
    x.cols = c.cols;
  }
  part.accesses[work.c_index()].view = std::move(c);
  return part;
}

View rows_of(const View& whole, const Expr& chunk, std::int64_t rows) {
  View part = whole;
  part.offset = whole.offset + chunk * Expr(rows * whole.ld);
  part.rows = rows;
  return part;
}

Expr slice_of(const Expr& rank, std::int64_t slices, std::int64_t slice) {
  return slices == 1 ? rank : rank * Expr(slices) + Expr(slice);
}

}  // namespace stretto
