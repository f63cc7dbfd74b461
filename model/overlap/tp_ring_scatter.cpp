// Reduce-scatter after a GEMM as direct sends of partial results (TransformerEngine's split reduce-scatter over P2P;
// Flash-RS of arXiv 2604.24013 with the sum at the owner, where each rank's rows may be m slices).
//
// Piece i of rank r is rows j(i) = (r + 1 + i) mod n, its own last; with m slices, slice i mod m of rows j(⌊i/m⌋).
// Nodes:   G_i = GEMM of piece i;  send_i = piece i to its owner, r + 1 + ⌊i/m⌋;  recv_i from r − 1 − ⌊i/m⌋;
//          i = 0 … m(n − 1) − 1
//          reduce = the sum of all n partial results of the own rows, in rank order as a reduce-scatter sums them
// Edges:   G_i → send_i;  recv_*, all G of own rows → reduce
// Time:    n · Tg + (n − 1) · max(0, Tc − Tg) + T_reduce.   Exposed: all but the GEMMs.
//          m slices, Tg and Tc of one: max(m·n · Tg, m(n − 1) · Tg + Tc, Tg + m(n − 1) · Tc) + T_reduce.
#include "model/lower/builder.hpp"
#include "model/overlap/tp_split.hpp"

namespace stretto {

void split_scatter(BlockEditor& block, const SplitContext& context, const std::string& gemm_name,
                   const std::string& scatter_name, std::int64_t slices) {
  const Operation whole = block.operation(gemm_name), scatter = block.operation(scatter_name);
  const View in = whole.accesses[0].view, partial = scatter.accesses[0].view, own = scatter.accesses[1].view;
  Gemm work = std::get<Gemm>(whole.work);
  work.m = own.rows / slices;
  const std::int64_t size = own.rows * own.cols;
  // The partial sum of a slice of this rank's rows, made by rank `from`.
  const auto made_by = [&](const Expr& from, std::int64_t slice) {
    const Expr begin = slice_of(from, slices, slice) * Expr(work.m * own.cols);
    return View{context.partials, 0, 0, begin, work.m, own.cols, own.cols};
  };
  std::vector<Operation> pieces;
  for (std::int64_t i = 0; i < slices * context.tp.size; ++i) {
    const std::int64_t turn = i / slices, slice = i % slices;
    const bool is_own = turn + 1 == context.tp.size;
    const Expr rows = slice_of(mod(Expr(Coord::tp) + Expr(1 + turn), Expr(context.tp.size)), slices, slice);
    const View out = is_own ? made_by(Coord::tp, slice) : rows_of(partial, rows, work.m);
    const std::string number = std::to_string(i);
    if (!is_own)
      pieces.push_back(context.message(whole, ".recv" + number, false, Expr(-1 - turn),
                                       made_by(mod(Expr(Coord::tp) - Expr(1 + turn), Expr(context.tp.size)), slice)));
    pieces.push_back(
        context.gemm(whole, static_cast<std::size_t>(i), work, rows_of(in, rows, work.m), whole.accesses[1].view, out));
    if (!is_own) pieces.push_back(context.message(whole, ".send" + number, true, Expr(1 + turn), out));
  }
  const View all{context.partials, 0, 0, 0, context.tp.size, size, size};
  pieces.push_back({whole.name + ".reduce",
                    LocalReduce{context.tp.size, size},
                    context.compute.front(),
                    whole.phase,
                    {read(all), write(own)}});
  block.remove(scatter_name);
  block.replace(gemm_name, std::move(pieces));
}

}  // namespace stretto
