#include "sim/cost/features.hpp"

#include <algorithm>

#include "base/overloaded.hpp"

namespace stretto::sim {
namespace {

std::vector<double> streaming(std::int64_t elements) {
  const double n = double(elements);
  return {1, n, std::max(0.0, n - kPrivateElements), std::max(0.0, n - kSharedElements)};
}
std::vector<double> row_wise(std::int64_t rows, std::int64_t cols) {
  return {1, double(rows), double(rows) * double(cols)};
}

const char* suffix(Pass pass) { return pass == Pass::forward ? "_forward" : pass == Pass::dgrad ? "_dgrad" : "_wgrad"; }

}  // namespace

WorkCost work_cost(const Schedule& schedule, const Operation& operation) {
  WorkCost cost = std::visit(
      Overloaded{
          [&](const Gemm& g) -> WorkCost {
            const double m = double(g.m), n = double(g.n), k = double(g.k);
            std::string key = std::string("gemm_") + (g.trans_a ? 't' : 'n') + (g.trans_b ? 't' : 'n');
            if (g.bias) key += "_bias";
            if (operation.accesses.back().mode == AccessMode::accumulate) key += "_acc";
            return {key, {1, m * n * k, m * k, k * n, m * n}, DemandClass::gemm};
          },
          [&](const Attention& a) -> WorkCost {
            const double bh = double(a.batch) * double(a.heads), s = double(a.seq), d = double(a.head_dim);
            return {std::string("attention") + (a.dropout > 0 ? "_dropout" : "") + suffix(a.pass),
                    {bh, bh * s * d, bh * s * s, bh * s * s * d},
                    DemandClass::attention};
          },
          [&](const Rope& r) -> WorkCost {
            const double rows = double(r.rows), d = double(r.head_dim);
            return {std::string("rope") + suffix(r.pass),
                    {1, double(r.seq) * d, rows * double(r.heads + r.kv_heads) * d}};
          },
          [&](const LayerNorm& n) -> WorkCost {
            std::string key = std::string("layernorm") + suffix(n.pass);
            if (n.pass == Pass::dgrad && operation.accesses.back().mode == AccessMode::accumulate) key += "_acc";
            return {key, row_wise(n.rows, n.cols)};
          },
          [&](const RmsNorm& n) -> WorkCost {
            std::string key = std::string("rmsnorm") + suffix(n.pass);
            if (n.pass == Pass::dgrad && operation.accesses.back().mode == AccessMode::accumulate) key += "_acc";
            return {key, row_wise(n.rows, n.cols)};
          },
          [&](const Elementwise& e) -> WorkCost {
            return {kind_of(e), streaming(e.rows * e.cols)};
          },
          [&](const Dropout& d) -> WorkCost {
            return {std::string("dropout") + suffix(d.pass), streaming(d.rows * d.cols)};
          },
          [&](const Embedding& e) -> WorkCost {
            const std::string key = e.positions ? "embedding" : "token_embedding";
            return {key + suffix(e.pass), row_wise(e.rows, e.cols)};
          },
          [&](const CrossEntropy& c) -> WorkCost {
            return {"cross_entropy", row_wise(c.rows, c.cols)};
          },
          [&](const VocabStats& v) -> WorkCost {
            return {"vocab_stats", row_wise(v.rows, v.cols)};
          },
          [&](const Fill& f) -> WorkCost {
            return {"fill", streaming(f.elements), DemandClass::memory};
          },
          [&](const Cast& c) -> WorkCost {
            const auto dtype_of = [&](std::size_t operand) {
              const Tensor& tensor = schedule.tensors[operation.accesses[operand].view.tensor];
              return schedule.storages[tensor.places.front().storage].dtype;
            };
            return {dtype_of(0) == dtype_of(1) ? "copy" : "cast", streaming(c.elements), DemandClass::memory};
          },
          [&](const LocalReduce& r) -> WorkCost {
            return {"local_reduce", {1, double(r.parts + 1) * double(r.elements)}};
          },
          [&](const SumSquares& s) -> WorkCost {
            return {"sum_squares", streaming(s.elements), DemandClass::memory};
          },
          [&](const AdamW& a) -> WorkCost {
            return {"adamw", streaming(a.elements), DemandClass::memory};
          },
          [&](const Collective&) -> WorkCost { return {}; },
          [&](const PointToPoint&) -> WorkCost { return {}; },
      },
      operation.work);
  cost.key += std::string("_") + std::string(name_of(schedule.compute_dtype));
  return cost;
}

WorkCost movement_cost(const Collective& collective, Dtype dtype, std::int64_t members, bool in_place) {
  // A reduce-scatter reads its slice of every member's buffer, an all-gather copies every other member's slice; each
  // phase of an all-reduce does one of them.
  const double slice = double(collective.elements) / double(members);
  const bool gathers = collective.kind == CollectiveKind::all_gather;
  const double touched = slice * double(gathers ? 2 * (in_place ? members - 1 : members) : members + 1);
  return {std::string("move_") + kind_of(collective) + "_" + std::string(name_of(dtype)),
          {1, touched},
          DemandClass::memory};
}

WorkCost movement_cost(const PointToPoint& message, Dtype dtype) {
  // The copy of an all-gather: one slice read, one written.
  return {"move_all_gather_" + std::string(name_of(dtype)), {1, 2 * double(message.elements)}, DemandClass::memory};
}

}  // namespace stretto::sim
