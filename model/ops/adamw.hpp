#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/ops/expr.hpp"
#include "model/ops/operand_list.hpp"
#include "model/ops/pass.hpp"

namespace stretto {

// AdamW (Loshchilov & Hutter, arXiv 1711.05101) on one shard of a bucket, with global-norm clipping included: g is
// multiplied by min(1, clip / (norm + 1e-6)) (Megatron's and PyTorch's clip_grad_norm_), norm = sqrt(norm_squared).
// grad[1,elements] R, norm_squared[1,1] f64 R, hyper[1,8] f64 R, param A, m A, v A. hyper = {lr, beta1, beta2, eps,
// weight_decay, clip (0 = off), 1 − beta1^t, 1 − beta2^t}. `decayed` are the ranges of the *bucket* [begin, end) to
// which weight decay applies (matrices, not biases and norms); the shard covers [shard · elements, (shard + 1) ·
// elements) of it. With `master` the last operand is the master parameters, A: they are updated, and param W is their
// rounded copy. m, v and master may have types of their own: each is widened, updated in the type of the gradient and
// rounded to nearest, ties to even. With `remainders` too the last operand is i16, the lower halves of masters in f32
// whose upper halves, rounded to nearest with ties away from zero, are param A in bf16 (store_param_remainders of
// Megatron-LM d98e8a64; AdamFunctorMasterParamRemainder of TransformerEngine d0067d0, common/multi_tensor/adam.cu).
struct AdamW {
  std::int64_t elements = 0;
  struct Range {
    std::int64_t begin = 0, end = 0;
    bool operator==(const Range&) const = default;
  };
  std::vector<Range> decayed;
  std::int64_t shards = 1;
  bool master = false;
  Expr shard = 0;
  bool remainders = false;

  static constexpr const char* kKind = "adamw";
  static constexpr std::array kFields = {"elements", "decayed", "shards", "master", "shard", "remainders"};
  bool operator==(const AdamW&) const = default;
};

OperandList operands(const AdamW& work);
std::string sizes_text(const AdamW& work);

}  // namespace stretto
