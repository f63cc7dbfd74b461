// The shared expert of ExpertLayers, which all tokens go through.
#include <string>
#include <utility>
#include <vector>

#include "model/lower/expert_layers.hpp"
#include "model/lower/quantised_linears.hpp"

namespace stretto {

void ExpertLayers::add_shared() {
  const std::int64_t tokens = w_.tokens(), part = w_.residual_rows();
  shared_.width = model_.moe_shared_expert_intermediate_size / shape_.tp.size;
  shared_.fc1 = shape_.model.rows_of_fc1(shared_.width);
  const BlockWriter::Role again{.is_again = shape_.recompute.repeats(Recompute::Module::shared_experts)};
  BlockWriter::Role of_fc1 = again, of_act = again;
  of_fc1.role = TensorRole::shared_fc1_out;
  of_act.role = TensorRole::shared_act;
  shared_.fc1_out = kept("shared.fc1.out", tokens, shared_.fc1, of_fc1);
  if (shape_.low.is_on() && !again.is_again) of_act.passing = shape_.in_codes;
  shared_.act = kept("shared.act", tokens, shared_.width, of_act);
  const bool is_gated = model_.moe_shared_expert_gate;
  if (cuts_tokens()) shared_sum_ = w_.workspace("shared.sum", tokens, hidden_);
  shared_out_ = is_gated ? kept("shared.out", part, hidden_, again) : w_.workspace("shared.out", part, hidden_);
  shared_.d_act = w_.workspace("d_shared.act", tokens, shared_.width);
  shared_.d_fc1 = w_.output_gradient("d_shared.fc1", shared_.fc1_out, layers_);
  d_shared_all_ = w_.workspace("d_shared.in", tokens, hidden_);
  d_shared_part_ = cuts_tokens() ? w_.workspace("d_shared.in.part", part, hidden_) : d_shared_all_;
  if (!is_gated) return;
  gate_ = kept("shared.gate.out", part, 1, again);
  gated_ = w_.workspace("shared.gated", part, hidden_);
  d_shared_out_ = w_.output_gradient("d_shared.out", shared_out_, layers_);
  d_gate_ = w_.workspace("d_shared.gate", part, 1);
}

void ExpertLayers::shared_activation(Pass pass) {
  const bool is_forward = pass == Pass::forward, is_gated = shape_.model.swiglu;
  const ElementwiseFn fn = is_gated     ? is_forward ? ElementwiseFn::swiglu : ElementwiseFn::swiglu_backward
                           : is_forward ? ElementwiseFn::gelu
                                        : ElementwiseFn::gelu_backward;
  View gate = of_layer(shared_.fc1_out);
  std::vector<Access> accesses;
  if (!is_forward) accesses.push_back(read(w_.work(shared_.d_act)));
  gate.cols = shared_.width;
  accesses.push_back(read(gate));
  if (is_gated) {
    gate.offset = gate.offset + Expr(shared_.width);
    accesses.push_back(read(gate));
  }
  accesses.push_back(write(is_forward ? of_layer(shared_.act) : w_.read_by_weights(shared_.d_fc1)));
  w_.op(is_forward ? "shared.act.fprop" : "shared.act.dgrad", is_forward ? Phase::forward : Phase::dgrad,
        Elementwise{fn, w_.tokens(), shared_.width}, std::move(accesses));
}

void ExpertLayers::shared_up(const View& x) {
  const BlockWriter::Within shared(w_, Module::shared_experts);
  const LaneId lane = w_.set_lane(shape_.shared_expert);
  w_.column_forward("shared.fc1", hidden_, shared_.fc1, x, of_layer(shared_.fc1_out));
  shared_activation(Pass::forward);
  // The second half may come behind what a recomputed layer needs.
  if (w_.in_codes()) w_.codes().quantise_input("shared.fc2", of_layer(shared_.act));
  w_.set_lane(lane);
}

View ExpertLayers::shared_down(const View& x, bool is_again) {
  const bool is_gated = model_.moe_shared_expert_gate, to_the_end = !is_again || shape_.recompute.whole_layers;
  if (!is_gated && !to_the_end) return x;
  const BlockWriter::Within shared(w_, Module::shared_experts);
  const LaneId lane = w_.set_lane(shape_.shared_expert);
  // A backward pass, which may be concurrent with a forward pass, has places of its own, which it has not filled yet.
  const View out = is_gated ? of_layer(shared_out_) : w_.work(is_again ? d_shared_part_ : shared_out_);
  const View sum = cuts_tokens() ? w_.work(is_again ? d_shared_all_ : shared_sum_) : out;
  if (w_.in_codes())
    w_.codes().multiply_input("shared.fc2", sum);
  else
    w_.row_forward("shared.fc2", shared_.width, hidden_, of_layer(shared_.act), sum);
  w_.summed("shared.fc2", Phase::forward, sum, out);
  View result = out;
  if (is_gated) {
    const View gate = of_layer(gate_);
    w_.op("shared.gate.fprop", Phase::forward, Gemm{x.rows, 1, hidden_, false, true, false},
          {read(x), read(weight("shared.gate.weight")), write(gate)});
    if (to_the_end) {
      result = w_.work(is_again ? d_shared_part_ : gated_);
      w_.op("shared.gated.fprop", Phase::forward, GateRows{Pass::forward, x.rows, hidden_},
            {read(out), read(gate), write(result)});
    }
  }
  w_.set_lane(lane);
  return result;
}

void ExpertLayers::shared_down_backward(const View& dy, const View& x) {
  const BlockWriter::Within shared(w_, Module::shared_experts);
  if (shape_.recompute.repeats(Recompute::Module::shared_experts))
    w_.again(Recomputed::shared_experts, [&] {
      shared_up(x);
      shared_down(x, true);
    });
  const LaneId lane = w_.set_lane(shape_.shared_expert);
  const bool is_gated = model_.moe_shared_expert_gate;
  const View d_out = is_gated ? w_.read_by_weights(d_shared_out_) : dy;
  if (is_gated)
    w_.op("shared.gated.dgrad", Phase::dgrad, GateRows{Pass::dgrad, x.rows, hidden_},
          {read(dy), read(of_layer(shared_out_)), read(of_layer(gate_)), write(d_out), write(w_.work(d_gate_))});
  w_.row_backward("shared.fc2", shared_.width, hidden_, d_out, of_layer(shared_.act), w_.work(shared_.d_act));
  w_.set_lane(lane);
}

// Leaves the gradient of x in d_shared_part_.
void ExpertLayers::shared_up_backward(const View& x) {
  const BlockWriter::Within shared(w_, Module::shared_experts);
  const LaneId lane = w_.set_lane(shape_.shared_expert);
  shared_activation(Pass::dgrad);
  const View dx = w_.column_backward("shared.fc1", hidden_, shared_.fc1, w_.read_by_weights(shared_.d_fc1), x,
                                     w_.work(d_shared_all_), w_.work(d_shared_part_));
  if (model_.moe_shared_expert_gate) {
    w_.op("shared.gate.dgrad", Phase::dgrad, Gemm{x.rows, hidden_, 1, false, false, false},
          {read(w_.work(d_gate_)), read(weight("shared.gate.weight")), accumulate(dx)});
    add_to_gradient("shared.gate.wgrad", Gemm{1, hidden_, x.rows, true, false, false},
                    {read(w_.work(d_gate_)), read(x)}, "shared.gate.weight");
  }
  w_.set_lane(lane);
}

}  // namespace stretto
