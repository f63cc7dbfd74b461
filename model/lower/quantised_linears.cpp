#include "model/lower/quantised_linears.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "model/lower/builder.hpp"

namespace stretto {

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
  return std::any_of(linears_.begin(), linears_.end(), [&](const Of& one) { return one.linear.name == name; });
}

const QuantisedLinears::Of& QuantisedLinears::of(const std::string& name) const {
  return *std::find_if(linears_.begin(), linears_.end(), [&](const Of& one) { return one.linear.name == name; });
}

// ---- shapes ----

bool QuantisedLinears::gathers(const Linear& linear, Factor factor) const {
  return shape_.sequence_parallel && factor == (linear.is_column ? Factor::x : Factor::dy);
}
std::int64_t QuantisedLinears::rows_of(const Linear& linear, Factor factor) const {
  return factor == Factor::w ? linear.out : gathers(linear, factor) ? w_.residual_rows() : w_.tokens();
}
std::int64_t QuantisedLinears::cols_of(const Linear& linear, Factor factor) const {
  return factor == Factor::dy ? linear.out : linear.in;
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

void QuantisedLinears::add(const Linear& linear) {
  Of of{linear, {}, {}, {}};
  of.x = add_copies(linear, Factor::x);
  of.w = add_copies(linear, Factor::w);
  of.dy = add_copies(linear, Factor::dy);
  linears_.push_back(std::move(of));
}

QuantisedLinears::Copies QuantisedLinears::add_copies(const Linear& linear, Factor factor) {
  Copies copies;
  copies.second = second_of(linear, factor);
  const std::int64_t rows = rows_of(linear, factor), cols = cols_of(linear, factor);
  const Dtype type = format(factor);
  const std::string name = linear.name + "." + (factor == Factor::w ? "weight" : name_of(factor));
  // A weight gradient reads X, and where it has a block of its own dY, in the copy over their rows.
  const bool is_kept = trains_ && (factor == Factor::x || (factor == Factor::dy && shape_.weights_in_units));
  const bool has_second = copies.second != ColumnCopy::none, is_again = linear.is_again && factor == Factor::x;
  copies.codes = add_codes(name + ".codes", factor, code_shape(type, scaling(factor), ScaledAlong::rows, rows, cols),
                           is_kept && !has_second, is_again);
  if (has_second)
    copies.columns = add_codes(name + ".column_codes", factor,
                               copies.second == ColumnCopy::transposed
                                   ? code_shape(type, scaling(factor), ScaledAlong::rows, cols, rows)
                                   : code_shape(type, scaling(factor), ScaledAlong::columns, rows, cols),
                               is_kept, is_again);
  if (!rule_of(scaling(factor)).has_factor) return copies;
  copies.inverse = inverse_of(linear, factor, 0);
  copies.column_inverse = has_hadamard(linear, factor) ? inverse_of(linear, factor, 1) : copies.inverse;
  return copies;
}

View QuantisedLinears::add_codes(const std::string& name, Factor factor, CodeShape shape, bool is_kept, bool is_again) {
  if (factor == Factor::w && !shape_.codes_in_passes)
    return whole(schedule_, of_weights(name, format(factor), shape.rows, shape.cols), Coord::layer);
  if (!is_kept)
    return w_.work(add_tensor(schedule_, name, format(factor), BufferKind::workspace, shape.rows, shape.cols));
  BlockWriter::Role role{.is_again = is_again, .dtype = format(factor)};
  if (shape_.has_numbers()) role.layers = shape_.in_codes;
  return w_.act(w_.recomputable(name, shape.rows, shape.cols, shape_.model.num_layers, std::move(role)), Coord::layer);
}

// Adds a tensor that is made of a layer's weights once a step.
TensorId QuantisedLinears::of_weights(const std::string& name, Dtype dtype, std::int64_t rows, std::int64_t cols) {
  std::vector<TensorPlace> places(shape_.in_codes.size());
  std::optional<TensorPlace> any;
  for (std::size_t layer = 0; layer < places.size(); ++layer) {
    if (!shape_.in_codes[layer]) continue;
    places[layer] = {
        add_storage(schedule_, name + ".l" + std::to_string(layer), dtype, BufferKind::parameter, rows * cols), 0};
    if (!any) any = places[layer];
  }
  for (std::size_t layer = 0; layer < places.size(); ++layer)  // no operation reads the place of another layer
    if (!shape_.in_codes[layer]) places[layer] = *any;
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
View QuantisedLinears::inverse_of(const Linear& linear, Factor factor, std::int64_t which) {
  const std::string name = std::string(factor == Factor::w ? "weight" : name_of(factor)) + ".inverses";
  const std::int64_t each = is_nv_ && factor != Factor::w ? 2 : 1, cols = kQuantisedLayers * each;
  const bool is_kept = trains_ && (factor == Factor::x || (factor == Factor::dy && shape_.weights_in_units));
  const bool is_of_step = factor == Factor::w && !shape_.codes_in_passes;
  auto known = shared_.find(name);
  if (known == shared_.end()) {
    TensorId id = 0;
    if (is_of_step) {
      id = of_weights(name, Dtype::f32, 1, cols);
    } else if (is_kept) {
      BlockWriter::Role role{.dtype = Dtype::f32};
      if (shape_.has_numbers()) role.layers = shape_.in_codes;
      id = w_.recomputable(name, 1, cols, shape_.model.num_layers, std::move(role));
    } else {
      id = add_tensor(schedule_, name, Dtype::f32, BufferKind::workspace, 1, cols);
    }
    known = shared_.emplace(name, id).first;
  }
  View view = is_of_step ? whole(schedule_, known->second, Coord::layer)
              : is_kept  ? w_.act(known->second, Coord::layer)
                         : w_.work(known->second);
  view.offset = view.offset + Expr(std::int64_t(linear.layer) * each + which);
  view.cols = view.ld = 1;
  return view;
}

View QuantisedLinears::number_of(const char* what, const Linear& linear, Factor factor, std::int64_t count) {
  View view = shared(std::string(name_of(factor)) + "." + what, Dtype::f32, 1, kQuantisedLayers * 2);
  view.offset = Expr(std::int64_t(linear.layer) * 2);
  view.cols = view.ld = count;
  return view;
}

View QuantisedLinears::state_of(TensorId forward, TensorId backward, const Linear& linear, Factor factor) const {
  View view = whole(schedule_, factor == Factor::dy ? backward : forward, Coord::layer);
  const auto layer = std::int64_t(linear.layer);
  view.offset = Expr(factor == Factor::dy ? layer : 2 * layer + (factor == Factor::w ? 1 : 0));
  view.cols = view.ld = 1;
  return view;
}

// ---- operations ----

void QuantisedLinears::quantise(const Of& of, Factor factor, const View& matrix, std::optional<Phase> pass) {
  const Linear& linear = of.linear;
  const Copies& to = copies(of, factor);
  const std::string end = std::string("_") + name_of(factor) + (pass == Phase::dgrad ? ".dgrad" : "");
  const Phase phase = pass ? *pass : factor == Factor::dy ? Phase::dgrad : Phase::forward;
  Quantise work{.rows = matrix.rows,
                .cols = matrix.cols,
                .format = format(factor),
                .scaling = scaling(factor),
                .rowwise = true,
                .columnwise = to.second,
                .hadamard = has_hadamard(linear, factor),
                .stochastic = is_nv_ && factor == Factor::dy,
                .records = delayed_ != nullptr,
                .layer = linear.layer};
  std::vector<Access> accesses = {read(matrix)};
  if (delayed_ != nullptr) {
    accesses.push_back(read(state_of(delayed_->forward.scale, delayed_->backward.scale, linear, factor)));
  } else if (rule_of(work.scaling).has_factor) {
    const View amax = number_of("amax", linear, factor, work.hadamard ? 2 : 1);
    w_.op(linear.name + ".amax" + end, phase, Amax{matrix.rows, matrix.cols, work.hadamard},
          {read(matrix), write(amax)});
    if (gathers(linear, factor)) {  // what is gathered has one scale
      Operation reduce = collective_operation(linear.name + ".amax" + end + ".all_reduce", shape_.tp,
                                              CollectiveKind::all_reduce, amax.cols, phase, {accumulate(amax)});
      std::get<Collective>(reduce.work).reduction = Reduction::max;
      w_.communicate(std::move(reduce));
    }
    if (work.scaling == Scaling::tensor) {
      const View scale = number_of("scale", linear, factor, 1);
      w_.op(linear.name + ".scale" + end, phase, UpdateScale{.elements = 1, .format = work.format},
            {read(amax), write(scale)});
      accesses.push_back(read(scale));
    } else {
      accesses.push_back(read(amax));
    }
  }
  if (work.stochastic) {
    work.seq = shape_.model.seq_length;
    work.parts = shape_.parts();
    if (gathers(linear, factor)) work.first_row = shape_.tp.place * Expr(matrix.rows);
    if (linear.is_column && shape_.tp.exists()) work.first_column = shape_.tp.place * Expr(matrix.cols);
    accesses.push_back(read(w_.dropout_key()));
  }
  accesses.push_back(write(to.codes));
  if (to.columns) accesses.push_back(write(*to.columns));
  if (rule_of(work.scaling).has_factor) {
    View inverse = to.inverse;
    if (work.hadamard) inverse.cols = inverse.ld = 2;
    accesses.push_back(write(inverse));
  }
  if (work.records)
    accesses.push_back(accumulate(state_of(delayed_->forward.amax, delayed_->backward.amax, linear, factor)));
  w_.op(linear.name + ".quantise" + end, phase, work, std::move(accesses));
}

void QuantisedLinears::quantise_weights(Phase phase) {
  for (const Of& one : linears_)
    quantise(one, Factor::w, w_.parameter(one.linear.name + ".weight", Coord::layer), phase);
}

void QuantisedLinears::quantise_input(const std::string& name, const View& x) { quantise(of(name), Factor::x, x); }

View QuantisedLinears::gathered(const std::string& name, Phase phase, const View& part, Factor factor,
                                ScaledAlong along) {
  const Dtype type = format(factor);
  const View all = shared(std::string("gathered.") + std::string(stretto::name_of(type)) +
                              (along == ScaledAlong::columns ? ".columns" : ""),
                          type, part.rows * shape_.tp.size, part.cols);
  assert(all.rows == part.rows * shape_.tp.size && all.cols == part.cols);
  w_.communicate(collective_operation(name, shape_.tp, CollectiveKind::all_gather, all.rows * all.cols, phase,
                                      {read(part), write(all)}));
  return all;
}

View QuantisedLinears::gathered_for_weights(const Of& of, Factor factor) {
  const View& own = copies(of, factor).over_rows();
  if (!gathers(of.linear, factor)) return own;
  return gathered(of.linear.name + ".all_gather_wgrad", Phase::wgrad, own, factor,
                  low_.per_tensor() ? ScaledAlong::rows : ScaledAlong::columns);
}

View QuantisedLinears::transposed_for_weights(const Of& of, Factor factor, const View& all) {
  if (!low_.transposes || !gathers(of.linear, factor)) return all;
  const Dtype type = format(factor);
  const std::int64_t cols = cols_of(of.linear, factor);
  const CodeShape shape = code_shape(type, scaling(factor), ScaledAlong::rows, cols, w_.tokens());
  const View to = shared(std::string("transposed.") + name_of(factor), type, shape.rows, shape.cols);
  w_.op(of.linear.name + ".transpose_" + name_of(factor), Phase::wgrad,
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
  if (linear.is_column && shape_.model.add_bias_linear) bias = w_.parameter(linear.name + ".bias", Coord::layer);
  Gemm product{w_.tokens(), linear.out, linear.in, false, true, bias.has_value()};
  product.scaling_a = low_.activations;
  product.scaling_b = low_.weights;
  w_.op(linear.name + ".fprop", Phase::forward, product,
        factors(x, of.w.codes, of.x.inverse, of.w.inverse, bias, write(y)));
}

void QuantisedLinears::dgrad(const Of& of, const View& dy, const View& dx) {
  const Linear& linear = of.linear;
  Gemm product{w_.tokens(), linear.in, linear.out, false, of.w.second == ColumnCopy::transposed, false};
  product.scaling_a = low_.activations;
  product.scaling_b = low_.weights;
  product.split_accumulation = true;
  w_.op(linear.name + ".dgrad", Phase::dgrad, product,
        factors(dy, of.w.over_rows(), of.dy.inverse, of.w.inverse, {}, write(dx)));
}

void QuantisedLinears::wgrad(const Of& of, const View& dy, const View& x) {
  const Linear& linear = of.linear;
  Gemm product{linear.out, linear.in, w_.tokens(), !low_.transposes, low_.transposes, false};
  product.scaling_a = product.scaling_b = low_.activations;
  product.split_accumulation = true;
  w_.op(linear.name + ".wgrad", Phase::wgrad, product,
        factors(dy, x, of.dy.column_inverse, of.x.column_inverse, {},
                accumulate(w_.gradient(linear.name + ".weight", Coord::layer))));
}

void QuantisedLinears::bgrad(const Of& of, const View& dy) {
  if (!shape_.model.add_bias_linear || !trains_) return;
  w_.op(of.linear.name + ".bgrad", Phase::wgrad, Elementwise{ElementwiseFn::column_sum, dy.rows, dy.cols},
        {read(dy), accumulate(w_.gradient(of.linear.name + ".bias", Coord::layer))});
}

void QuantisedLinears::column_forward(const std::string& name, const View& x, const View& y) {
  const Of& one = of(name);
  quantise(one, Factor::x, x);
  fprop(one,
        gathers(one.linear, Factor::x)
            ? gathered(name + ".all_gather", Phase::forward, one.x.codes, Factor::x, ScaledAlong::rows)
            : one.x.codes,
        y);
}

void QuantisedLinears::row_forward(const std::string& name, const View& x, const View& y) {
  const Of& one = of(name);
  quantise(one, Factor::x, x);
  fprop(one, one.x.codes, y);
}

View QuantisedLinears::column_backward(const std::string& name, const View& dy, const View& dx, const View& dx_part) {
  const Of& one = of(name);
  const bool writes = trains_ && !w_.weights_apart();
  quantise(one, Factor::dy, dy);
  const View x = writes ? gathered_for_weights(one, Factor::x) : View{};
  dgrad(one, one.dy.codes, dx);
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
                      ? gathered(name + ".all_gather_dgrad", Phase::dgrad, one.dy.codes, Factor::dy, ScaledAlong::rows)
                      : one.dy.codes;
  dgrad(one, dy, dx);
  // Codes with one scale have been gathered already.
  const bool is_here = gathers_dy && low_.per_tensor() && !w_.weights_apart();
  if (trains_)
    w_.now_or_later([this, &one, dy, is_here] {
      const View all = is_here ? dy : gathered_for_weights(one, Factor::dy);
      wgrad(one, transposed_for_weights(one, Factor::dy, all), one.x.over_rows());
    });
  bgrad(one, dy_part);
}

}  // namespace stretto
