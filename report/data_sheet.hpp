#pragma once
#include <optional>
#include <string_view>

#include "model/ops/dtype.hpp"

namespace stretto {

// Returns the peak of a device by its data sheet, dense, in TFLOP/s: bf16 on its tensor cores, f32 on its other cores
// (GEMMs of f32 do not use TF32). nullopt for other types and for a device that is not listed. `name` is CUDA's name,
// "NVIDIA H100 80GB HBM3".
std::optional<double> data_sheet_TFLOPs(std::string_view name, Dtype dtype);

// Returns the most power of a GPU in watts, its boards and nodes apart; nullopt where the data sheets do not list it. A
// device whose name states its limit ("NVIDIA H100-SXM5-96GB, 500 W") has that.
std::optional<double> data_sheet_watts(std::string_view name);

}  // namespace stretto
