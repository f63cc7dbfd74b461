#pragma once
#include <string>
#include <string_view>

namespace stretto {

// Returns the model of the GPU that a driver, a log or a platform names, in one spelling: "H100" for "NVIDIA H100 80GB
// HBM3" and "NVIDIA H100-SXM5-80GB", "H100 PCIe", "H100 NVL", "GB200", "A100" for "a100_sxm"; "" where the text has no
// word that is a model. Memory, power and the board's other words do not count: cards of one model differ less by them
// than models do.
std::string gpu_model(std::string_view device);

// Returns whether two names are surely of different models. A name without a model contradicts none.
bool are_other_gpus(std::string_view a, std::string_view b);

}  // namespace stretto
