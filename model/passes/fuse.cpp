#include <algorithm>
#include <functional>

#include "model/passes/passes.hpp"

namespace stretto::passes {
namespace {

using Nodes = std::vector<Node>;

bool is_elementwise(const Node& node, ElementwiseFn fn) {
  const auto* work = std::get_if<Elementwise>(&node.work);
  return work != nullptr && work->fn == fn;
}
// Only dense MLPs are fused; a shared expert is not.
bool is_gelu(const Node& node, ElementwiseFn fn) { return node.module == Module::mlp && is_elementwise(node, fn); }
bool is_gemm(const Node& node) { return std::holds_alternative<Gemm>(node.work); }
Pass norm_pass(const Node& node) {
  if (const auto* norm = std::get_if<LayerNorm>(&node.work)) return norm->pass;
  if (const auto* norm = std::get_if<RmsNorm>(&node.work)) return norm->pass;
  return Pass::forward;
}

// Returns the product whose result is exactly `slice`; the end where there is none.
Nodes::iterator product_of(Nodes& nodes, const Slice& slice) {
  return std::find_if(nodes.begin(), nodes.end(),
                      [&](const Node& n) { return is_gemm(n) && n.operands.back().writes() && n.result() == slice; });
}

// Calls `join` on each node that `is_second` accepts, and removes the node where that returns true.
void join_each(Nodes& nodes, const std::function<bool(const Node&)>& is_second,
               const std::function<bool(const Node&)>& join) {
  for (std::size_t i = 0; i < nodes.size();) {
    const Node second = nodes[i];
    if (is_second(second) && join(second))
      nodes.erase(std::find_if(nodes.begin(), nodes.end(), [&](const Node& n) { return n.id == second.id; }));
    else
      ++i;
  }
}

void fuse_gelu(Nodes& forward, Nodes& backward, bool with_bias) {
  join_each(
      forward, [](const Node& n) { return is_gelu(n, ElementwiseFn::gelu); },
      [&](const Node& act) {
        const auto product = product_of(forward, act.operands[0].slice);
        if (product == forward.end()) return false;
        std::get<Gemm>(product->work).epilogue = GemmEpilogue::gelu;
        product->operands.push_back(act.operands[1]);
        return true;
      });
  join_each(
      backward, [](const Node& n) { return is_gelu(n, ElementwiseFn::gelu_backward); },
      [&](const Node& act) {
        const Slice& dy = act.operands[0].slice;
        const auto product = product_of(backward, dy);
        const auto readers =
            std::count_if(backward.begin(), backward.end(), [&](const Node& n) { return n.reads_value(dy.value); });
        if (product == backward.end() || readers > 1) return false;
        auto& work = std::get<Gemm>(product->work);
        work.epilogue = GemmEpilogue::gelu_backward;
        product->operands.back() = act.operands[1];
        product->operands.push_back(act.operands[2]);
        const auto sums = std::find_if(backward.begin(), backward.end(), [&](const Node& n) {
          return is_elementwise(n, ElementwiseFn::column_sum) && n.operands[0].slice == act.operands[2].slice;
        });
        if (!with_bias || sums == backward.end()) return true;
        work.epilogue = GemmEpilogue::gelu_backward_bias_gradient;
        product->operands.insert(product->operands.end() - 1, sums->operands[1]);
        backward.erase(sums);
        return true;
      });
}

// The sum over the rows of dy is an epilogue of dyᵀ · x.
void fuse_bias_gradient(Nodes& backward) {
  join_each(
      backward, [](const Node& n) { return is_elementwise(n, ElementwiseFn::column_sum); },
      [&](const Node& sums) {
        const auto product = std::find_if(backward.begin(), backward.end(), [&](const Node& n) {
          return is_gemm(n) && n.phase == Phase::wgrad && n.of == sums.of &&
                 n.operands[0].slice == sums.operands[0].slice;
        });
        if (product == backward.end()) return false;
        std::get<Gemm>(product->work).epilogue = GemmEpilogue::bias_gradient;
        product->operands.insert(product->operands.end() - 1, sums.operands[1]);
        return true;
      });
}

void fuse_norm_gradients(Nodes& backward) {
  join_each(
      backward, [](const Node& n) { return norm_pass(n) == Pass::wgrad; },
      [&](const Node& weights) {
        const auto stream = std::find_if(backward.begin(), backward.end(), [&](const Node& n) {
          return norm_pass(n) == Pass::dgrad && n.operands[2].slice == weights.operands[2].slice;
        });
        stream->operands.insert(stream->operands.end() - 1, weights.operands.begin() + 3, weights.operands.end());
        stream->what = "backward";
        if (auto* norm = std::get_if<LayerNorm>(&stream->work)) norm->pass = Pass::backward;
        if (auto* norm = std::get_if<RmsNorm>(&stream->work)) norm->pass = Pass::backward;
        return true;
      });
}

// Where no sum over ranks is between a product and the addition to the residual stream.
void fuse_residual(Nodes& forward) {
  join_each(
      forward,
      [](const Node& n) {
        return n.adds_to_stream &&
               (is_elementwise(n, ElementwiseFn::add) || is_elementwise(n, ElementwiseFn::bias_add));
      },
      [&](const Node& addition) {
        const Slice& term = addition.operands[1].slice;
        const auto writers =
            std::count_if(forward.begin(), forward.end(), [&](const Node& n) { return n.writes_value(term.value); });
        const auto product = product_of(forward, term);
        if (product == forward.end() || writers > 1) return false;
        auto& work = std::get<Gemm>(product->work);
        work.epilogue = GemmEpilogue::residual;
        work.bias = is_elementwise(addition, ElementwiseFn::bias_add);
        product->operands.pop_back();
        if (work.bias) product->operands.push_back(addition.operands[2]);
        product->operands.push_back(addition.operands[0]);
        product->operands.push_back(addition.operands.back());
        product->suffix = addition.suffix;
        product->adds_to_stream = true;
        product->term = addition.term;
        return true;
      });
}

}  // namespace

void fuse(LayerGraphs& graphs, const Layout& layout) {
  const Fusions& fusions = layout.fusions;
  if (fusions.gelu) fuse_gelu(graphs.forward, graphs.backward, fusions.gelu_bias_gradient);
  if (fusions.bias_gradient) fuse_bias_gradient(graphs.backward);
  if (fusions.norm_gradient) fuse_norm_gradients(graphs.backward);
  if (fusions.residual) fuse_residual(graphs.forward);
}

}  // namespace stretto::passes
