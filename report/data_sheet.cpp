#include "report/data_sheet.hpp"

#include <array>
#include <system_error>

#include "base/charconv.hpp"

namespace stretto {

std::optional<double> data_sheet_TFLOPs(std::string_view name, Dtype dtype) {
  if (dtype != Dtype::bf16 && dtype != Dtype::f32) return std::nullopt;
  struct Sheet {
    std::string_view part;  // part of the device's name; the first match counts
    double bf16, f32;
  };
  // NVIDIA's data sheets of the A100 (2021), A800 and H800 (2023: A100 and H100 with slower links), H20 (2023), H100
  // (2023: SXM, PCIe, NVL), H200 (2024; GH200 has the same peaks), L40S (2023), HGX B200, GB200, HGX B300 and GB300
  // (2025). AMD's of the MI300X (2023), MI325X (2024) and MI355X (2025), f32 by matrix cores. Where a sheet has only
  // the figure with sparsity, half of that.
  static constexpr std::array kSheets = {
      Sheet{"A100", 312, 19.5},    Sheet{"H100 PCIe", 756, 51},    Sheet{"H100 NVL", 835.5, 60},
      Sheet{"H100", 989.4, 67},    Sheet{"H200", 989.4, 67},       Sheet{"A800", 312, 19.5},
      Sheet{"H800", 989.4, 67},    Sheet{"H20", 148, 44},          Sheet{"L40S", 362.05, 91.6},
      Sheet{"GB200", 2500, 80},    Sheet{"B200", 2250, 75},        Sheet{"GB300", 2500, 77},
      Sheet{"B300", 2250, 72},     Sheet{"MI300X", 1307.4, 163.4}, Sheet{"MI325X", 1307.4, 163.4},
      Sheet{"MI355X", 2500, 157.3}};
  for (const auto& [part, bf16, f32] : kSheets)
    if (name.find(part) != std::string_view::npos) return dtype == Dtype::bf16 ? bf16 : f32;
  return std::nullopt;
}

std::optional<double> data_sheet_watts(std::string_view name) {
  if (const std::size_t at = name.find(" W"); at != std::string_view::npos && at + 2 == name.size()) {
    double watts = 0;
    const std::size_t begin = name.find_last_of(' ', at - 1) + 1;
    if (from_chars(name.data() + begin, name.data() + at, watts).ec == std::errc()) return watts;
  }
  struct Sheet {
    std::string_view part;
    double watts;
  };
  // The data sheets above: "max thermal design power", AMD's "typical board power". Of the A100 that of SXM4 with 80
  // GB, of GB200 that of one GPU. GH200's limit is of GPU and CPU together, and the maker of a node chooses it: none.
  if (name.find("GH200") != std::string_view::npos) return std::nullopt;
  static constexpr std::array kSheets = {Sheet{"A100-SXM4-80GB", 400}, Sheet{"H100 PCIe", 350}, Sheet{"H100 NVL", 400},
                                         Sheet{"H100", 700},           Sheet{"H200 NVL", 600},  Sheet{"H200", 700},
                                         Sheet{"A800-SXM4", 400},      Sheet{"H800", 700},      Sheet{"H20", 400},
                                         Sheet{"A100-SXM4-40GB", 400}, Sheet{"L40S", 350},      Sheet{"GB200", 1200},
                                         Sheet{"B200", 1000},          Sheet{"MI300X", 750},    Sheet{"MI325X", 1000},
                                         Sheet{"MI355X", 1400}};
  for (const auto& [part, watts] : kSheets)
    if (name.find(part) != std::string_view::npos) return watts;
  return std::nullopt;
}

}  // namespace stretto
