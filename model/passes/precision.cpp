#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "model/passes/passes.hpp"

namespace stretto::passes {
namespace {

using Nodes = std::vector<Node>;
using Linear = CodesOf::Linear;

constexpr std::uint8_t kNoSection = 255;  // of what belongs to the whole layer

const char* letter(Factor factor) { return factor == Factor::x ? "x" : factor == Factor::w ? "w" : "dy"; }

// The copies of one factor: `codes` scaled along rows, and perhaps a second one along columns.
struct Copies {
  Slice codes;
  std::optional<Slice> columns;
  ColumnCopy second = ColumnCopy::none;
  Slice inverse, column_inverse;
  // The copy for products over the rows of the factor.
  const Slice& over_rows() const { return columns ? *columns : codes; }
};

class Precision {
 public:
  Precision(LayerGraphs& graphs, const Layout& layout)
      : graphs_(graphs),
        layout_(layout),
        low_(layout.codes.rules),
        is_nv_(low_.recipe == LowPrecisionRules::Recipe::nvfp4) {}

  void run() {
    if (layout_.experts.exchanges) send_codes();
    Nodes in_forward, in_backward;
    for (const Linear& linear : layout_.codes.linears) {
      const auto product =
          find(graphs_.forward, [&](const Node& n) { return n.base == name_of(linear) && is_product(n); });
      if (product != graphs_.forward.end()) convert(linear, product->id, in_forward, in_backward);
    }
    if (!layout_.codes.in_passes) return;
    graphs_.forward.insert(graphs_.forward.begin(), in_forward.begin(), in_forward.end());
    graphs_.backward.insert(graphs_.backward.begin(), in_backward.begin(), in_backward.end());
  }

 private:
  static std::string name_of(const Linear& linear) { return stretto::name_of(linear.size.layer); }
  static bool is_product(const Node& n) { return n.is_linear || std::holds_alternative<GroupedGemm>(n.work); }
  template <class Test>
  static Nodes::iterator find(Nodes& nodes, const Test& test) {
    return std::find_if(nodes.begin(), nodes.end(), test);
  }
  static Nodes::iterator find_id(Nodes& nodes, NodeId id) {
    return find(nodes, [&](const Node& n) { return n.id == id; });
  }

  // ---- values ----

  Dtype format(Factor factor) const { return factor == Factor::dy ? low_.backward : low_.forward; }
  Scaling scaling(Factor factor) const { return factor == Factor::w ? low_.weights : low_.activations; }
  bool has_factor(Factor factor) const { return rule_of(scaling(factor)).has_factor; }
  static std::int64_t matrices(const Linear& linear) { return linear.size.is_grouped() ? linear.size.groups : 1; }

  Slice codes_value(const std::string& name, CodeShape shape, Dtype dtype) {
    Value value{.name = name, .gradient = {}, .rows = {Dim::none, shape.rows}, .cols = {Dim::none, shape.cols}};
    value.dtype = dtype;
    return graphs_.whole(graphs_.add(std::move(value)));
  }
  // Numbers that several linear layers have in one tensor.
  Slice numbers(const std::string& name, std::int64_t cols, Factor factor, std::int64_t first, std::int64_t count) {
    const auto known = numbers_.find(name);
    const ValueId id = known != numbers_.end() ? known->second : codes_value(name, {1, cols}, Dtype::f32).value;
    numbers_[name] = id;
    Value& value = graphs_.values[id];
    value.is_shared = true;
    value.is_gradient = factor == Factor::dy;
    return {id, first, count};
  }
  Slice inverse_of(const Linear& linear, Factor factor, std::int64_t which) {
    const bool is_grouped = linear.size.is_grouped(), is_of_weight = factor == Factor::w;
    const std::int64_t each = is_nv_ && !is_of_weight ? 2 : 1;
    const std::string name =
        (is_grouped ? name_of(linear) + "." : "") + (is_of_weight ? "weight" : letter(factor)) + ".inverses";
    const Slice made = numbers(name, (is_grouped ? linear.size.groups : layout_.codes.count) * each, factor,
                               is_grouped ? linear.size.groups * which : linear.index * each + which, matrices(linear));
    graphs_.of(made).is_of_weights = is_of_weight && !layout_.codes.in_passes;
    return made;
  }
  Slice number_of(const char* what, const Linear& linear, Factor factor, std::int64_t count) {
    const std::string name = std::string(letter(factor)) + "." + what;
    if (linear.size.is_grouped()) {
      const std::int64_t cols = linear.size.groups * count;
      return numbers(name_of(linear) + "." + name, cols, factor, 0, cols);
    }
    return numbers(name, layout_.codes.count * 2, factor, linear.index * 2, count);
  }
  Slice given(Given which) {
    for (ValueId id = 0; id < graphs_.values.size(); ++id)
      if (graphs_.values[id].given == which) return graphs_.whole(id);
    Value value{.name = {}, .gradient = {}, .rows = {}, .cols = {}};
    value.kind = ValueKind::given;
    value.given = which;
    if (which == Given::dropout_key) value.cols.size = kDropoutKeyWords;
    value.is_shared = which != Given::dropout_key;
    return graphs_.whole(graphs_.add(std::move(value)));
  }
  // The state of delayed scaling: X and W of each matrix, or dY.
  Slice state_of(Given forward, Given backward, const Linear& linear, Factor factor) {
    Slice of = given(factor == Factor::dy ? backward : forward);
    of.cols = matrices(linear);
    of.first = factor == Factor::dy ? linear.first : 2 * linear.first + (factor == Factor::w ? of.cols : 0);
    return of;
  }

  // ---- codes ----

  ColumnCopy second_of(Factor factor, bool gathers) const {
    const bool serves_both = low_.per_tensor() || (factor == Factor::w && low_.weights == Scaling::block_128x128);
    if (factor != Factor::w && !layout_.trains) return ColumnCopy::none;
    if (low_.transposes && !gathers) return ColumnCopy::transposed;  // what is gathered is transposed afterwards
    return serves_both ? ColumnCopy::none : ColumnCopy::plain;
  }

  struct Quantised {
    Linear linear;
    Factor factor = Factor::x;
    Slice matrix = {};
    bool gathers = false;
    std::optional<Operand> offsets = {};
    GroupedRows groups = {};
    Phase phase = Phase::forward;
    const char* end = "";
  };

  // Returns the nodes that make the codes of a factor.
  Nodes quantise(const Node& product, const Quantised& of, Copies& to) {
    const Linear& linear = of.linear;
    const bool is_grouped = linear.size.is_grouped();
    Quantise work;
    work.rows = is_grouped ? of.groups.rows : layout_.rows_of(graphs_, of.matrix);
    work.cols = of.factor == Factor::dy ? linear.size.out : linear.size.in;
    work.format = format(of.factor);
    work.scaling = scaling(of.factor);
    work.columnwise = to.second = second_of(of.factor, of.gathers);
    work.hadamard = is_nv_ && of.factor != Factor::w && to.second != ColumnCopy::none;
    work.stochastic = is_nv_ && of.factor == Factor::dy;
    work.records = low_.is_delayed();
    work.layer = linear.size.layer;
    work.groups = of.groups.groups;
    work.capacity = of.groups.capacity;
    work.equal = of.groups.equal;
    work.of_codes = graphs_.of(of.matrix).dtype.has_value();
    if (to.codes.cols == 0) add_copies(of, work, to);
    Nodes nodes;
    const auto emit = [&](const std::string& what, Work made, std::vector<Operand> operands) -> Node& {
      Node node;
      node.work = std::move(made);
      node.operands = std::move(operands);
      node.base = name_of(linear);
      node.what = what + "_" + letter(of.factor) + of.end;
      node.phase = of.phase;
      node.module = product.module;
      node.section = of.factor == Factor::w ? kNoSection : product.section;
      node.codes_of = of.factor;
      node.id = graphs_.next++;
      node.of = product.id;
      if (of.factor != Factor::w) node.concurrent_half = product.concurrent_half;
      if (of.factor == Factor::x) node.function = product.function;
      nodes.push_back(std::move(node));
      return nodes.back();
    };
    std::vector<Operand> operands = {reads(of.matrix)};
    if (low_.is_delayed()) {
      operands.push_back(reads(state_of(Given::forward_scales, Given::backward_scales, linear, of.factor)));
    } else if (has_factor(of.factor)) {
      const Slice amax = number_of("amax", linear, of.factor, work.hadamard ? 2 : 1);
      std::vector<Operand> measured = {reads(of.matrix)};
      if (work.has_offsets()) measured.push_back(*of.offsets);
      measured.push_back(writes(amax));
      emit("amax",
           Amax{work.rows, layout_.cols_of(graphs_, of.matrix), work.hadamard, work.groups, work.capacity, work.equal},
           std::move(measured));
      if (of.gathers) {  // what is gathered has one scale
        Node& reduce = emit("amax", Collective{.kind = CollectiveKind::all_reduce}, {adds(amax)});
        std::get<Collective>(reduce.work).reduction = Reduction::max;
        reduce.what += ".all_reduce";
      }
      if (work.scaling == Scaling::tensor) {
        const Slice scale = number_of("scale", linear, of.factor, 1);
        emit("scale", UpdateScale{.elements = amax.cols, .format = work.format}, {reads(amax), writes(scale)});
        operands.push_back(reads(scale));
      } else {
        operands.push_back(reads(amax));
      }
    }
    if (work.has_offsets()) operands.push_back(*of.offsets);
    if (work.stochastic) {
      if (!is_grouped) place_random(of, work);
      operands.push_back(reads(given(Given::dropout_key)));
    }
    operands.push_back(writes(to.codes));
    if (to.columns) operands.push_back(writes(*to.columns));
    if (has_factor(of.factor)) {
      Slice inverse = to.inverse;
      if (work.hadamard) inverse.cols = 2 * matrices(linear);
      operands.push_back(writes(inverse));
    }
    if (work.records)
      operands.push_back(adds(state_of(Given::forward_amaxes, Given::backward_amaxes, linear, of.factor)));
    emit("quantise", work, std::move(operands));
    return nodes;
  }

  // The place of the rank's part, which decides its random numbers.
  void place_random(const Quantised& of, Quantise& work) const {
    const LinearCut cut = of.linear.size.cut;
    work.seq = layout_.model.seq_length;
    work.parts = layout_.parts;
    if (of.gathers || (cut == LinearCut::none && layout_.sequence_parallel))
      work.first_row = layout_.tp_place * Expr(layout_.rows_of(graphs_, of.matrix));
    if (cut == LinearCut::outputs && layout_.tp > 1)
      work.first_column = layout_.tp_place * Expr(layout_.cols_of(graphs_, of.matrix));
  }

  void add_copies(const Quantised& of, const Quantise& work, Copies& to) {
    const std::string name = name_of(of.linear) + "." + (of.factor == Factor::w ? "weight" : letter(of.factor));
    const auto add = [&](const char* end, CodeShape shape) {
      const Slice made = codes_value(name + end, shape, work.format);
      Value& value = graphs_.of(made);
      value.is_gradient = of.factor == Factor::dy;
      value.is_of_weights = of.factor == Factor::w && !layout_.codes.in_passes;
      if (of.factor != Factor::w && of.groups.capacity > 0)
        value.filled_elements = shape.rows * shape.cols / of.groups.capacity * of.groups.rows;
      return made;
    };
    to.codes = add(".codes", work.codes());
    if (to.second != ColumnCopy::none) to.columns = add(".column_codes", work.column_codes());
    if (!has_factor(of.factor)) return;
    to.inverse = inverse_of(of.linear, of.factor, 0);
    to.column_inverse = work.hadamard ? inverse_of(of.linear, of.factor, 1) : to.inverse;
  }

  // ---- gathers ----

  std::int64_t cols_of(const Linear& linear, Factor factor) const {
    return factor == Factor::dy ? linear.size.out : linear.size.in;
  }
  // Codes that are gathered share a workspace with others as wide; most are as wide as the model.
  std::string width_of(const Linear& linear, Factor factor) const {
    const std::int64_t cols = cols_of(linear, factor);
    return cols == layout_.model.hidden_size ? "" : "." + std::to_string(cols);
  }
  Slice gathered(const Linear& linear, Factor factor, const Slice& part, bool columns) {
    const Value& of = graphs_.of(part);
    const Slice all = codes_value("gathered." + std::string(stretto::name_of(format(factor))) +
                                      (columns ? ".columns" : "") + width_of(linear, factor),
                                  {of.rows.size * layout_.tp, of.cols.size}, format(factor));
    graphs_.of(all).is_gathered = true;
    return all;
  }
  // Returns the operand of a weight gradient for a factor that is gathered: all rows of the copy over rows, transposed
  // where products need that. `all` has the copy along rows.
  Slice gathered_for_weights(const Linear& linear, Factor factor, const Copies& of, Slice all, const Node& wgrad,
                             Nodes& before) {
    if (!low_.per_tensor()) {
      all = gathered(linear, factor, of.over_rows(), true);
      Node gather;
      gather.work = Collective{.kind = CollectiveKind::all_gather};
      gather.operands = {reads(of.over_rows()), writes(all)};
      gather.is_right_before = factor == Factor::dy;
      gather.id = graphs_.next++;
      graphs_.gathers.push_back(std::move(gather));
    }
    if (!low_.transposes) return all;
    const std::int64_t cols = cols_of(linear, factor);
    const Slice to = codes_value("transposed." + std::string(letter(factor)) + width_of(linear, factor),
                                 code_shape(format(factor), scaling(factor), ScaledAlong::rows, cols, layout_.tokens),
                                 format(factor));
    Node transpose = wgrad;
    transpose.work = TransposeCodes{layout_.tokens, cols, format(factor), scaling(factor)};
    transpose.operands = {reads(all), writes(to)};
    transpose.what = std::string("transpose_") + letter(factor);
    transpose.id = graphs_.next++;
    before.push_back(std::move(transpose));
    return to;
  }

  // ---- products ----

  void multiply(Node& node, const Slice& a, const Slice& b, const Slice& inverse_a, const Slice& inverse_b) {
    node.operands[0] = reads(a);
    node.operands[1] = reads(b);
    if (has_factor(Factor::x)) node.operands.insert(node.operands.end() - 1, {reads(inverse_a), reads(inverse_b)});
  }

  void convert(const Linear& linear, NodeId id, Nodes& in_forward, Nodes& in_backward) {
    Node product = *find_id(graphs_.forward, id);
    const bool is_grouped = linear.size.is_grouped();
    Quantised of{.linear = linear};
    if (is_grouped) {
      const auto& work = std::get<GroupedGemm>(product.work);
      of.groups = work.grouped();
      if (!work.equal) of.offsets = product.operands[2];
    }
    // W
    Copies w, x, dy;
    Quantised of_w{.linear = linear, .factor = Factor::w, .matrix = product.operands[1].slice};
    if (is_grouped) of_w.groups = {linear.size.groups, linear.size.weight_rows(), 0, true};
    append(layout_.codes.in_passes ? in_forward : graphs_.quantise_weights, quantise(product, of_w, w));
    if (layout_.codes.in_passes) {
      of_w.phase = Phase::dgrad;
      of_w.end = ".dgrad";
      append(in_backward, quantise(product, of_w, w));
    }
    // X
    const auto enter = find(graphs_.forward, [&](const Node& n) {
      return n.move == Move::enter && !n.operands.empty() && n.base == product.base &&
             n.result() == product.operands[0].slice;
    });
    const bool gathers_x = enter != graphs_.forward.end();
    of.factor = Factor::x;
    of.matrix = gathers_x ? enter->operands[0].slice : product.operands[0].slice;
    of.gathers = gathers_x;
    keep_name(of.matrix);
    Slice all_x;
    const NodeId first = gathers_x ? enter->id : id;
    Nodes made = quantise(product, of, x);
    insert_quantise(made, of.matrix, product, first);
    if (gathers_x) {
      all_x = gathered(linear, Factor::x, x.codes, false);
      find_id(graphs_.forward, first)->operands = {reads(x.codes), writes(all_x)};
    }
    scale(product, Pass::forward, w);
    multiply(product, gathers_x ? all_x : x.codes, w.codes, x.inverse, w.inverse);
    *find_id(graphs_.forward, id) = product;
    // dY
    const auto is_gradient = [&](Phase phase) {
      return [&, phase](const Node& n) {
        return n.of == id && n.phase == phase &&
               (std::holds_alternative<Gemm>(n.work) || std::holds_alternative<GroupedGemm>(n.work));
      };
    };
    Node dgrad = *find(graphs_.backward, is_gradient(Phase::dgrad));
    Node wgrad = *find(graphs_.backward, is_gradient(Phase::wgrad));
    const auto gather = find(graphs_.backward, [&](const Node& n) {
      return n.move == Move::gather && n.result() == dgrad.operands[0].slice;
    });
    const bool gathers_dy = gather != graphs_.backward.end();
    of.factor = Factor::dy;
    of.phase = Phase::dgrad;
    of.gathers = gathers_dy;
    of.matrix = gathers_dy ? gather->operands[0].slice : dgrad.operands[0].slice;
    keep_copy(of.matrix, wgrad);
    const NodeId first_dy = gathers_dy ? find_gather(dgrad)->id : dgrad.id;
    dgrad = *find_id(graphs_.backward, dgrad.id);
    wgrad = *find_id(graphs_.backward, wgrad.id);
    of.matrix = gathers_dy ? find_gather(dgrad)->operands[0].slice : dgrad.operands[0].slice;
    Value& gradient = graphs_.of(of.matrix);
    if (layout_.weights_in_units && gradient.given == Given::none && !gradient.dtype) gradient.is_family = true;
    Nodes made_dy = quantise(product, of, dy);
    for (Node& node : made_dy) node.function = Recomputed::none;
    insert(graphs_.backward, first_dy, made_dy);
    Slice all_dy = dy.codes;
    if (gathers_dy) {
      all_dy = gathered(linear, Factor::dy, dy.codes, false);
      find_id(graphs_.backward, first_dy)->operands = {reads(dy.codes), writes(all_dy)};
    }
    scale(dgrad, Pass::dgrad, w);
    if (auto* work = std::get_if<Gemm>(&dgrad.work)) work->k = linear.size.out;
    multiply(dgrad, all_dy, w.over_rows(), dy.inverse, w.inverse);
    *find_id(graphs_.backward, dgrad.id) = dgrad;
    // Weight gradient: no bias gradient is a sum of codes.
    for (Node& node : graphs_.backward)
      if (node.of == id && std::holds_alternative<Elementwise>(node.work)) node.is_deferrable = false;
    Nodes before;
    const Slice rows_dy =
        gathers_dy ? gathered_for_weights(linear, Factor::dy, dy, all_dy, wgrad, before) : dy.over_rows();
    const Slice rows_x = gathers_x ? gathered_for_weights(linear, Factor::x, x, all_x, wgrad, before) : x.over_rows();
    scale(wgrad, Pass::wgrad, w);
    if (auto* work = std::get_if<Gemm>(&wgrad.work)) {
      const bool is_whole = linear.size.cut == LinearCut::none && layout_.sequence_parallel;
      work->k = is_whole ? layout_.tokens / layout_.tp : layout_.tokens;
    }
    multiply(wgrad, rows_dy, rows_x, dy.column_inverse, x.column_inverse);
    *find_id(graphs_.backward, wgrad.id) = wgrad;
    insert(graphs_.backward, wgrad.id, before);
  }
  Nodes::iterator find_gather(const Node& dgrad) {
    return find(graphs_.backward,
                [&](const Node& n) { return n.move == Move::gather && n.result() == dgrad.operands[0].slice; });
  }
  static void append(Nodes& to, Nodes nodes) { std::move(nodes.begin(), nodes.end(), std::back_inserter(to)); }
  static void insert(Nodes& to, NodeId before, const Nodes& nodes) {
    to.insert(find_id(to, before), nodes.begin(), nodes.end());
  }
  // Before the product or the gather. What was made by a part of a layer that may be repeated becomes codes there, so
  // that the codes are repeated with it.
  void insert_quantise(Nodes& made, const Slice& x, const Node& product, NodeId before) {
    const auto writer = std::find_if(graphs_.forward.rbegin(), graphs_.forward.rend(),
                                     [&](const Node& n) { return n.writes_value(x.value); });
    if (writer != graphs_.forward.rend() && product.concurrent_half == 2 && writer->concurrent_half == 1) {
      for (Node& node : made) node.concurrent_half = 1;
      graphs_.forward.insert(writer.base(), made.begin(), made.end());
      return;
    }
    if (std::holds_alternative<GroupedGemm>(product.work) && writer != graphs_.forward.rend())
      for (Node& node : made) node.function = writer->function;
    insert(graphs_.forward, before, made);
  }
  // Other layers keep what is a weight gradient's operand in numbers; here it passes.
  void keep_name(const Slice& x) {
    Value& value = graphs_.of(x);
    if (value.given == Given::none && !value.dtype) value.is_family = true;
    // Frameworks keep the result of attention, whatever reads it.
    if (value.role == TensorRole::attention_out) value.is_kept = true;
  }
  // Where the experts of some layers have no codes, all experts read a copy of the stream's gradient, because all
  // layers share these operations.
  void keep_copy(const Slice& dy, const Node& wgrad) {
    const bool has_experts = std::any_of(graphs_.forward.begin(), graphs_.forward.end(), [&](const Node& n) {
      return n.section == wgrad.section && std::holds_alternative<GroupedGemm>(n.work);
    });
    if (layout_.weights_apart && layout_.codes.is_mixed && has_experts && wgrad.is_deferrable &&
        graphs_.of(dy).given == Given::stream_gradient)
      keep_gradient(graphs_, layout_, wgrad, dy);
  }

  void scale(Node& node, Pass pass, const Copies& w) const {
    const Scaling b = pass == Pass::wgrad ? low_.activations : low_.weights;
    if (auto* gemm = std::get_if<Gemm>(&node.work)) {
      gemm->scaling_a = low_.activations;
      gemm->scaling_b = b;
      gemm->split_accumulation = pass != Pass::forward;
      if (pass == Pass::forward) gemm->k = layout_.cols_of(graphs_, node.operands[1].slice);
      if (pass == Pass::dgrad) gemm->trans_b = w.second == ColumnCopy::transposed;
      if (pass == Pass::wgrad) {
        gemm->trans_a = !low_.transposes;
        gemm->trans_b = low_.transposes;
      }
      return;
    }
    auto& grouped = std::get<GroupedGemm>(node.work);
    grouped.scaling_a = low_.activations;
    grouped.scaling_b = b;
    grouped.transposes = low_.transposes && pass != Pass::forward;
    grouped.split_accumulation = pass != Pass::forward;
  }

  // ---- codes on the way ----

  // Rows go to the experts' ranks as codes with their scales, which one row is; a token becomes codes once.
  void send_codes() {
    if (low_.sends_rows) send_codes(graphs_.forward, Phase::forward);
    if (low_.sends_gradients) send_codes(graphs_.backward, Phase::dgrad);
  }
  void send_codes(Nodes& nodes, Phase phase) {
    const bool is_forward = phase == Phase::forward;
    const auto permute = find(nodes, [&](const Node& n) {
      const auto* work = std::get_if<Permute>(&n.work);
      return work != nullptr && work->pass == Pass::forward && !work->apart && n.phase == phase;
    });
    if (permute == nodes.end()) return;
    const bool has_own = is_forward || !low_.sends_rows || layout_.concurrent_passes;
    const std::string prefix = (is_forward || !has_own ? "" : "d_") + permute->base + ".";
    const std::int64_t hidden = layout_.model.hidden_size,
                       cols = code_shape(Dtype::e4m3, Scaling::mx, ScaledAlong::rows, 1, hidden).cols;
    const auto coded = [&](const char* name, std::int64_t rows, std::int64_t filled) {
      const Slice made = codes_value(prefix + name + ".codes", {rows, cols}, Dtype::e4m3);
      graphs_.of(made).filled_rows = filled;
      return made;
    };
    const Slice tokens = permute->operands[1].slice;
    const Slice codes = coded("tokens", layout_.rows_of(graphs_, tokens), 0);
    Quantise work{.rows = layout_.rows_of(graphs_, tokens), .cols = hidden};
    work.format = Dtype::e4m3;
    work.scaling = Scaling::mx;
    work.layer = is_forward ? QuantisedLayer::experts_fc1 : QuantisedLayer::experts_fc2;
    Node quantise = *permute;
    quantise.work = work;
    quantise.operands = {reads(tokens), writes(codes)};
    quantise.base = stretto::name_of(work.layer);
    quantise.what = is_forward ? "quantise_sent_x" : "quantise_sent_dy";
    quantise.module = Module::experts;
    quantise.bundle = 0;
    quantise.id = graphs_.next++;
    permute->operands[1].slice = codes;
    std::map<ValueId, Slice> replaced;
    const auto replace = [&](Node& node, const char* name) {
      Slice& result = node.operands.back().slice;
      const Value& rows = graphs_.of(result);
      const Slice made = coded(name, rows.rows.size, rows.filled_rows);
      replaced[result.value] = made;
      result = made;
    };
    const ValueId sent = permute->result().value;
    ValueId last = sent;
    std::get<Permute>(permute->work).cols = cols;
    const NodeId of_permute = permute->id;
    // The rows that products read are the last ones of the way.
    for (Node& node : nodes) {
      const auto* move = std::get_if<Collective>(&node.work);
      const bool moves = (move != nullptr && move->kind == CollectiveKind::dispatch) ||
                         std::holds_alternative<SortByExpert>(node.work);
      if (moves && node.reads_value(last)) last = node.result().value;
    }
    for (Node& node : nodes) {
      if (node.id == of_permute) replace(node, "sent");
      bool reads_codes = false;
      for (Operand& operand : node.operands)
        if (operand.mode == AccessMode::read && replaced.contains(operand.slice.value)) {
          operand.slice = replaced.at(operand.slice.value);
          reads_codes = true;
        }
      if (!reads_codes) continue;
      if (auto* move = std::get_if<Collective>(&node.work)) {
        move->elements = move->elements / move->cols * cols;
        move->capacity = move->capacity / move->cols * cols;
        move->cols = cols;
      } else if (auto* sort = std::get_if<SortByExpert>(&node.work)) {
        sort->cols = cols;
      } else {
        continue;
      }
      replace(node, node.result().value == last ? "in" : "received");
    }
    insert(nodes, of_permute, {quantise});
  }

  LayerGraphs& graphs_;
  const Layout& layout_;
  const LowPrecisionRules& low_;
  const bool is_nv_;
  std::map<std::string, ValueId> numbers_;
};

}  // namespace

void precision(LayerGraphs& graphs, const Layout& layout) {
  if (layout.codes.acts) Precision(graphs, layout).run();
}

void name_numbers(LayerGraphs& graphs, const Layout& layout) {
  if (layout.codes.acts) return;
  for (Nodes* nodes : {&graphs.forward, &graphs.backward, &graphs.weights, &graphs.again})
    for (Node& node : *nodes) {
      const bool has_codes =
          std::any_of(layout.codes.linears.begin(), layout.codes.linears.end(),
                      [&](const Linear& linear) { return node.base == stretto::name_of(linear.size.layer); });
      const bool is_sum_of_shared = node.move == Move::leave && node.concurrent_half > 0;
      if (has_codes && !is_sum_of_shared && !std::holds_alternative<Cast>(node.work)) node.base += ".numbers";
    }
}

}  // namespace stretto::passes
