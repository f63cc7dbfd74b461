#include "model/layers/layers.hpp"

namespace stretto::layers {

void head(Builder& g, const std::string& weight) {
  const Transformer& m = g.model();
  g.set_module(Module::final_norm);
  const Slice h = g.hidden("ln_f", TensorRole::final_norm_out);
  g.norm("ln_f", g.stream(Given::input), h, 1, false);
  g.set_module(Module::head);
  const Slice logits = g.activation({"logits", {}, TensorRole::logits}, m.padded_vocab_size, Dim::vocab);
  const Slice w = g.parameter(weight, {Dim::vocab, m.padded_vocab_size}, {Dim::none, m.hidden_size}, false);
  g.linear("lm_head", w, h, logits, false);
  CrossEntropy work;
  work.classes = m.vocab_size;
  work.masked = g.data().masks_ends;
  std::vector<Operand> operands = {adds(logits), reads(g.given(Given::targets))};
  if (work.masked) operands.push_back(reads(g.given(Given::loss_weight)));
  operands.push_back(adds(g.given(Given::loss)));
  g.add("cross_entropy", "", work, std::move(operands));
}

}  // namespace stretto::layers
