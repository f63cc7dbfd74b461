#include "model/graph/builder.hpp"

#include <algorithm>
#include <numeric>

namespace stretto {

Slice Builder::activation(const Named& named, std::int64_t cols, Dim dim) {
  return add({.name = named.name,
              .gradient = named.gradient,
              .rows = {Dim::tokens, tokens()},
              .cols = {dim, cols},
              .role = named.role});
}

Slice Builder::activation(const Named& named, const std::vector<std::int64_t>& parts, Dim dim) {
  const Slice y = activation(named, std::accumulate(parts.begin(), parts.end(), std::int64_t{0}), dim);
  if (parts.size() > 1) of(y).segments = parts;
  return y;
}

std::vector<std::int64_t> Builder::parts_of_fc1(std::int64_t width) const {
  return model_.swiglu ? std::vector{width, width} : std::vector{width};
}

Slice Builder::given(Given which, std::int64_t cols) {
  for (ValueId id = 0; id < graphs_.values.size(); ++id)
    if (graphs_.values[id].given == which) return graphs_.whole(id);
  Value value{.name = {}, .gradient = {}, .rows = {Dim::tokens, tokens()}, .cols = {Dim::none, cols}};
  value.kind = ValueKind::given;
  value.given = which;
  value.is_whole = which == Given::tokens || which == Given::targets;
  if (which == Given::dropout_key) value.rows = {}, value.cols.size = kDropoutKeyWords;
  if (which == Given::documents) value.rows = {Dim::none, data_.micro_batch_size}, value.cols.size = model_.seq_length;
  if (which == Given::loss || which == Given::loss_weight) value.rows = {};
  return add(std::move(value));
}

Slice Builder::parameter(const std::string& name, Extent rows, Extent cols, bool is_layered) {
  for (ValueId id = 0; id < graphs_.values.size(); ++id)
    if (graphs_.values[id].kind == ValueKind::parameter && graphs_.values[id].name == name) return graphs_.whole(id);
  Value value{.name = name, .gradient = name, .rows = rows, .cols = cols, .kind = ValueKind::parameter};
  value.is_layered = is_layered;
  return add(std::move(value));
}

Slice Builder::vector(const std::string& name, Extent cols, bool is_layered) {
  const Slice found = parameter(name, {}, cols, is_layered);
  of(found).parameter = ParameterKind::vector;
  return found;
}

Node& Builder::add(const std::string& base, const std::string& what, Work work, std::vector<Operand> operands) {
  Node node;
  node.work = std::move(work);
  node.operands = std::move(operands);
  node.base = base;
  node.what = what;
  node.module = module_;
  node.function = function_;
  node.id = graphs_.next++;
  node.section = section_;
  node.branch = branch_;
  node.bundle = bundle_;
  node.concurrent_half = concurrent_half_;
  graphs_.forward.push_back(std::move(node));
  return graphs_.forward.back();
}

Slice Builder::hidden(const std::string& name, TensorRole role) {
  const Slice y = activation({name + ".out", "d_hidden", role}, model_.hidden_size);
  graphs_.of(y).gradient_role = TensorRole::d_hidden;
  return y;
}

void Builder::norm(const std::string& name, const Slice& x, const Slice& y, std::int64_t heads, bool is_layered) {
  const bool has_beta = model_.normalization == Normalization::layer_norm;
  const Dim dim = heads > 1 ? graphs_.of(x).cols.dim : Dim::none;
  const Slice stats = add({.name = name + ".stats",
                           .gradient = {},
                           .rows = {Dim::tokens, tokens()},
                           .cols = {dim, heads * (has_beta ? 2 : 1)},
                           .kind = ValueKind::statistics});
  const Extent width{Dim::none, x.cols / heads};
  std::vector<Operand> operands = {reads(x), reads(vector(name + ".weight", width, is_layered))};
  if (has_beta) operands.push_back(reads(vector(name + ".bias", width, is_layered)));
  operands.push_back(writes(y));
  operands.push_back(writes(stats));
  if (has_beta)
    add(name, "fprop", LayerNorm{Pass::forward, 0, 0, heads, model_.norm_epsilon}, std::move(operands));
  else
    add(name, "fprop", RmsNorm{Pass::forward, 0, 0, heads, model_.norm_epsilon}, std::move(operands));
}

Node& Builder::linear(const std::string& name, const Slice& x, const Slice& y, bool has_bias) {
  const Extent in{graphs_.of(x).cols.dim, x.cols}, out{graphs_.of(y).cols.dim, y.cols};
  return linear(name, parameter(name + ".weight", out, in), x, y, has_bias);
}

Node& Builder::linear(const std::string& name, const Slice& weight, const Slice& x, const Slice& y, bool has_bias) {
  Gemm product;
  product.trans_b = true;
  product.bias = has_bias;
  std::vector<Operand> operands = {reads(x), reads(weight)};
  if (has_bias) operands.push_back(reads(vector(name + ".bias", {graphs_.of(y).cols.dim, y.cols})));
  operands.push_back(writes(y));
  Node& node = add(name, "fprop", product, std::move(operands));
  node.is_linear = node.is_deferrable = true;
  return node;
}

void Builder::activation(const Slice& x, const Slice& y, const std::string& name) {
  std::vector<Operand> operands;
  for (const Slice& part : split(x, std::vector<std::int64_t>(static_cast<std::size_t>(x.cols / y.cols), y.cols)))
    operands.push_back(reads(part));
  operands.push_back(writes(y));
  add(!name.empty()   ? name
      : model_.swiglu ? "swiglu"
                      : "gelu",
      "fprop", Elementwise{model_.swiglu ? ElementwiseFn::swiglu : ElementwiseFn::gelu}, std::move(operands));
}

Dropout Builder::hidden_dropout(DropoutSite site, bool has_residual) const {
  Dropout work;
  work.seq = model_.seq_length;
  work.probability = model_.hidden_dropout;
  work.site = site;
  work.residual = has_residual;
  return work;
}

Slice Builder::fork(const std::string& name, const Slice& x, const std::string& gradient) {
  Value same = graphs_.of(x);
  same.gradient = gradient;
  same.gradient_role = TensorRole::none;
  same.alias_of = x;
  const Slice y = add(std::move(same));
  Node& node = add(name, "fprop", Elementwise{ElementwiseFn::accumulate}, {});
  node.from = x;
  node.to = y;
  return y;
}

void Builder::residual(const std::string& name, const std::string& term, const Slice& x, const Slice& b,
                       const Slice& out, DropoutSite site) {
  std::vector<Operand> operands = {reads(x), reads(b)};
  Work work = Elementwise{ElementwiseFn::add};
  if (model_.hidden_dropout > 0) {
    operands.push_back(reads(given(Given::dropout_key)));
    work = hidden_dropout(site, true);
  }
  operands.push_back(writes(out));
  Node& node = add(name, "fprop", std::move(work), std::move(operands));
  node.adds_to_stream = true;
  node.term = term;
}

Slice Builder::branch_result() { return activation({"branch.out", "d_branch"}, model_.hidden_size); }

Slice Builder::normed_input(const std::string& name, TensorRole role, const Slice& x) {
  if (!model_.norms_inputs()) {
    // Its gradient is an array of its own: ranks sum it, and not that of the residual stream.
    const Slice h = fork(name, x, "d_hidden");
    Value& same = of(h);
    same.kind = ValueKind::activation;
    same.given = Given::none;
    return h;
  }
  const Slice h = hidden(name, role);
  norm(name, x, h);
  return h;
}

Slice Builder::sublayer_result(const std::string& name) {
  if (!model_.norms_results()) return branch_result();
  const Slice b = activation({name + ".result", "d_" + name + ".result"}, model_.hidden_size);
  of(b).terms = "branch.out";
  return b;
}

Slice Builder::normed_result(const std::string& name, const Slice& b, const std::string& suffix) {
  if (!model_.norms_results()) return b;
  const Slice normed = activation({"normed.out", "d_branch"}, model_.hidden_size);
  norm(name + "_norm", b, normed);
  graphs_.forward.back().suffix = suffix;
  return normed;
}

std::vector<Slice> Builder::split(const Slice& x, const std::vector<std::int64_t>& widths) {
  std::vector<Slice> parts;
  std::int64_t first = x.first;
  for (const std::int64_t width : widths) {
    parts.push_back({x.value, first, width});
    first += width;
  }
  return parts;
}

}  // namespace stretto
