#include "base/gpu_name.hpp"

#include <catch2/catch.hpp>

namespace stretto {

TEST_CASE("the model of a GPU is one word of its name", "[gpu_name]") {
  CHECK(gpu_model("NVIDIA H100 80GB HBM3") == "H100");
  CHECK(gpu_model("NVIDIA H100-SXM5-96GB, 500 W") == "H100");
  CHECK(gpu_model("NVIDIA H100 PCIe") == "H100 PCIe");
  CHECK(gpu_model("NVIDIA H100 NVL") == "H100 NVL");
  CHECK(gpu_model("NVIDIA A100-SXM4-80GB") == "A100");
  CHECK(gpu_model("a100_sxm") == "A100");
  CHECK(gpu_model("NVIDIA GB200") == "GB200");
  CHECK(gpu_model("GB200 NVL72") == "GB200");
  CHECK(gpu_model("NVIDIA GH200 120GB") == "GH200");
  CHECK(gpu_model("Tesla V100-SXM2-32GB") == "V100");
  CHECK(gpu_model("NVIDIA L40S") == "L40S");
  CHECK(gpu_model("Tesla T4") == "T4");
  CHECK(gpu_model("AMD Instinct MI300X") == "MI300X");
  for (const char* unknown : {"", "GPU", "NVIDIA Graphics Device", "AMD EPYC", "SXM5 80GB HBM3", "NVIDIA"})
    CHECK(gpu_model(unknown).empty());
}

TEST_CASE("only two models that are known are different", "[gpu_name]") {
  CHECK_FALSE(are_other_gpus("NVIDIA H100 80GB HBM3", "NVIDIA H100-SXM5-80GB"));
  CHECK(are_other_gpus("NVIDIA H100 80GB HBM3", "NVIDIA GB200"));
  CHECK(are_other_gpus("NVIDIA H100 PCIe", "NVIDIA H100-SXM5-80GB"));
  CHECK_FALSE(are_other_gpus("", "NVIDIA GB200"));
}

}  // namespace stretto
