// Reduce-scatter after a GEMM as a ring that adds up on the way (Flash-RS of arXiv 2604.24013).
//
// Piece i of rank r is rows j(i) = (r − 1 − i) mod n, its own last, so that the partial sum that arrives from r − 1
// while piece i is computed belongs to this rank's piece i + 1. With m slices of each rank's rows: slice i mod m of
// rows j(⌊i/m⌋). Nodes:   G_i = GEMM of piece i, giving P_i;  A_i = P_i for i < m, else P_i + recv_{i−m}, an operation
// on a lane of
//          its own;  send_i = A_i to r + 1;  recv_i from r − 1;  i = 0 … m(n − 1) − 1.  Result: the last m of A.
// Edges:   G_i → A_i,  recv_{i−m} → A_i,  A_i → send_i
//          No GEMM waits for a message. If the sum were G_i's beta, G_i would wait for recv_{i−m}, and that for the
//          neighbour's G_{i−m}, and nothing would overlap: n · Tg + (n − 1) · Tc.
// Time:    Tg, Tc, Ta of a GEMM, a message, an addition of one slice.
//          m = 1:  max(n · Tg + Ta,  2 · Tg + Ta + (n − 2)(Tc + Ta),  Tg + (n − 1)(Tc + Ta)): the first where Tc + Ta
//          ≤ Tg, the last where Tc ≥ Tg.
//          m > 1, Ta ≤ Tg and Ta ≤ Tc:  max(m·n · Tg + Ta,  Tg + m(n − 1) · Tc + Ta,  for n > 2 also
//          (m + 1) · Tg + 2 · Ta + m(n − 2) · Tc): messages follow one another without waiting for additions.
//          Exposed: this time without m·n · Tg; at least Ta, the tail.
// Numbers: partial sums are rounded to the compute type n − 1 times, starting after the owner, as in a ring of NCCL.
#include "model/lower/builder.hpp"
#include "model/overlap/tp_split.hpp"

namespace stretto {

void flash_scatter(BlockEditor& block, const SplitContext& context, const std::string& gemm_name,
                   const std::string& scatter_name, std::int64_t slices) {
  const Operation whole = block.operation(gemm_name), scatter = block.operation(scatter_name);
  const View in = whole.accesses[0].view, partial = scatter.accesses[0].view, own = scatter.accesses[1].view;
  Gemm work = std::get<Gemm>(whole.work);
  work.m = own.rows / slices;
  const std::int64_t count = slices * context.tp.size, messages = count - slices, size = work.m * own.cols;
  const auto rows = [&](std::int64_t i) {
    return slice_of(mod(Expr(Coord::tp) - Expr(1 + i / slices), Expr(context.tp.size)), slices, i % slices);
  };
  const auto sum = [&](std::int64_t i) {  // P_i, which becomes A_i
    return i < messages ? rows_of(partial, rows(i), work.m) : rows_of(own, i - messages, work.m);
  };
  const auto came = [&](std::int64_t i) { return View{context.partials, 0, 0, i * size, work.m, own.cols, own.cols}; };
  std::vector<Operation> pieces;
  // The issue order for lanes that share a hardware queue, where an operation waits until all earlier issued ones have
  // started. One GEMM is issued ahead of the previous addition and send. A receive, which follows the previous receive
  // on its lane, is issued after the send that ends the previous receive on the next rank.
  for (std::int64_t i = 0; i <= count; ++i) {
    if (i < count)
      pieces.push_back(context.gemm(whole, static_cast<std::size_t>(i), work, rows_of(in, rows(i), work.m),
                                    whole.accesses[1].view, sum(i)));
    const std::int64_t last = i - 1;
    if (last >= slices)
      pieces.push_back({whole.name + ".add" + std::to_string(last - slices),
                        Elementwise{ElementwiseFn::accumulate, work.m, own.cols},
                        context.add,
                        whole.phase,
                        {read(came(last - slices)), accumulate(sum(last))}});
    if (last >= 0 && last < messages)
      pieces.push_back(context.message(whole, ".send" + std::to_string(last), true, 1, sum(last)));
    if (i < messages) pieces.push_back(context.message(whole, ".recv" + std::to_string(i), false, -1, came(i)));
  }
  block.remove(scatter_name);
  block.replace(gemm_name, std::move(pieces));
}

}  // namespace stretto
