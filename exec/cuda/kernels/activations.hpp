#pragma once
#include "exec/cuda/device.hpp"

namespace stretto::cuda {

// Activations of MLPs and their slopes, as on the host. gelu(x) = x · sigmoid(2u), u = sqrt(2/pi) · (x + 0.044715 x³).
constexpr float kTwiceSqrtTwoOverPi = 1.5957691216057307f, kCubic = 0.044715f;

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }
__device__ inline float gelu_gate(float x) { return sigmoid(kTwiceSqrtTwoOverPi * x * (1.0f + kCubic * x * x)); }
__device__ inline float gelu(float x) { return x * gelu_gate(x); }
__device__ inline float gelu_slope(float x) {
  const float s = gelu_gate(x);
  return s + x * s * (1.0f - s) * kTwiceSqrtTwoOverPi * (1.0f + 3.0f * kCubic * x * x);
}
__device__ inline float silu(float x) { return x * sigmoid(x); }
__device__ inline float silu_slope(float x) {
  const float s = sigmoid(x);
  return s * (1.0f + x * (1.0f - s));
}

}  // namespace stretto::cuda
