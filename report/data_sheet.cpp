#include "report/data_sheet.hpp"

#include <array>

namespace stretto {

std::optional<double> data_sheet_TFLOPs(std::string_view name, Dtype dtype) {
  if (dtype != Dtype::bf16 && dtype != Dtype::f32) return std::nullopt;
  struct Sheet {
    std::string_view part;  // part of the device's name; the first match counts
    double bf16, f32;
  };
  // NVIDIA's data sheets of the A100 (2021), H100 (2023: SXM, PCIe, NVL), H200 (2024), L40S (2023), HGX B200, GB200, HGX
  // B300 and GB300 (2025). Where a sheet has only the figure with sparsity, half of that.
  static constexpr std::array kSheets = {
      Sheet{"A100", 312, 19.5}, Sheet{"H100 PCIe", 756, 51}, Sheet{"H100 NVL", 835.5, 60}, Sheet{"H100", 989.4, 67},
      Sheet{"H200", 989.4, 67}, Sheet{"L40S", 362.05, 91.6}, Sheet{"GB200", 2500, 80},     Sheet{"B200", 2250, 75},
      Sheet{"GB300", 2500, 77}, Sheet{"B300", 2250, 72}};
  for (const auto& [part, bf16, f32] : kSheets)
    if (name.find(part) != std::string_view::npos) return dtype == Dtype::bf16 ? bf16 : f32;
  return std::nullopt;
}

}  // namespace stretto
