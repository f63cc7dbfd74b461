#pragma once
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "exec/host/kernels/kernels.hpp"
#include "model/graph/fit.hpp"
#include "model/layers/layers.hpp"
#include "model/passes/check.hpp"
#include "model/passes/passes.hpp"

// Runs the graphs of a layer on numbers, in f64, on one or more ranks that are all in this process. Values that are not
// kept are NaN before the next pass begins, and a buffer that is overwritten too early gives a wrong number, because
// buffers are by the names of their tensors.
namespace stretto::layer_graphs {

struct Matrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> of = {};
  std::vector<std::int32_t> integers = {};
  double& at(std::int64_t row, std::int64_t col) { return of[static_cast<std::size_t>(row * cols + col)]; }
  double at(std::int64_t row, std::int64_t col) const { return of[static_cast<std::size_t>(row * cols + col)]; }
};
inline Matrix zeros(std::int64_t rows, std::int64_t cols) {
  return {rows, cols, std::vector<double>(static_cast<std::size_t>(rows * cols)), {}};
}
using Matrices = std::map<std::string, Matrix>;

// Rows [begin, end) and columns likewise, of parts that a rank has of each segment.
inline std::vector<std::int64_t> part_of(std::int64_t size, std::vector<std::int64_t> segments, std::int64_t rank,
                                         std::int64_t ranks) {
  if (segments.empty()) segments = {size};
  std::vector<std::int64_t> indices;
  std::int64_t first = 0;
  for (const std::int64_t segment : segments) {
    for (std::int64_t i = 0; i < segment / ranks; ++i) indices.push_back(first + rank * (segment / ranks) + i);
    first += segment;
  }
  return indices;
}
inline std::vector<std::int64_t> all_of(std::int64_t size) { return part_of(size, {}, 0, 1); }

inline Matrix picked(const Matrix& of, const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& cols) {
  Matrix part = zeros(std::ssize(rows), std::ssize(cols));
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::size_t c = 0; c < cols.size(); ++c)
      part.at(static_cast<std::int64_t>(r), static_cast<std::int64_t>(c)) = of.at(rows[r], cols[c]);
  return part;
}
inline Matrix cut(const Parameter& parameter, const Matrix& whole, const Layout& layout, std::int64_t rank) {
  const std::int64_t ranks = layout.tp;
  if (parameter.experts > 0 && layout.experts.local < parameter.experts)
    return picked(whole, part_of(whole.rows, {}, rank, ranks), all_of(whole.cols));
  if (parameter.experts > 0 && layout.experts.width_ranks == 1) return whole;
  const bool is_vector = parameter.rows == 1;
  const bool cuts_rows = parameter.shard == Shard::rows && !is_vector;
  const bool cuts_cols = parameter.shard == Shard::columns || (parameter.shard == Shard::rows && is_vector);
  return picked(whole, cuts_rows ? part_of(whole.rows, parameter.segments, rank, ranks) : all_of(whole.rows),
                cuts_cols ? part_of(whole.cols, parameter.segments, rank, ranks) : all_of(whole.cols));
}

inline double difference(const Matrix& a, const Matrix& b) {
  if (a.rows != b.rows || a.cols != b.cols) return std::numeric_limits<double>::infinity();
  double most = 0;
  for (std::size_t i = 0; i < a.of.size(); ++i) {
    const double one = std::abs(a.of[i] - b.of[i]);
    most = one <= most ? most : one;  // NaN is a difference
  }
  return most;
}
inline Matrix sum_of(const std::vector<Matrix>& terms) {
  Matrix sum = terms.front();
  for (std::size_t t = 1; t < terms.size(); ++t)
    for (std::size_t i = 0; i < sum.of.size(); ++i) sum.of[i] += terms[t].of[i];
  return sum;
}
inline Matrix stacked(const std::vector<Matrix>& parts) {
  Matrix whole{0, parts.front().cols};
  for (const Matrix& part : parts) {
    whole.rows += part.rows;
    whole.of.insert(whole.of.end(), part.of.begin(), part.of.end());
  }
  return whole;
}

// A graph, and whether its loss is differentiated, or a sum over its output.
struct Subject {
  std::string name;
  void (*write)(Builder& g);
  bool has_loss = false, starts_at_tokens = false;
};

struct Result {
  Matrix output, input_gradient;
  std::vector<Matrices> parameter_gradients;  // [rank]
  double loss = 0;
};

class Run {
 public:
  Run(const Subject& subject, const Layout& layout, const std::vector<Parameter>& parameters, const Matrices& weights,
      const Matrix& x, const Matrix& d_out)
      : subject_(subject), layout_(layout) {
    Builder builder(graphs_, layout.model, layout.data);
    subject.write(builder);
    passes::derive(graphs_, layout);
    for (const std::string& problem : passes::problems_of(graphs_, layout)) FAIL_CHECK(problem);
    ranks_.resize(static_cast<std::size_t>(layout.tp));
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const auto rank = static_cast<std::int64_t>(i);
      for (const Parameter& parameter : parameters) {
        ranks_[i][parameter.name] = cut(parameter, weights.at(parameter.name), layout, rank);
        const Matrix& own = ranks_[i][parameter.name];
        ranks_[i]["grad." + parameter.name] = zeros(own.rows, own.cols);
      }
      const auto own_rows = [&](const Matrix& whole) {
        return layout.sequence_parallel ? picked(whole, part_of(whole.rows, {}, rank, layout.tp), all_of(whole.cols))
                                        : whole;
      };
      ranks_[i]["x"] = own_rows(x);
      ranks_[i]["dx"] = own_rows(d_out);
      Matrix ids = zeros(layout.tokens, 1), key = zeros(1, 3);
      for (std::int64_t t = 0; t < layout.tokens; ++t)
        ids.integers.push_back(static_cast<std::int32_t>(t * 5 % layout.model.vocab_size));
      key.integers = {17, 4, 0};
      ranks_[i]["ids"] = ids;
      ranks_[i]["key"] = key;
      ranks_[i]["loss"] = zeros(1, 1);
    }
  }

  Result forward() {
    run(graphs_.forward);
    Result result;
    result.loss = ranks_[0]["loss"].of[0];
    if (!subject_.has_loss) result.output = residual(subject_.starts_at_tokens ? "x" : "x_out");
    return result;
  }
  Result all() {
    Result result = forward();
    const auto is_lost = [](const Value& v) { return !v.is_kept || v.is_again; };
    poison(graphs_.forward, is_lost);
    run(graphs_.again);
    run(graphs_.backward);
    poison(graphs_.backward, [](const Value& v) { return !v.is_kept; });
    run(graphs_.weights);
    if (!subject_.starts_at_tokens) result.input_gradient = residual("dx");
    result.parameter_gradients = ranks_;
    return result;
  }
  const LayerGraphs& graphs() const { return graphs_; }

 private:
  Matrix residual(const std::string& name) {
    std::vector<Matrix> parts;
    for (Matrices& rank : ranks_) parts.push_back(rank[name]);
    return layout_.sequence_parallel ? stacked(parts) : parts.front();
  }

  static std::string name_of(const Value& value) {
    switch (value.given) {
      case Given::none:
        return (value.kind == ValueKind::parameter && value.is_gradient ? "grad." : "") + value.name;
      case Given::input:
        return "x";
      case Given::between:
        return "x_mid";
      case Given::output:
        return "x_out";
      case Given::stream_gradient:
        return "dx";
      case Given::tokens:
      case Given::targets:
        return "ids";
      case Given::dropout_key:
        return "key";
      case Given::loss:
        return "loss";
      case Given::documents:
      case Given::loss_weight:
      case Given::forward_scales:
      case Given::forward_amaxes:
      case Given::backward_scales:
      case Given::backward_amaxes:
        return "?";
    }
    return "?";
  }

  template <class Test>
  void poison(const std::vector<Node>& nodes, const Test& is_lost) {
    for (const Node& node : nodes)
      for (const Operand& operand : node.operands) {
        const Value& value = graphs_.of(operand.slice);
        const bool is_inside = value.given == Given::none || value.given == Given::between;
        if (!operand.writes() || !is_inside || value.kind == ValueKind::parameter || !is_lost(value)) continue;
        for (Matrices& rank : ranks_)
          for (double& element : rank[name_of(value)].of) element = std::numeric_limits<double>::quiet_NaN();
      }
  }

  exec::Operand operand(std::size_t rank, const Operand& of) {
    const Value& value = graphs_.of(of.slice);
    Matrix& matrix = ranks_[rank][name_of(value)];
    const std::int64_t rows = layout_.rows_of(value), cols = layout_.cols_of(value);
    const bool is_i32 = value.kind == ValueKind::integers || !matrix.integers.empty();
    if (matrix.rows * matrix.cols < rows * cols) matrix = zeros(rows, cols);
    if (is_i32) matrix.integers.resize(static_cast<std::size_t>(matrix.rows * matrix.cols));
    Coordinates at;
    at[Coord::tp] = static_cast<std::int64_t>(rank);
    const std::int64_t offset = of.slice.first / layout_.ways(value.cols.dim) +
                                of.slice.first_row / layout_.ways(value.rows.dim) * cols + of.slice.offset.eval(at);
    void* data = is_i32 ? static_cast<void*>(&matrix.integers[static_cast<std::size_t>(offset)])
                        : &matrix.of[static_cast<std::size_t>(offset)];
    return {data,
            is_i32 ? Dtype::i32 : Dtype::f64,
            layout_.rows_of(graphs_, of.slice),
            layout_.cols_of(graphs_, of.slice),
            cols,
            of.mode};
  }

  void run(const std::vector<Node>& nodes) {
    for (const Node& node : nodes) {
      INFO(stretto::name_of(node));
      if (node.operands.empty()) continue;
      const Work work = fit(node, graphs_, layout_);
      std::vector<std::vector<exec::Operand>> operands(ranks_.size());
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        for (const Operand& of : node.operands) operands[rank].push_back(operand(rank, of));
      if (const auto* collective = std::get_if<Collective>(&work)) {
        communicate(*collective, operands);
        continue;
      }
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        Coordinates at;
        at[Coord::tp] = static_cast<std::int64_t>(rank);
        host::run_work(evaluate(work, at), operands[rank]);
      }
    }
  }

  // Rows go to the rank of their expert, sorted by rank and then by expert, or the way back.
  void move_rows(const Collective& work, const std::vector<std::vector<exec::Operand>>& operands) {
    const std::int64_t ranks = layout_.tp, local = layout_.experts.local, experts = layout_.experts.ranks * local;
    const bool dispatches = work.kind == CollectiveKind::dispatch;
    std::vector<std::int64_t> sent(ranks_.size()), came(ranks_.size());
    for (std::int64_t to = 0; to < ranks; ++to)
      for (std::int64_t from = 0; from < ranks; ++from) {
        std::int64_t rows = work.capacity / work.cols / ranks;  // padded
        if (work.experts > 0) {
          const auto* offsets = static_cast<const std::int32_t*>(operands[0][1].data) + from * (experts + 1);
          rows = offsets[(to + 1) * local] - offsets[to * local];
        }
        auto& at_tokens = sent[static_cast<std::size_t>(from)];
        auto& at_experts = came[static_cast<std::size_t>(to)];
        const auto& of_tokens = operands[static_cast<std::size_t>(from)];
        const auto& of_experts = operands[static_cast<std::size_t>(to)];
        auto* tokens = static_cast<double*>(dispatches ? of_tokens.front().data : of_tokens.back().data);
        auto* rows_of_experts = static_cast<double*>(dispatches ? of_experts.back().data : of_experts.front().data);
        for (std::int64_t i = 0; i < rows * work.cols; ++i) {
          double &a = tokens[at_tokens + i], &b = rows_of_experts[at_experts + i];
          (dispatches ? b : a) = dispatches ? a : b;
        }
        at_tokens += rows * work.cols;
        at_experts += rows * work.cols;
      }
  }

  void swap_integers(const std::vector<std::vector<exec::Operand>>& operands) {
    for (std::size_t to = 0; to < operands.size(); ++to)
      for (std::size_t from = 0; from < operands.size(); ++from) {
        const std::int64_t each = operands[from].front().rows * operands[from].front().cols / std::ssize(operands);
        std::copy_n(
            static_cast<const std::int32_t*>(operands[from].front().data) + static_cast<std::int64_t>(to) * each, each,
            static_cast<std::int32_t*>(operands[to].back().data) + static_cast<std::int64_t>(from) * each);
      }
  }
  void gather_integers(const std::vector<std::vector<exec::Operand>>& operands) {
    for (const auto& to : operands)
      for (std::size_t from = 0; from < operands.size(); ++from) {
        const exec::Operand& part = operands[from].front();
        const std::int64_t each = part.rows * part.cols;
        std::copy_n(static_cast<const std::int32_t*>(part.data), each,
                    static_cast<std::int32_t*>(to.back().data) + static_cast<std::int64_t>(from) * each);
      }
  }

  // All operands are contiguous.
  void communicate(const Collective& work, const std::vector<std::vector<exec::Operand>>& operands) {
    if (work.kind == CollectiveKind::dispatch || work.kind == CollectiveKind::combine) return move_rows(work, operands);
    if (work.kind == CollectiveKind::all_to_all) return swap_integers(operands);
    if (operands[0][0].dtype == Dtype::i32) return gather_integers(operands);
    const std::size_t ranks = ranks_.size(), elements = static_cast<std::size_t>(work.elements),
                      each = elements / ranks;
    std::vector<std::vector<double>> given;
    for (const auto& of_rank : operands) {
      const auto* data = static_cast<const double*>(of_rank[0].data);
      given.emplace_back(data, data + of_rank[0].rows * of_rank[0].cols);
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      auto* result = static_cast<double*>(operands[rank].back().data);
      if (work.kind == CollectiveKind::all_gather) {
        for (std::size_t i = 0; i < elements; ++i) result[i] = given[i / each][i % each];
        continue;
      }
      const bool scatters = work.kind == CollectiveKind::reduce_scatter;
      for (std::size_t i = 0; i < (scatters ? each : elements); ++i) {
        result[i] = 0;
        for (std::size_t giver = 0; giver < ranks; ++giver) result[i] += given[giver][scatters ? rank * each + i : i];
      }
    }
  }

  const Subject& subject_;
  const Layout layout_;
  LayerGraphs graphs_;
  std::vector<Matrices> ranks_;
};

}  // namespace stretto::layer_graphs
