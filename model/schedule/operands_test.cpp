#include "model/schedule/operands.hpp"

#include <catch2/catch.hpp>

using namespace stretto;

namespace {

// "name modes [rows,cols]" of each operand, or the error.
std::vector<std::string> listed(const Work& work) {
  const OperandList list = operands_of(work, 1);
  if (!list.error.empty()) return {list.error};
  std::vector<std::string> lines;
  for (const OperandSpec& o : list.operands)
    lines.push_back(std::string(o.name) + " " + o.modes + " [" + std::to_string(o.rows) + "," + std::to_string(o.cols) +
                    "]");
  return lines;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("operands of grouped-query attention and of rope") {
  Attention attention{Pass::dgrad, 2, 6, 2, 5, 4, true};
  CHECK(listed(attention) ==
        Lines{"qkv R [10,40]", "out R [10,24]", "lse R [12,5]", "dout R [10,24]", "dqkv W [10,40]"});
  attention.kv_heads = 4;
  CHECK(listed(attention) == Lines{"kv_heads must divide heads"});
  attention.kv_heads = 0;
  CHECK(listed(attention) == Lines{"dimensions must be positive"});

  Rope rope{Pass::forward, 10, 6, 2, 5, 4, 10000};
  CHECK(listed(rope) == Lines{"qkv A [10,40]"});
  rope.pass = Pass::dgrad;
  CHECK(listed(rope) == Lines{"dqkv A [10,40]"});
  rope.head_dim = 3;
  CHECK(listed(rope) == Lines{"head_dim must be even"});
  rope.head_dim = 4, rope.base = 0;
  CHECK(listed(rope) == Lines{"base must be positive"});
  rope.base = 1, rope.pass = Pass::wgrad;
  CHECK(listed(rope) == Lines{"rope has no weights"});
}

TEST_CASE("operands of unfused attention") {
  const auto of = [](AttentionFactor product) { return listed(AttentionProduct{product, 2, 6, 2, 5, 4}); };
  CHECK(of(AttentionFactor::scores) == Lines{"qkv R [10,40]", "scores W [60,5]"});
  CHECK(of(AttentionFactor::context) == Lines{"probabilities R [60,5]", "qkv R [10,40]", "out W [10,24]"});
  CHECK(of(AttentionFactor::dv) == Lines{"probabilities R [60,5]", "dout R [10,24]", "dv W [10,8]"});
  CHECK(of(AttentionFactor::dp) == Lines{"dout R [10,24]", "qkv R [10,40]", "dprobabilities W [60,5]"});
  CHECK(of(AttentionFactor::dq) == Lines{"dscores R [60,5]", "qkv R [10,40]", "dq W [10,24]"});
  CHECK(of(AttentionFactor::dk) == Lines{"dscores R [60,5]", "qkv R [10,40]", "dk W [10,8]"});
  CHECK(listed(AttentionProduct{AttentionFactor::dk, 2, 6, 4, 5, 4}) == Lines{"kv_heads must divide heads"});
  CHECK(listed(AttentionProduct{AttentionFactor::dk, 2, 6, 2, 0, 4}) == Lines{"dimensions must be positive"});

  CHECK(listed(Softmax{Pass::forward, 10, 5}) == Lines{"scores R [10,5]", "probabilities W [10,5]"});
  CHECK(listed(Softmax{Pass::dgrad, 10, 5}) == Lines{"probabilities R [10,5]", "gradient A [10,5]"});
  CHECK(listed(Softmax{Pass::wgrad, 10, 5}) == Lines{"softmax has no weights"});
  CHECK(listed(Softmax{Pass::forward, 9, 5}) == Lines{"causal rows must be whole squares"});
  CHECK(listed(Softmax{Pass::forward, 9, 5, false}) == Lines{"scores R [9,5]", "probabilities W [9,5]"});

  Dropout dropout{Pass::forward, 10, 5, 10, 0.1, DropoutSite::attention, false, false, 0, 0, true};
  CHECK(listed(dropout) == Lines{"b R [10,5]", "key R [1,3]", "c W [10,5]", "mask W [10,2]"});
  dropout.pass = Pass::dgrad;
  CHECK(listed(dropout) == Lines{"dc R [10,5]", "mask R [10,2]", "db W [10,5]"});
}

TEST_CASE("operands of GEMMs with the residual") {
  Gemm gemm{3, 8, 5, false, true, true, GemmEpilogue::residual};
  CHECK(listed(gemm) == Lines{"A R [3,5]", "B R [8,5]", "bias R [1,8]", "X R [3,8]", "C W [3,8]"});
  gemm.bias = false;
  CHECK(listed(gemm) == Lines{"A R [3,5]", "B R [8,5]", "X R [3,8]", "C W [3,8]"});
}

TEST_CASE("a maximum is of what is reduced") {
  CHECK(listed(Collective{CollectiveKind::all_reduce, 0, 8, Reduction::max}) == Lines{"buffer A [1,8]"});
  CHECK(operands_of(Collective{CollectiveKind::all_gather, 0, 8, Reduction::max}, 2).error ==
        "the reduction is max, and nothing is reduced");
}

TEST_CASE("operands of norms, gated activations and embeddings") {
  CHECK(listed(RmsNorm{Pass::forward, 3, 8}) == Lines{"x R [3,8]", "gamma R [1,8]", "y W [3,8]", "stats W [3,1]"});
  CHECK(listed(RmsNorm{Pass::dgrad, 3, 8}) ==
        Lines{"dy R [3,8]", "x R [3,8]", "stats R [3,1]", "gamma R [1,8]", "dx WA [3,8]"});
  CHECK(listed(RmsNorm{Pass::wgrad, 3, 8}) == Lines{"dy R [3,8]", "x R [3,8]", "stats R [3,1]", "dgamma A [1,8]"});
  CHECK(listed(RmsNorm{Pass::backward, 3, 8}) ==
        Lines{"dy R [3,8]", "x R [3,8]", "stats R [3,1]", "gamma R [1,8]", "dgamma A [1,8]", "dx WA [3,8]"});
  CHECK(listed(LayerNorm{Pass::backward, 3, 8}) == Lines{"dy R [3,8]", "x R [3,8]", "stats R [3,2]", "gamma R [1,8]",
                                                         "dgamma A [1,8]", "dbeta A [1,8]", "dx WA [3,8]"});
  CHECK(operands_of(Attention{Pass::backward, 1, 1, 1, 1, 1, true}, 1).error == "attention has no weights");
  CHECK(operands_of(Embedding{Pass::backward, 3, 8, 20, 5}, 1).error == "tokens have no gradient");
  CHECK(listed(Elementwise{ElementwiseFn::swiglu, 3, 8}) == Lines{"gate R [3,8]", "up R [3,8]", "y W [3,8]"});
  CHECK(listed(Elementwise{ElementwiseFn::swiglu_backward, 3, 8}) ==
        Lines{"dy R [3,8]", "gate R [3,8]", "up R [3,8]", "dx W [3,16]"});
  Embedding embedding{Pass::forward, 3, 8, 20, 5};
  CHECK(listed(embedding) == Lines{"tokens R [1,3]", "wte R [20,8]", "wpe R [5,8]", "x W [3,8]"});
  embedding.positions = false;
  CHECK(listed(embedding) == Lines{"tokens R [1,3]", "wte R [20,8]", "x W [3,8]"});
  embedding.pass = Pass::wgrad;
  CHECK(listed(embedding) == Lines{"tokens R [1,3]", "dx R [3,8]", "dwte A [20,8]"});
  embedding.positions = true;
  CHECK(listed(embedding) == Lines{"tokens R [1,3]", "dx R [3,8]", "dwte A [20,8]", "dwpe A [5,8]"});
  embedding.pass = Pass::dgrad;
  CHECK(listed(embedding) == Lines{"tokens have no gradient"});
}
