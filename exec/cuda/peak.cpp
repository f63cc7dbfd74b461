#include "exec/cuda/peak.hpp"

#include <array>

namespace stretto::cuda {

std::optional<double> peak_bf16_TFLOPs(std::string_view name) {
  struct Sheet {
    std::string_view part;  // of the device's name; the first that fits
    double TFLOPs;
  };
  // NVIDIA's data sheets of the A100 (2021), H100 (2023: SXM, PCIe, NVL), H200 (2024), L40S (2023) and HGX B200 (2025).
  // Where a sheet has only the figure with sparsity, half of it.
  static constexpr std::array kSheets = {Sheet{"A100", 312},   Sheet{"H100 PCIe", 756}, Sheet{"H100 NVL", 835.5},
                                         Sheet{"H100", 989.4}, Sheet{"H200", 989.4},    Sheet{"L40S", 362.05},
                                         Sheet{"GB200", 2500}, Sheet{"B200", 2250}};
  for (const auto& [part, TFLOPs] : kSheets)
    if (name.find(part) != std::string_view::npos) return TFLOPs;
  return std::nullopt;
}

}  // namespace stretto::cuda
