#include <algorithm>
#include <array>
#include <tuple>

#include "calibrate/minimal.hpp"
#include "calibrate/probes/gpu.hpp"

namespace stretto::calibrate {
namespace {

// Returns linear layers of GPT-2's and Llama's widths, whole and cut by tensor parallelism of 2 and 4.
std::vector<GemmShape> linear_layers() {
  std::vector<GemmShape> shapes = {{8192, 8192, 8192}};
  for (const std::int64_t h : {768, 1024, 1600, 2048, 3072, 4096, 5120, 8192})
    for (const std::int64_t tp : {1, 2, 4})
      for (const std::int64_t tokens : {1024, 4096, 16384}) {
        if (h >= 5120 && tokens > 4096) continue;
        shapes.push_back({tokens, 3 * h / tp, h});
        shapes.push_back({tokens, h, h / tp});
        shapes.push_back({tokens, 4 * h / tp, h});
        shapes.push_back({tokens, h, 4 * h / tp});
      }
  for (const std::int64_t tp : {1, 2, 4}) {  // numbers of heads
    shapes.push_back({8192, 50304 / tp, 768});
    shapes.push_back({4096, 50304 / tp, 1600});
    shapes.push_back({4096, 32000 / tp, 4096});
  }
  const auto key = [](const GemmShape& s) { return std::tuple(s.tokens, s.outputs, s.inputs); };
  std::sort(shapes.begin() + 1, shapes.end(), [&](const GemmShape& a, const GemmShape& b) { return key(a) < key(b); });
  shapes.erase(std::unique(shapes.begin() + 1, shapes.end(),
                           [&](const GemmShape& a, const GemmShape& b) { return key(a) == key(b); }),
               shapes.end());
  return shapes;
}

}  // namespace

GpuSizes gpu_sizes() {
  GpuSizes sizes;
  sizes.steps = {
      {{512, 8, 512, 8, 8192}, "bf16"},           {{768, 12, 1024, 4, 50304}, "bf16"},
      {{768, 12, 1024, 16, 50304}, "bf16"},       {{1024, 16, 1024, 8, 50304}, "bf16"},
      {{1280, 20, 1024, 8, 50304}, "bf16"},       {{1600, 25, 1024, 4, 50304}, "bf16"},
      {{2048, 32, 2048, 2, 32000, 32}, "bf16"},   {{4096, 32, 2048, 2, 32000, 32}, "bf16"},
      {{4096, 32, 8192, 1, 8192, 32, 1}, "bf16"}, {{8192, 64, 2048, 1, 8192, 64, 1}, "bf16"},
      {{2048, 16, 2048, 2, 32000, 4}, "bf16"},    {{1024, 16, 512, 4, 8192}, "bf16", 0.1},
      {{2048, 16, 1024, 2, 8192}, "bf16", 0.1},   {{512, 8, 512, 4, 8192}, "fp32"},
      {{768, 12, 512, 4, 8192}, "fp32"},          {{1024, 16, 512, 2, 8192, 4}, "fp32"},
  };
  for (const StepShape& shape : {StepShape{512, 8, 512, 8, 8192}, StepShape{768, 12, 1024, 16, 8192},
                                 StepShape{1024, 16, 1024, 8, 8192}, StepShape{1600, 25, 1024, 4, 8192},
                                 StepShape{1024, 16, 1024, 8, 8192, 16}, StepShape{2048, 16, 2048, 2, 8192, 16}})
    for (const bool sums_gelu : {false, true})
      sizes.steps.push_back({shape, "bf16", 0, true, AttentionBackend::fused, sums_gelu});
  for (const StepShape& shape :
       {StepShape{512, 8, 512, 4, 8192}, StepShape{1024, 16, 512, 4, 8192}, StepShape{768, 12, 1024, 4, 8192},
        StepShape{2048, 16, 1024, 2, 8192}, StepShape{1024, 16, 2048, 1, 8192}, StepShape{2048, 16, 2048, 1, 8192, 4}})
    sizes.steps.push_back({shape, "bf16", 0.1, false, AttentionBackend::unfused});
  // Widths of experts of Qwen3-30B-A3B, Mixtral and between.
  for (const auto& [shape, mixture] : {std::pair{StepShape{1024, 16, 1024, 4, 8192, 4}, MixtureShape{8, 2048}},
                                       {StepShape{2048, 32, 2048, 2, 8192, 4}, MixtureShape{32, 768}},
                                       {StepShape{2048, 16, 4096, 2, 8192, 4}, MixtureShape{64, 1024}},
                                       {StepShape{4096, 32, 4096, 1, 8192, 8}, MixtureShape{4, 14336}},
                                       {StepShape{1024, 16, 1024, 8, 8192, 4}, MixtureShape{16, 1024, true}},
                                       {StepShape{2048, 16, 2048, 4, 8192, 4}, MixtureShape{64, 512, true}},
                                       {StepShape{4096, 32, 2048, 2, 8192, 8}, MixtureShape{8, 4096, true}}})
    sizes.steps.push_back({shape, "bf16", 0, false, AttentionBackend::fused, false, mixture});
  sizes.gemms = linear_layers();
  sizes.attentions = {
      {16, 12, 12, 512, 64},  {4, 25, 25, 1024, 64},  {4, 16, 16, 2048, 64},  {2, 12, 12, 4096, 64},
      {1, 16, 16, 8192, 64},  {1, 8, 8, 16384, 64},   {8, 16, 16, 512, 128},  {4, 16, 16, 1024, 128},
      {2, 32, 32, 2048, 128}, {1, 16, 16, 4096, 128}, {1, 32, 32, 4096, 128}, {1, 8, 8, 8192, 128},
      {1, 4, 4, 16384, 128},  {4, 6, 6, 1024, 64},    {4, 3, 3, 1024, 64},    {2, 32, 8, 1024, 128},
      {1, 32, 8, 2048, 128},
  };
  sizes.streamed = {1 << 14, 1 << 17, 1 << 20, 1 << 22, 1 << 24, 1 << 26};
  sizes.members = {2, 4};
  sizes.elements = {1 << 10, 1 << 14, 1 << 18, 1 << 21, 1 << 23, 1 << 25};
  sizes.ctas = {1, 2, 4, 8, 16, 24, 32, 64};
  sizes.classes = {{4096, 4096, 4096, false, true, false},
                   {Pass::forward, 4, 16, 16, 2048, 128, true},
                   8192,
                   8192,
                   64 << 20,
                   Dtype::bf16};
  sizes.slice_elements = 8 << 20;
  sizes.window_us = 4000;
  sizes.repeats = 5;
  return sizes;
}

MinimalSizes minimal_sizes() { return {{8192, 8192, 8192}, 1 << 28, 20, 30}; }

}  // namespace stretto::calibrate
