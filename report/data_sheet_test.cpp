#include "report/data_sheet.hpp"

#include <catch2/catch.hpp>

#include "base/data_folder.hpp"
#include "sim/platform.hpp"

TEST_CASE("peaks by the name of a device", "[report]") {
  using stretto::data_sheet_TFLOPs;
  using stretto::Dtype;
  CHECK(data_sheet_TFLOPs("NVIDIA H100 80GB HBM3", Dtype::bf16) == 989.4);
  CHECK(data_sheet_TFLOPs("NVIDIA H100 80GB HBM3", Dtype::f32) == 67);
  CHECK(data_sheet_TFLOPs("NVIDIA H100 PCIe", Dtype::bf16) == 756);
  CHECK(data_sheet_TFLOPs("NVIDIA H200", Dtype::bf16) == 989.4);
  CHECK(data_sheet_TFLOPs("NVIDIA A100-SXM4-80GB", Dtype::bf16) == 312);
  CHECK(data_sheet_TFLOPs("NVIDIA GB200", Dtype::bf16) == 2500);
  CHECK_FALSE(data_sheet_TFLOPs("Fake GPU", Dtype::bf16));
  CHECK_FALSE(data_sheet_TFLOPs("NVIDIA H100 80GB HBM3", Dtype::f64));
}

TEST_CASE("published platforms have the peaks of the data sheets", "[report]") {
  using namespace stretto;
  for (const std::string& name : data_names("platforms")) {
    const sim::Platform platform = sim::read_platform(data_file("platforms", name));
    INFO(platform.device);
    CHECK(data_sheet_TFLOPs(platform.device, Dtype::bf16) == platform.accelerator->peak_TFLOPs.value);
  }
}
