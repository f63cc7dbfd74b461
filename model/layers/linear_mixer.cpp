#include "model/layers/linear_mixer.hpp"

namespace stretto::layers {

Slice projected(Builder& g, const Slice& x, const std::vector<std::int64_t>& parts) {
  g.set_module(Module::attention_norm);
  const Slice h = g.normed_input("ln_1", TensorRole::attention_norm_out, x);
  g.set_module(Module::attention);
  const Slice y = g.activation({"in_proj.out", "d_in_proj"}, parts, Dim::heads);
  g.linear("in_proj", h, y, false);
  return y;
}

Slice convolved(Builder& g, const Slice& first, const std::vector<std::int64_t>& parts, std::int64_t taps,
                bool has_bias) {
  const Slice y = g.activation({"conv.out", "d_conv"}, parts, Dim::heads);
  const Slice x{first.value, first.first, y.cols};
  ShortConv work;
  work.rows = g.tokens();
  work.channels = y.cols;
  work.seq = g.model().seq_length;
  work.width = taps;
  work.bias = has_bias;
  std::vector<Operand> operands = {reads(x),
                                   reads(g.parameter("conv.weight", {Dim::heads, x.cols}, {Dim::none, taps}))};
  if (has_bias) operands.push_back(reads(g.vector("conv.bias", {Dim::heads, x.cols})));
  operands.push_back(writes(y));
  g.add("conv", "fprop", work, std::move(operands));
  return y;
}

Gates gates_of(Builder& g, std::int64_t heads, const Slice& raw_decay, const Slice* raw_rate) {
  const auto number = [&](const char* name, const char* gradient) {
    const Slice made = g.activation({name, gradient}, heads, Dim::heads);
    g.of(made).kind = ValueKind::statistics;
    return made;
  };
  const Gates gates{number("gates.rate", "d_gates.rate"), number("gates.decay", "d_gates.decay")};
  std::vector<Operand> operands;
  if (raw_rate != nullptr) operands.push_back(reads(*raw_rate));
  const Extent of_heads{Dim::heads, heads};
  operands.insert(operands.end(), {reads(raw_decay), reads(g.vector("a_log", of_heads)),
                                   reads(g.vector("dt_bias", of_heads)), writes(gates.rate), writes(gates.decay)});
  g.add("gates", "fprop", LinearGates{Pass::forward, 0, heads, raw_rate != nullptr}, std::move(operands));
  return gates;
}

void leave(Builder& g, const Gated& gated, const Slice& x, const Slice& out) {
  const Slice y = g.activation({"out_norm.out", "d_out_norm"}, gated.o.cols, Dim::heads);
  const Extent width{gated.norm.gate_first ? Dim::heads : Dim::none, gated.norm.weights()};
  g.add("out_norm", "fprop", gated.norm,
        {reads(gated.o), reads(gated.z), reads(g.vector("out_norm.weight", width)), writes(y)});
  const Slice b = g.sublayer_result("proj");
  g.linear("out_proj", y, b, false);
  // Layers of all mixers share the backward pass of this addition, and with it the name of the term's gradient.
  g.residual("residual_1", "proj", x, g.normed_result("proj", b), out, DropoutSite::residual_1);
}

}  // namespace stretto::layers
