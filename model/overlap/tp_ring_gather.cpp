// All-gather before a GEMM as a ring exchange (TransformerEngine's split all-gather; Flash-AG of arXiv 2604.24013,
// where each rank's rows may be m slices).
//
// Piece i of rank r is rows j(i) = (r − i) mod n, its own first; with m slices, slice i mod m of rows j(⌊i/m⌋).
// Nodes:   G_i = GEMM on piece i;  send_i = piece i to r + 1;  recv_i = piece i + m from r − 1;  i = 0 … m(n − 1) − 1
// Edges:   recv_i → G_{i+m},  recv_i → send_{i+m}
// Time:    Tg + (n − 1) · max(Tg, Tc).   Exposed: (n − 1) · max(0, Tc − Tg).
//          m slices, Tg and Tc of one: max(m·n · Tg, m(n − 1) · Tg + Tc, Tg + m(n − 1) · Tc). A first message overlaps
//          with m GEMMs.
//
// Aggregate: neighbours exchange their rows first, exposed; then n/2 pieces of twice the rows go round by two.
// Time:    Tc + 2 · Tg + (n/2 − 1) · max(2 · Tg, 2 · Tc).
#include "model/lower/builder.hpp"
#include "model/overlap/tp_split.hpp"

namespace stretto {
namespace {

Operation copy_of(const Operation& like, const SplitContext& context, const View& from, const View& to) {
  return {
      like.name + ".copy", Cast{from.rows * from.cols}, context.compute.front(), like.phase, {read(from), write(to)}};
}

}  // namespace

void split_gather(BlockEditor& block, const SplitContext& context, const std::string& gather_name,
                  const std::string& gemm_name, bool keeps_whole, std::int64_t slices) {
  const Operation gather = block.operation(gather_name), whole = block.operation(gemm_name);
  const View own = gather.accesses[0].view, all = gather.accesses[1].view;
  const View result = whole.accesses.back().view;
  Gemm work = std::get<Gemm>(whole.work);
  work.m = own.rows / slices;
  std::vector<Operation> pieces;
  const auto piece = [&](const View& view, std::int64_t i) {
    const Expr rank = mod(Expr(Coord::tp) - Expr(i / slices), Expr(context.tp.size));
    return rows_of(view, slice_of(rank, slices, i % slices), work.m);
  };
  const std::int64_t count = slices * context.tp.size, messages = count - slices;
  for (std::int64_t i = 0; i < count; ++i) {
    const View in = i < slices ? rows_of(own, i, work.m) : piece(all, i);
    if (i < messages) {
      const std::string number = std::to_string(i);
      pieces.push_back(context.message(whole, ".send" + number, true, 1, in));
      pieces.push_back(context.message(whole, ".recv" + number, false, -1, piece(all, i + slices)));
    }
    pieces.push_back(
        context.gemm(whole, static_cast<std::size_t>(i), work, in, whole.accesses[1].view, piece(result, i)));
  }
  if (keeps_whole) pieces.push_back(copy_of(whole, context, own, rows_of(all, Coord::tp, own.rows)));
  block.remove(gather_name);
  block.replace(gemm_name, std::move(pieces));
}

void split_gather_aggregate(BlockEditor& block, const SplitContext& context, const std::string& gather_name,
                            const std::string& gemm_name) {
  const Operation gather = block.operation(gather_name), whole = block.operation(gemm_name);
  const View own = gather.accesses[0].view, all = gather.accesses[1].view;
  const View result = whole.accesses.back().view;
  Gemm work = std::get<Gemm>(whole.work);
  work.m = 2 * own.rows;
  const Expr self = Coord::tp, odd = mod(self, Expr(2)), to_neighbour = Expr(1) - Expr(2) * odd;
  // Returns the first rows of the i-th pair; counted in single ranks' rows.
  const auto pair = [&](const View& view, std::int64_t i) {
    View two = rows_of(view, mod(self - odd - Expr(2 * i), Expr(context.tp.size)), own.rows);
    two.rows = 2 * own.rows;
    return two;
  };
  std::vector<Operation> pieces = {
      context.message(whole, ".send_neighbour", true, to_neighbour, own),
      context.message(whole, ".recv_neighbour", false, to_neighbour, rows_of(all, self + to_neighbour, own.rows)),
      copy_of(whole, context, own, rows_of(all, self, own.rows))};
  for (std::int64_t i = 0; i < context.tp.size / 2; ++i) {
    if (i + 1 < context.tp.size / 2) {
      const std::string number = std::to_string(i);
      pieces.push_back(context.message(whole, ".send" + number, true, 2, pair(all, i)));
      pieces.push_back(context.message(whole, ".recv" + number, false, -2, pair(all, i + 1)));
    }
    pieces.push_back(
        context.gemm(whole, static_cast<std::size_t>(i), work, pair(all, i), whole.accesses[1].view, pair(result, i)));
  }
  block.remove(gather_name);
  block.replace(gemm_name, std::move(pieces));
}

}  // namespace stretto
