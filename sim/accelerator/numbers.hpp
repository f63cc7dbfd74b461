#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/toml.hpp"
#include "sim/accelerator/accelerator.hpp"

namespace stretto::sim {

// A number of [accelerator]: where the file has it, and within which limits.
struct AcceleratorNumber {
  const char* section = "";  // "nvlink" for [accelerator.nvlink]; "" for [accelerator] itself
  const char* key = "";
  Quantity* quantity = nullptr;
  Limits<double> limits;
  bool of_data_sheet = false;  // a file must have it; else it has a default

  std::string name() const { return *section == '\0' ? key : std::string(section) + "." + key; }
};

// All of them but those of attention kernels, in the order in which a file is written. They point into `accelerator`.
std::vector<AcceleratorNumber> numbers_of(Accelerator& accelerator);

// Sets every number that is not of the data sheet, and the attention kernels, to what is assumed of a GPU of which
// nothing else is known: shares that the platforms which ship have in common, and a roofline. Of the data sheet it
// needs peak_TFLOPs, hbm_GBps and whether there is a table of GEMMs.
void set_defaults(Accelerator& accelerator);

// TFLOP/s and GB/s beyond which a number is a slip: some forty times what a GPU of 2026 multiplies, ten times what its
// memory moves. Kind: assumed.
constexpr double kMostRate = 1e5;

constexpr int kDefaultSms = 132;

// [accelerator] as read_accelerator() takes it, with its tables in files of these names.
std::string accelerator_text(const Accelerator& accelerator, const std::string& gemm_file,
                             const std::string& collective_file);

// A string of a TOML file, on one line.
std::string toml_string(std::string_view text);

}  // namespace stretto::sim
