#pragma once
#include <cstdint>

#include "model/ops/dtype.hpp"

namespace stretto {

// Types of the optimizer's numbers (Megatron-LM's precision-aware optimizer, by its names at d98e8a64; the kernels are
// those of TransformerEngine's FusedAdam at d0067d0). All arithmetic is in f32 in any case.
struct OptimizerPrecision {
  enum class Gradients : std::uint8_t { fp32, bf16 };
  enum class Parameters : std::uint8_t { fp32, fp16 };
  enum class Moment : std::uint8_t { fp32, fp16, bf16, fp8 };

  bool use_precision_aware_optimizer = false;
  Gradients main_grads_dtype = Gradients::fp32;     // those that are reduced and that the optimizer reads
  Parameters main_params_dtype = Parameters::fp32;  // the masters
  Moment exp_avg_dtype = Moment::fp32, exp_avg_sq_dtype = Moment::fp32;

  bool operator==(const OptimizerPrecision&) const = default;
  // Returns whether states have one scale a tensor, which are predicted but not executed.
  bool has_scaled_states() const;
};
const char* name_of(OptimizerPrecision::Gradients type);   // "fp32", "bf16"
const char* name_of(OptimizerPrecision::Parameters type);  // "fp32", "fp16"
const char* name_of(OptimizerPrecision::Moment type);      // "fp32", "fp16", "bf16", "fp8"

// Returns the type of a moment's elements where sums are of type `sums`, which is theirs in f64; the scale of an fp8
// tensor is not counted.
Dtype dtype_of(OptimizerPrecision::Moment type, Dtype sums);

// Returns the bytes of an element that an update reads and writes for parameter, master and both moments, in these
// types. `master` is i16 where the upper half is the parameter. FusedAdam has one kernel for moments that are both in
// f32 or both in bf16. Other types are widened to temporary tensors in f32 before its kernel and rounded after it; f16
// and fp8 are scaled too, by the largest magnitude.
double state_traffic_bytes(Dtype m, Dtype v, Dtype master);

}  // namespace stretto
