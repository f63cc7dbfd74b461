// Reduce-scatter after a GEMM in pieces (TransformerEngine's pipelined reduce-scatter): the columns of the result are
// cut, and each piece is scattered while the next is computed.
//
// Nodes:   G_k = GEMM of columns k;  RS_k = their reduce-scatter;  copy_k = own rows into their columns;
//          k = 0 … S − 1
// Edges:   G_k → RS_k → copy_k;  RS in order on the tp lane; all copies after G_{S−1}
// Time:    S · Tg + Tc + (S − 1) · max(0, Tc − Tg), and the copies.   Exposed: at least the last piece, the tail.
#include "model/lower/builder.hpp"
#include "model/overlap/tp_split.hpp"

namespace stretto {

void pipeline_scatter(BlockEditor& block, SplitContext& context, const std::string& gemm_name,
                      const std::string& scatter_name, std::int64_t num_splits) {
  Schedule& schedule = context.schedule;
  const Operation whole = block.operation(gemm_name), scatter = block.operation(scatter_name);
  const View own = scatter.accesses[1].view, weight = whole.accesses[1].view;
  Gemm work = std::get<Gemm>(whole.work);
  const std::int64_t cols = own.cols / num_splits;
  work.n = cols;
  const auto buffer = [&](const std::string& name, std::int64_t rows) {
    const std::string full = name + "." + std::to_string(num_splits);
    if (const auto found = schedule.find_tensor(full)) return *found;
    return add_tensor(schedule, full, schedule.compute_dtype, BufferKind::workspace, num_splits, rows * cols);
  };
  const TensorId results = buffer("tp.split_results", work.m), parts = buffer("tp.split_parts", own.rows);
  const auto piece_of = [&](TensorId tensor, std::int64_t k, std::int64_t rows) {
    return View{tensor, 0, 0, k * rows * cols, rows, cols, cols};
  };
  std::vector<Operation> pieces, copies;
  for (std::int64_t k = 0; k < num_splits; ++k) {
    View columns = weight;  // stored [n, k] where it is transposed, else [k, n]; codes have their scales there
    std::int64_t& cut = work.trans_b ? columns.rows : columns.cols;
    cut /= num_splits;
    columns.offset = weight.offset + Expr(k * cut * (work.trans_b ? weight.ld : 1));
    const View result = piece_of(results, k, work.m), part = piece_of(parts, k, own.rows);
    View to = own;
    to.cols = cols;
    to.offset = own.offset + Expr(k * cols);
    const std::string number = std::to_string(k);
    pieces.push_back(context.gemm(whole, static_cast<std::size_t>(k), work, whole.accesses[0].view, columns, result));
    pieces.push_back({scatter.name + "." + number,
                      Collective{CollectiveKind::reduce_scatter, context.tp.communicator, result.rows * result.cols},
                      context.tp.lane,
                      scatter.phase,
                      {read(result), write(part)}});
    copies.push_back({whole.name + ".copy" + number,
                      Cast{part.rows * part.cols},
                      context.compute.front(),
                      whole.phase,
                      {read(part), write(to)}});
  }
  pieces.insert(pieces.end(), copies.begin(), copies.end());
  block.remove(scatter_name);
  block.replace(gemm_name, std::move(pieces));
}

}  // namespace stretto
