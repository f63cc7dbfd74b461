#pragma once
#include <optional>
#include <string_view>

namespace stretto::cuda {

// What a device's tensor cores do at most in bf16, dense, by its data sheet, in TFLOP/s; nullopt for a device that is
// not listed. `name` as CUDA has it, "NVIDIA H100 80GB HBM3".
std::optional<double> peak_bf16_TFLOPs(std::string_view name);

}  // namespace stretto::cuda
