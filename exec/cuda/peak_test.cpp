#include "exec/cuda/peak.hpp"

#include <catch2/catch.hpp>

TEST_CASE("peaks by the name of a device", "[cuda]") {
  using stretto::cuda::peak_bf16_TFLOPs;
  CHECK(peak_bf16_TFLOPs("NVIDIA H100 80GB HBM3") == 989.4);
  CHECK(peak_bf16_TFLOPs("NVIDIA H100 PCIe") == 756);
  CHECK(peak_bf16_TFLOPs("NVIDIA H200") == 989.4);
  CHECK(peak_bf16_TFLOPs("NVIDIA A100-SXM4-80GB") == 312);
  CHECK(peak_bf16_TFLOPs("NVIDIA GB200") == 2500);
  CHECK_FALSE(peak_bf16_TFLOPs("Fake GPU"));
}
