// Reduce-scatter after a GEMM as direct sends of partial results (TransformerEngine's split reduce-scatter over P2P).
//
// Piece i of rank r is rows j(i) = (r + 1 + i) mod n, its own last.
// Nodes:   G_i = GEMM of rows j(i);  send_i = rows j(i) to their owner, r + 1 + i;  recv_i from r − 1 − i;
//          i = 0 … n − 2
//          reduce = the sum of all n partial results of the own rows, in rank order as a reduce-scatter sums them
// Edges:   G_i → send_i;  recv_*, G_{n−1} → reduce
// Time:    n · Tg + (n − 1) · max(0, Tc − Tg) + T_reduce.   Exposed: all but the GEMMs.
#include "model/lower/builder.hpp"
#include "model/overlap/tp_split.hpp"

namespace stretto {

void split_scatter(BlockEditor& block, const SplitContext& context, const std::string& gemm_name,
                   const std::string& scatter_name) {
  const Operation whole = block.operation(gemm_name), scatter = block.operation(scatter_name);
  const View in = whole.accesses[0].view, partial = scatter.accesses[0].view, own = scatter.accesses[1].view;
  Gemm work = std::get<Gemm>(whole.work);
  work.m = own.rows;
  const std::int64_t size = own.rows * own.cols;
  // Partial sum of this rank's rows, made by rank `from`.
  const auto made_by = [&](const Expr& from) {
    return View{context.partials, 0, 0, from * Expr(size), own.rows, own.cols, own.cols};
  };
  std::vector<Operation> pieces;
  for (std::int64_t i = 0; i < context.n; ++i) {
    const bool is_own = i + 1 == context.n;
    const Expr rows = mod(Expr(Coord::tp) + Expr(1 + i), Expr(context.n));
    const View out = is_own ? made_by(Coord::tp) : rows_of(partial, rows, own.rows);
    const std::string number = std::to_string(i);
    if (!is_own)
      pieces.push_back(context.message(whole, ".recv" + number, false, Expr(-1 - i),
                                       made_by(mod(Expr(Coord::tp) - Expr(1 + i), Expr(context.n)))));
    pieces.push_back(context.gemm(whole, static_cast<std::size_t>(i), work, rows_of(in, rows, own.rows),
                                  whole.accesses[1].view, out));
    if (!is_own) pieces.push_back(context.message(whole, ".send" + number, true, Expr(1 + i), out));
  }
  const View all{context.partials, 0, 0, 0, context.n, size, size};
  pieces.push_back({whole.name + ".reduce",
                    LocalReduce{context.n, size},
                    context.compute.front(),
                    whole.phase,
                    {read(all), write(own)}});
  block.remove(scatter_name);
  block.replace(gemm_name, std::move(pieces));
}

}  // namespace stretto
