#include "model/low_precision.hpp"

#include "base/values_of.hpp"

namespace stretto {

const char* name_of(LowPrecision::Fp8Format format) { return name_in({"none", "e4m3", "hybrid"}, format); }
const char* name_of(LowPrecision::Fp8Recipe recipe) {
  return name_in({"delayed", "tensorwise", "blockwise", "mxfp8"}, recipe);
}
const char* name_of(LowPrecision::AmaxAlgo algo) { return name_in({"most_recent", "max"}, algo); }
const char* name_of(LowPrecision::Fp4Format format) { return name_in({"none", "e2m1"}, format); }
const char* name_of(LowPrecision::Fp4Recipe recipe) { return name_in({"nvfp4"}, recipe); }
const char* name_of(LowPrecision::WireDtype dtype) { return name_in({"bf16", "mxfp8"}, dtype); }
const char* name_of(LowPrecisionRules::Recipe recipe) {
  return name_in({"none", "delayed", "tensorwise", "blockwise", "mxfp8", "nvfp4"}, recipe);
}

LowPrecisionRules rules_of(const LowPrecision& p, double compute_capability) {
  using Recipe = LowPrecisionRules::Recipe;
  LowPrecisionRules rules;
  if (!p.is_on()) return rules;
  rules.transposes = p.fp8_transposes;
  if (p.fp4_format != LowPrecision::Fp4Format::none) {
    rules.recipe = Recipe::nvfp4;
    rules.forward = rules.backward = Dtype::e2m1x2;
    rules.activations = Scaling::nv;
    rules.weights = Scaling::nv_16x16;
    rules.transposes = true;  // cuBLASLt has no other products of e2m1
    rules.align = 16;
    return rules;
  }
  if (p.fp8_format == LowPrecision::Fp8Format::hybrid) rules.backward = Dtype::e5m2;
  const auto set = [&](Recipe recipe, Scaling activations, Scaling weights) {
    rules.recipe = recipe;
    rules.activations = activations;
    rules.weights = weights;
    rules.align = activations == Scaling::tensor ? 16 : rule_of(activations).block;
  };
  switch (p.fp8_recipe) {
    case LowPrecision::Fp8Recipe::delayed:
      set(Recipe::delayed, Scaling::tensor, Scaling::tensor);
      break;
    case LowPrecision::Fp8Recipe::tensorwise:
      set(Recipe::tensorwise, Scaling::tensor, Scaling::tensor);
      break;
    case LowPrecision::Fp8Recipe::blockwise:
      if (compute_capability >= 10)
        set(Recipe::blockwise, Scaling::mx, Scaling::mx);
      else
        set(Recipe::blockwise, Scaling::block_128, Scaling::block_128x128);
      break;
    case LowPrecision::Fp8Recipe::mxfp8:
      set(Recipe::mxfp8, Scaling::mx, Scaling::mx);
      rules.transposes = false;
      rules.sends_rows = p.moe_dispatch_fwd_dtype == LowPrecision::WireDtype::mxfp8;
      rules.sends_gradients = p.moe_combine_bwd_dtype == LowPrecision::WireDtype::mxfp8;
      break;
  }
  return rules;
}

}  // namespace stretto
