#include "model/lower/quantised_linears.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "model/lower/builder.hpp"

namespace stretto {
namespace {

Module module_of(QuantisedLayer layer) {
  switch (layer) {
    case QuantisedLayer::fc1:
    case QuantisedLayer::fc2:
      return Module::mlp;
    case QuantisedLayer::shared_fc1:
    case QuantisedLayer::shared_fc2:
      return Module::shared_experts;
    case QuantisedLayer::experts_fc1:
    case QuantisedLayer::experts_fc2:
      return Module::experts;
    case QuantisedLayer::qkv:
    case QuantisedLayer::proj:
    case QuantisedLayer::q_down:
    case QuantisedLayer::kv_down:
    case QuantisedLayer::q:
    case QuantisedLayer::q_up:
    case QuantisedLayer::kv_up:
      return Module::attention;
  }
  return Module::none;
}

}  // namespace

QuantisedLinears::QuantisedLinears(Schedule& schedule, BlockWriter& writer, const BlockShape& shape,
                                   const DelayedScaling* delayed)
    : schedule_(schedule),
      w_(writer),
      shape_(shape),
      low_(shape.low),
      delayed_(delayed),
      trains_(!shape.frozen_base),
      is_nv_(shape.low.recipe == LowPrecisionRules::Recipe::nvfp4) {}

bool QuantisedLinears::has(const std::string& name) const {
  return std::any_of(linears_.begin(), linears_.end(), [&](const Of& one) { return one.linear.name() == name; });
}

const QuantisedLinears::Of& QuantisedLinears::of(const std::string& name) const {
  return *std::find_if(linears_.begin(), linears_.end(), [&](const Of& one) { return one.linear.name() == name; });
}

// ---- shapes ----

bool QuantisedLinears::gathers(const Linear& linear, Factor factor) const {
  if (linear.size.cut == LinearCut::none) return false;
  return shape_.sequence_parallel && factor == (linear.size.cut == LinearCut::outputs ? Factor::x : Factor::dy);
}
GroupedRows QuantisedLinears::groups_of(const Linear& linear, Factor factor) const {
  if (factor != Factor::w || !linear.size.is_grouped()) return linear.rows;
  return {linear.size.groups, linear.size.weight_rows(), 0, true};
}
// Rows of a factor without groups.
std::int64_t QuantisedLinears::rows_of(const Linear& linear, Factor factor) const {
  if (factor == Factor::w) return linear.size.out;
  return gathers(linear, factor) || linear.size.cut == LinearCut::none ? w_.residual_rows() : w_.tokens();
}
std::int64_t QuantisedLinears::cols_of(const Linear& linear, Factor factor) const {
  return factor == Factor::dy ? linear.size.out : linear.size.in;
}
// Returns the shape of a copy: along rows (none), along columns (plain), or of the transposed matrix.
CodeShape QuantisedLinears::shape_of(const Linear& linear, Factor factor, ColumnCopy copy) const {
  const Dtype type = format(factor);
  const ScaledAlong along = copy == ColumnCopy::plain ? ScaledAlong::columns : ScaledAlong::rows;
  const std::int64_t cols = cols_of(linear, factor);
  if (linear.size.is_grouped()) {
    const GroupedRows groups = groups_of(linear, factor);
    return copy == ColumnCopy::transposed ? grouped_transposed_shape(type, scaling(factor), groups, cols)
                                          : grouped_code_shape(type, scaling(factor), along, groups, cols);
  }
  const std::int64_t rows = rows_of(linear, factor);
  return copy == ColumnCopy::transposed ? code_shape(type, scaling(factor), along, cols, rows)
                                        : code_shape(type, scaling(factor), along, rows, cols);
}

ColumnCopy QuantisedLinears::second_of(const Linear& linear, Factor factor) const {
  const bool serves_both = low_.per_tensor() || (factor == Factor::w && low_.weights == Scaling::block_128x128);
  if (factor != Factor::w && !trains_) return ColumnCopy::none;
  // A gathered matrix is transposed behind the gather.
  if (low_.transposes && !gathers(linear, factor)) return ColumnCopy::transposed;
  return serves_both ? ColumnCopy::none : ColumnCopy::plain;
}

bool QuantisedLinears::has_hadamard(const Linear& linear, Factor factor) const {
  return is_nv_ && factor != Factor::w && second_of(linear, factor) != ColumnCopy::none;
}

// ---- tensors ----

void QuantisedLinears::add(const std::vector<Linear>& linears) {
  count_ = std::count_if(linears.begin(), linears.end(), [](const Linear& one) { return !one.size.is_grouped(); });
  std::int64_t first = 0;
  for (const Linear& linear : linears) {
    Of of{linear, std::ssize(linears_), first, shape_.in_codes, {}, {}, {}};
    first += matrices_of(linear.size);
    for (std::size_t layer = 0; layer < of.layers.size(); ++layer)
      of.layers[layer] = of.layers[layer] && linear.size.is_in(shape_.model.layer(static_cast<std::int64_t>(layer)));
    if (std::count(of.layers.begin(), of.layers.end(), true) == 0) continue;  // all layers that have it are in bf16
    of.x = add_copies(of, Factor::x);
    of.w = add_copies(of, Factor::w);
    of.dy = add_copies(of, Factor::dy);
    linears_.push_back(std::move(of));
  }
}

QuantisedLinears::Copies QuantisedLinears::add_copies(const Of& of, Factor factor) {
  const Linear& linear = of.linear;
  Copies copies;
  copies.second = second_of(linear, factor);
  const std::string name = linear.name() + "." + (factor == Factor::w ? "weight" : name_of(factor));
  // A weight gradient reads X, and where it has a block of its own dY, in the copy over their rows.
  const bool is_kept = trains_ && (factor == Factor::x || (factor == Factor::dy && shape_.weights_in_units));
  const bool has_second = copies.second != ColumnCopy::none, is_again = linear.is_again && factor == Factor::x;
  copies.codes = add_codes(of, name + ".codes", factor, shape_of(linear, factor, ColumnCopy::none),
                           is_kept && !has_second, is_again);
  if (has_second)
    copies.columns =
        add_codes(of, name + ".column_codes", factor, shape_of(linear, factor, copies.second), is_kept, is_again);
  if (!rule_of(scaling(factor)).has_factor) return copies;
  copies.inverse = inverse_of(of, factor, 0);
  copies.column_inverse = has_hadamard(linear, factor) ? inverse_of(of, factor, 1) : copies.inverse;
  return copies;
}

View QuantisedLinears::add_codes(const Of& of, const std::string& name, Factor factor, CodeShape shape, bool is_kept,
                                 bool is_again) {
  if (factor == Factor::w && !shape_.codes_in_passes)
    return whole(schedule_, of_weights(name, format(factor), shape.rows, shape.cols, of.layers), Coord::layer);
  TensorId id = 0;
  if (is_kept) {
    BlockWriter::Role role{.is_again = is_again, .dtype = format(factor)};
    if (std::count(of.layers.begin(), of.layers.end(), false) > 0) role.layers = of.layers;
    id = w_.recomputable(name, shape.rows, shape.cols, shape_.model.num_layers, std::move(role));
  } else {
    id = add_tensor(schedule_, name, format(factor), BufferKind::workspace, shape.rows, shape.cols);
  }
  // The rank's experts get `rows` of the capacity when all experts have equally many.
  const GroupedRows& groups = of.linear.rows;
  if (factor != Factor::w && groups.capacity > 0)
    for (const TensorId of_pass : {id, w_.in_backward(id)})
      for (const TensorPlace& place : schedule_.tensors[of_pass].places)
        schedule_.storages[place.storage].filled = shape.rows * shape.cols / groups.capacity * groups.rows;
  return is_kept ? w_.act(id, Coord::layer) : w_.work(id);
}

// Adds a tensor that is made of a layer's weights once a step.
TensorId QuantisedLinears::of_weights(const std::string& name, Dtype dtype, std::int64_t rows, std::int64_t cols,
                                      const std::vector<bool>& of_layers) {
  std::vector<TensorPlace> places(of_layers.size());
  std::optional<TensorPlace> any;
  for (std::size_t layer = 0; layer < places.size(); ++layer) {
    if (!of_layers[layer]) continue;
    places[layer] = {
        add_storage(schedule_, name + ".l" + std::to_string(layer), dtype, BufferKind::parameter, rows * cols), 0};
    if (!any) any = places[layer];
  }
  for (std::size_t layer = 0; layer < places.size(); ++layer)  // no operation reads the place of another layer
    if (!of_layers[layer]) places[layer] = *any;
  const std::int64_t layers = std::ssize(places);  // before the vector is moved
  return w_.family(name, rows, cols, layers, 1, std::move(places));
}

View QuantisedLinears::shared(const std::string& name, Dtype dtype, std::int64_t rows, std::int64_t cols) {
  auto known = shared_.find(name);
  if (known == shared_.end())
    known = shared_.emplace(name, add_tensor(schedule_, name, dtype, BufferKind::workspace, rows, cols)).first;
  return w_.work(known->second);
}

// A layer's reciprocal scales of one factor are one tensor, and so are those that live only within a pass.
View QuantisedLinears::inverse_of(const Of& of, Factor factor, std::int64_t which) {
  const bool is_grouped = of.linear.size.is_grouped();
  const std::string name =
      (is_grouped ? of.linear.name() + "." : "") + (factor == Factor::w ? "weight" : name_of(factor)) + ".inverses";
  const std::int64_t each = is_nv_ && factor != Factor::w ? 2 : 1,
                     cols = (is_grouped ? of.linear.size.groups : count_) * each;
  const std::vector<bool>& layers = is_grouped ? of.layers : shape_.in_codes;
  const bool is_kept = trains_ && (factor == Factor::x || (factor == Factor::dy && shape_.weights_in_units));
  const bool is_of_step = factor == Factor::w && !shape_.codes_in_passes;
  auto known = shared_.find(name);
  if (known == shared_.end()) {
    TensorId id = 0;
    if (is_of_step) {
      id = of_weights(name, Dtype::f32, 1, cols, layers);
    } else if (is_kept) {
      BlockWriter::Role role{.dtype = Dtype::f32};
      if (std::count(layers.begin(), layers.end(), false) > 0) role.layers = layers;
      id = w_.recomputable(name, 1, cols, shape_.model.num_layers, std::move(role));
    } else {
      id = add_tensor(schedule_, name, Dtype::f32, BufferKind::workspace, 1, cols);
    }
    known = shared_.emplace(name, id).first;
  }
  View view = is_of_step ? whole(schedule_, known->second, Coord::layer)
              : is_kept  ? w_.act(known->second, Coord::layer)
                         : w_.work(known->second);
  // Scales of experts' second copies are behind those of their first ones.
  view.offset = view.offset + Expr(is_grouped ? of.linear.size.groups * which : of.index * each + which);
  view.cols = view.ld = matrices_of(of.linear.size);
  return view;
}

View QuantisedLinears::number_of(const char* what, const Of& of, Factor factor, std::int64_t count) {
  const std::string name = std::string(name_of(factor)) + "." + what;
  if (of.linear.size.is_grouped())
    return shared(of.linear.name() + "." + name, Dtype::f32, 1, of.linear.size.groups * count);
  View view = shared(name, Dtype::f32, 1, count_ * 2);
  view.offset = Expr(of.index * 2);
  view.cols = view.ld = count;
  return view;
}

View QuantisedLinears::state_of(TensorId forward, TensorId backward, const Of& of, Factor factor) const {
  View view = whole(schedule_, factor == Factor::dy ? backward : forward, Coord::layer);
  const std::int64_t count = matrices_of(of.linear.size);
  view.offset = Expr(factor == Factor::dy ? of.first : 2 * of.first + (factor == Factor::w ? count : 0));
  view.cols = view.ld = count;
  return view;
}

// ---- operations ----

void QuantisedLinears::quantise(const Of& of, Factor factor, const View& matrix, std::optional<Phase> pass,
                                const std::optional<View>& offsets) {
  const Linear& linear = of.linear;
  const std::string name = linear.name();
  const BlockWriter::Within part(w_, module_of(linear.size.layer));
  w_.set_codes_of(factor);
  const bool is_grouped = linear.size.is_grouped();
  const GroupedRows groups = groups_of(linear, factor);
  const std::int64_t rows = is_grouped ? groups.rows : matrix.rows;
  const Copies& to = copies(of, factor);
  const std::string end = std::string("_") + name_of(factor) + (pass == Phase::dgrad ? ".dgrad" : "");
  const Phase phase = pass ? *pass : factor == Factor::dy ? Phase::dgrad : Phase::forward;
  Quantise work{.rows = rows,
                .cols = cols_of(linear, factor),
                .format = format(factor),
                .scaling = scaling(factor),
                .rowwise = true,
                .columnwise = to.second,
                .hadamard = has_hadamard(linear, factor),
                .stochastic = is_nv_ && factor == Factor::dy,
                .records = delayed_ != nullptr,
                .layer = linear.size.layer,
                .groups = groups.groups,
                .capacity = groups.capacity,
                .equal = groups.equal,
                .of_codes = is_code(schedule_.dtype_of(matrix))};
  std::vector<Access> accesses = {read(matrix)};
  if (delayed_ != nullptr) {
    accesses.push_back(read(state_of(delayed_->forward.scale, delayed_->backward.scale, of, factor)));
  } else if (rule_of(work.scaling).has_factor) {
    const View amax = number_of("amax", of, factor, work.hadamard ? 2 : 1);
    std::vector<Access> measured = {read(matrix)};
    if (work.has_offsets()) measured.push_back(read(*offsets));
    measured.push_back(write(amax));
    w_.op(name + ".amax" + end, phase,
          Amax{rows, matrix.cols, work.hadamard, groups.groups, groups.capacity, groups.equal}, std::move(measured));
    if (gathers(linear, factor)) {  // what is gathered has one scale
      Operation reduce = collective_operation(name + ".amax" + end + ".all_reduce", shape_.tp,
                                              CollectiveKind::all_reduce, amax.cols, phase, {accumulate(amax)});
      std::get<Collective>(reduce.work).reduction = Reduction::max;
      w_.communicate(std::move(reduce));
    }
    if (work.scaling == Scaling::tensor) {
      const View scale = number_of("scale", of, factor, 1);
      w_.op(name + ".scale" + end, phase, UpdateScale{.elements = amax.cols, .format = work.format},
            {read(amax), write(scale)});
      accesses.push_back(read(scale));
    } else {
      accesses.push_back(read(amax));
    }
  }
  if (work.has_offsets()) accesses.push_back(read(*offsets));
  if (work.stochastic && is_grouped) {
    accesses.push_back(read(w_.dropout_key()));
  } else if (work.stochastic) {
    work.seq = shape_.model.seq_length;
    work.parts = shape_.parts();
    const bool has_own_rows =
        gathers(linear, factor) || (linear.size.cut == LinearCut::none && shape_.sequence_parallel);
    if (has_own_rows) work.first_row = shape_.tp.place * Expr(matrix.rows);
    if (linear.size.cut == LinearCut::outputs && shape_.tp.exists())
      work.first_column = shape_.tp.place * Expr(matrix.cols);
    accesses.push_back(read(w_.dropout_key()));
  }
  accesses.push_back(write(to.codes));
  if (to.columns) accesses.push_back(write(*to.columns));
  if (rule_of(work.scaling).has_factor) {
    View inverse = to.inverse;
    if (work.hadamard) inverse.cols = inverse.ld = 2 * matrices_of(linear.size);
    accesses.push_back(write(inverse));
  }
  if (work.records)
    accesses.push_back(accumulate(state_of(delayed_->forward.amax, delayed_->backward.amax, of, factor)));
  w_.op(name + ".quantise" + end, phase, work, std::move(accesses));
  w_.set_codes_of(Factor::none);
}

void QuantisedLinears::quantise_weights(const LayerSpec& kind, Phase phase) {
  for (const Of& one : linears_)
    if (one.linear.size.is_in(kind))
      quantise(one, Factor::w, w_.parameter(one.linear.name() + ".weight", Coord::layer), phase);
}

void QuantisedLinears::quantise_input(const std::string& name, const View& x, const std::optional<View>& offsets) {
  quantise(of(name), Factor::x, x, std::nullopt, offsets);
}

// Codes that are gathered share a workspace with others as wide; most are as wide as the model.
std::string QuantisedLinears::width_of(const Linear& linear, Factor factor) const {
  const std::int64_t cols = cols_of(linear, factor);
  return cols == shape_.model.hidden_size ? "" : "." + std::to_string(cols);
}

View QuantisedLinears::gathered(const Of& of, const char* suffix, Phase phase, const View& part, Factor factor,
                                ScaledAlong along) {
  const Dtype type = format(factor);
  // Two passes that run concurrently share no workspace.
  const bool is_backward = shape_.pairs_passes && phase != Phase::forward;
  const View all = shared(std::string(is_backward ? "d_gathered." : "gathered.") + std::string(stretto::name_of(type)) +
                              (along == ScaledAlong::columns ? ".columns" : "") + width_of(of.linear, factor),
                          type, part.rows * shape_.tp.size, part.cols);
  assert(all.rows == part.rows * shape_.tp.size && all.cols == part.cols);
  w_.communicate(collective_operation(of.linear.name() + suffix, shape_.tp, CollectiveKind::all_gather,
                                      all.rows * all.cols, phase, {read(part), write(all)}));
  return all;
}

View QuantisedLinears::gathered_for_weights(const Of& of, Factor factor) {
  const View& own = copies(of, factor).over_rows();
  if (!gathers(of.linear, factor)) return own;
  return gathered(of, ".all_gather_wgrad", Phase::wgrad, own, factor,
                  low_.per_tensor() ? ScaledAlong::rows : ScaledAlong::columns);
}

View QuantisedLinears::transposed_for_weights(const Of& of, Factor factor, const View& all) {
  if (!low_.transposes || !gathers(of.linear, factor)) return all;
  const Dtype type = format(factor);
  const std::int64_t cols = cols_of(of.linear, factor);
  const CodeShape shape = code_shape(type, scaling(factor), ScaledAlong::rows, cols, w_.tokens());
  const View to =
      shared(std::string("transposed.") + name_of(factor) + width_of(of.linear, factor), type, shape.rows, shape.cols);
  w_.op(of.linear.name() + ".transpose_" + name_of(factor), Phase::wgrad,
        TransposeCodes{w_.tokens(), cols, type, scaling(factor)}, {read(all), write(to)});
  return to;
}

std::vector<Access> QuantisedLinears::factors(const View& a, const View& b, const View& inverse_a,
                                              const View& inverse_b, const std::optional<View>& bias,
                                              Access result) const {
  std::vector<Access> accesses = {read(a), read(b)};
  if (bias) accesses.push_back(read(*bias));
  if (rule_of(low_.activations).has_factor) accesses.insert(accesses.end(), {read(inverse_a), read(inverse_b)});
  accesses.push_back(std::move(result));
  return accesses;
}

void QuantisedLinears::fprop(const Of& of, const View& x, const View& y) {
  const Linear& linear = of.linear;
  std::optional<View> bias;
  if (linear.size.cut == LinearCut::outputs && shape_.model.add_bias_linear)
    bias = w_.parameter(linear.name() + ".bias", Coord::layer);
  Gemm product{y.rows, linear.size.out, linear.size.in, false, true, bias.has_value()};
  product.scaling_a = low_.activations;
  product.scaling_b = low_.weights;
  w_.op(linear.name() + ".fprop", Phase::forward, product,
        factors(x, of.w.codes, of.x.inverse, of.w.inverse, bias, write(y)));
}

void QuantisedLinears::dgrad(const Of& of, const View& dy, const Access& dx) {
  const Linear& linear = of.linear;
  Gemm product{dx.view.rows, linear.size.in, linear.size.out, false, of.w.second == ColumnCopy::transposed, false};
  product.scaling_a = low_.activations;
  product.scaling_b = low_.weights;
  product.split_accumulation = true;
  w_.op(linear.name() + ".dgrad", Phase::dgrad, product,
        factors(dy, of.w.over_rows(), of.dy.inverse, of.w.inverse, {}, dx));
}

void QuantisedLinears::wgrad(const Of& of, const View& dy, const View& x) {
  const Linear& linear = of.linear;
  const std::int64_t tokens = linear.size.cut == LinearCut::none ? w_.residual_rows() : w_.tokens();
  Gemm product{linear.size.out, linear.size.in, tokens, !low_.transposes, low_.transposes, false};
  product.scaling_a = product.scaling_b = low_.activations;
  product.split_accumulation = true;
  w_.op(linear.name() + ".wgrad", Phase::wgrad, product,
        factors(dy, x, of.dy.column_inverse, of.x.column_inverse, {},
                accumulate(w_.gradient(linear.name() + ".weight", Coord::layer))));
}

void QuantisedLinears::bgrad(const Of& of, const View& dy) {
  if (!shape_.model.add_bias_linear || !trains_) return;
  w_.op(of.linear.name() + ".bgrad", Phase::wgrad, Elementwise{ElementwiseFn::column_sum, dy.rows, dy.cols},
        {read(dy), accumulate(w_.gradient(of.linear.name() + ".bias", Coord::layer))});
}

void QuantisedLinears::column_forward(const std::string& name, const View& x, const View& y) {
  const Of& one = of(name);
  quantise(one, Factor::x, x);
  fprop(one,
        gathers(one.linear, Factor::x)
            ? gathered(one, ".all_gather", Phase::forward, one.x.codes, Factor::x, ScaledAlong::rows)
            : one.x.codes,
        y);
}

void QuantisedLinears::row_forward(const std::string& name, const View& x, const View& y) {
  quantise_input(name, x);
  multiply_input(name, y);
}

void QuantisedLinears::multiply_input(const std::string& name, const View& y) {
  const Of& one = of(name);
  fprop(one, one.x.codes, y);
}

View QuantisedLinears::column_backward(const std::string& name, const View& dy, const View& dx, const View& dx_part) {
  const Of& one = of(name);
  const bool writes = trains_ && !w_.weights_apart();
  quantise(one, Factor::dy, dy);
  const View x = writes ? gathered_for_weights(one, Factor::x) : View{};
  dgrad(one, one.dy.codes, write(dx));
  const View sum = w_.summed(name + ".dgrad", Phase::dgrad, dx, dx_part);
  if (writes)
    wgrad(one, one.dy.over_rows(), transposed_for_weights(one, Factor::x, x));
  else if (trains_)
    w_.now_or_later([this, &one] {
      wgrad(one, one.dy.over_rows(), transposed_for_weights(one, Factor::x, gathered_for_weights(one, Factor::x)));
    });
  bgrad(one, dy);
  return sum;
}

void QuantisedLinears::row_backward(const std::string& name, const View& dy_part, const View& dx) {
  const Of& one = of(name);
  const bool gathers_dy = gathers(one.linear, Factor::dy);
  quantise(one, Factor::dy, dy_part);
  const View dy = gathers_dy
                      ? gathered(one, ".all_gather_dgrad", Phase::dgrad, one.dy.codes, Factor::dy, ScaledAlong::rows)
                      : one.dy.codes;
  dgrad(one, dy, write(dx));
  // Codes with one scale have been gathered already.
  const bool is_here = gathers_dy && low_.per_tensor() && !w_.weights_apart();
  if (trains_)
    w_.now_or_later([this, &one, dy, is_here] {
      const View all = is_here ? dy : gathered_for_weights(one, Factor::dy);
      wgrad(one, transposed_for_weights(one, Factor::dy, all), one.x.over_rows());
    });
  bgrad(one, dy_part);
}

void QuantisedLinears::whole_backward(const std::string& name, const View& dy, const Access& dx) {
  const Of& one = of(name);
  quantise(one, Factor::dy, dy);
  dgrad(one, one.dy.codes, dx);
  if (trains_) w_.now_or_later([this, &one] { wgrad(one, one.dy.over_rows(), one.x.over_rows()); });
}

// ---- experts ----

GroupedGemm QuantisedLinears::grouped(const Linear& linear, Pass pass, Scaling of_b) const {
  const GroupedRows& rows = linear.rows;
  GroupedGemm product{pass, rows.groups, rows.rows, linear.size.out, linear.size.in, rows.capacity, rows.equal};
  product.scaling_a = low_.activations;
  product.scaling_b = of_b;
  product.transposes = low_.transposes && pass != Pass::forward;
  product.split_accumulation = pass != Pass::forward;
  return product;
}

void QuantisedLinears::quantise_rows(const std::string& name, const View& x, const std::optional<View>& offsets) {
  quantise(of(name), Factor::x, x, std::nullopt, offsets);
}

void QuantisedLinears::grouped_forward(const std::string& name, const View& x, const std::optional<View>& offsets,
                                       const View& y) {
  const Of& one = of(name);
  quantise_rows(name, x, offsets);
  w_.op(name + ".fprop", Phase::forward, grouped(one.linear, Pass::forward, low_.weights),
        factors(one.x.codes, one.w.codes, one.x.inverse, one.w.inverse, offsets, write(y)));
}

void QuantisedLinears::grouped_dgrad(const std::string& name, const View& dy, const std::optional<View>& offsets,
                                     const View& dx) {
  const Of& one = of(name);
  quantise(one, Factor::dy, dy, std::nullopt, offsets);
  w_.op(name + ".dgrad", Phase::dgrad, grouped(one.linear, Pass::dgrad, low_.weights),
        factors(one.dy.codes, one.w.over_rows(), one.dy.inverse, one.w.inverse, offsets, write(dx)));
}

void QuantisedLinears::grouped_wgrad(const std::string& name, const std::optional<View>& offsets) {
  if (!trains_) return;
  const Of& one = of(name);
  w_.now_or_later([this, &one, name, offsets] {
    w_.op(name + ".wgrad", Phase::wgrad, grouped(one.linear, Pass::wgrad, low_.activations),
          factors(one.dy.over_rows(), one.x.over_rows(), one.dy.column_inverse, one.x.column_inverse, offsets,
                  accumulate(w_.gradient(name + ".weight", Coord::layer))));
  });
}

}  // namespace stretto
