#include "model/optimizer_precision.hpp"

#include "base/values_of.hpp"

namespace stretto {
namespace {

// Bytes of an element that is not in f32, beyond the kernel's 8 of its f32 copy (get_unscaled_state and _apply_scale of
// fused_adam.py). Widening reads the element and writes 4 bytes; rounding reads 4 and writes the element.
constexpr double kScalePass = 8;    // an operation in place on the f32 copy
constexpr double kLargestPass = 4;  // aminmax reads the f32 copy
double widened_bytes(Dtype type) {
  const auto own = static_cast<double>(bytes_of(type));
  const double there_and_back = 2 * (own + 4);
  switch (type) {
    case Dtype::f16:  // .float() and mul_; aminmax, mul_ and copy_
      return there_and_back + kScalePass + kLargestPass + kScalePass;
    case Dtype::e4m3:  // .float(); aminmax and a cast with its scale
      return there_and_back + kLargestPass;
    case Dtype::bf16:  // .float(); .bfloat16() and copy_
      return there_and_back + 2 * own;
    default:
      return 0;
  }
}

double moment_bytes(Dtype type, bool in_kernel) {
  return in_kernel ? 2 * static_cast<double>(bytes_of(type)) : 8 + widened_bytes(type);
}

}  // namespace

bool OptimizerPrecision::has_scaled_states() const {
  const auto scaled = [](Moment type) { return type == Moment::fp16 || type == Moment::fp8; };
  return main_params_dtype == Parameters::fp16 || scaled(exp_avg_dtype) || scaled(exp_avg_sq_dtype);
}

const char* name_of(OptimizerPrecision::Gradients type) { return name_in({"fp32", "bf16"}, type); }
const char* name_of(OptimizerPrecision::Parameters type) { return name_in({"fp32", "fp16"}, type); }
const char* name_of(OptimizerPrecision::Moment type) { return name_in({"fp32", "fp16", "bf16", "fp8"}, type); }

Dtype dtype_of(OptimizerPrecision::Moment type, Dtype sums) {
  if (sums != Dtype::f32) return sums;
  switch (type) {
    case OptimizerPrecision::Moment::fp16:
      return Dtype::f16;
    case OptimizerPrecision::Moment::bf16:
      return Dtype::bf16;
    case OptimizerPrecision::Moment::fp8:
      return Dtype::e4m3;
    case OptimizerPrecision::Moment::fp32:
      break;
  }
  return sums;
}

double state_traffic_bytes(Dtype m, Dtype v, Dtype master) {
  const bool is_fused = m == v && m == Dtype::bf16;
  const double parameter = master == Dtype::i16 ? 4 : 2;  // read and written, or written alone
  const double of_master = master == Dtype::i16 ? 4 : 8 + widened_bytes(master);
  return parameter + of_master + moment_bytes(m, is_fused) + moment_bytes(v, is_fused);
}

}  // namespace stretto
