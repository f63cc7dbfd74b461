#pragma once
#include "calibrate/minimal.hpp"
#include "calibrate/probes/gpu.hpp"

namespace stretto::testing {

// Returns sizes for calibrating the emulated device: every probe, as small as possible.
inline calibrate::GpuSizes tiny_gpu_sizes() {
  calibrate::GpuSizes sizes;
  sizes.steps = {{{16, 2, 8, 2, 256}, "bf16"},
                 {{24, 3, 16, 1, 256, 3}, "bf16"},
                 {{24, 4, 8, 1, 256, 2}, "bf16"},
                 {{16, 2, 16, 1, 256}, "bf16", 0.1},
                 {{16, 2, 8, 1, 256}, "fp32"},
                 {{16, 2, 8, 2, 256}, "bf16", 0, true},
                 {{16, 2, 8, 2, 256}, "bf16", 0, true, AttentionBackend::fused, true},
                 {{16, 2, 8, 2, 256}, "bf16", 0.1, false, AttentionBackend::unfused},
                 {{24, 4, 16, 1, 256, 2}, "bf16", 0.1, false, AttentionBackend::unfused},
                 {{16, 2, 8, 2, 256, 2, 1}, "bf16", 0, false, AttentionBackend::fused, false, {4, 8}},
                 {{24, 4, 8, 1, 256, 2, 1}, "bf16", 0, false, AttentionBackend::fused, false, {2, 12, true}},
                 {{64, 2, 8, 1000000, 256}, "bf16"}};  // more than the device has
  sizes.gemms = {{16, 16, 16}, {16, 32, 8}};
  sizes.attentions = {{1, 2, 2, 8, 8}, {1, 2, 1, 16, 8}};
  sizes.streamed = {256, 1024};
  sizes.members = {2, 4};
  sizes.elements = {64, 256};
  sizes.ctas = {1, 2};
  sizes.classes = {{16, 16, 16, false, true, false}, {Pass::forward, 1, 2, 2, 8, 8, true}, 8, 16, 256, Dtype::bf16};
  sizes.slice_elements = 64;
  sizes.window_us = 10;
  sizes.repeats = 2;
  return sizes;
}

inline calibrate::MinimalSizes tiny_minimal_sizes() { return {{128, 128, 128}, 1 << 12, 2, 0.1}; }

}  // namespace stretto::testing
