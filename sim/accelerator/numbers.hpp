#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/toml.hpp"
#include "sim/accelerator/accelerator.hpp"

namespace stretto::sim {

// A number of [accelerator]: its place in the file, and its limits.
struct AcceleratorNumber {
  const char* section = "";  // "nvlink" for [accelerator.nvlink]; "" for [accelerator] itself
  const char* key = "";
  Quantity* quantity = nullptr;
  Limits<double> limits;
  bool of_data_sheet = false;  // a file must have it; other numbers have a default

  std::string name() const { return *section == '\0' ? key : std::string(section) + "." + key; }
};

// Returns all numbers but those of attention kernels, in the order of the file. They point into `accelerator`.
std::vector<AcceleratorNumber> numbers_of(Accelerator& accelerator);

// Sets every number that is not on the data sheet, and the attention kernels, to the values that are assumed for a GPU
// with no other known number: shares that the shipped platforms have in common, and a roofline. It needs
// peak_TFLOPs, hbm_GBps and whether there is a table of GEMMs.
void set_defaults(Accelerator& accelerator);

// Limits of TFLOP/s and GB/s; a number outside them is a typing error: the upper limit is some forty times the
// arithmetic of a GPU of 2026, and ten times its memory's rate. Kind: assumed.
constexpr Limits<double> kRate{.min = 1e-6, .max = 1e5};

constexpr int kDefaultSms = 132;

// Returns the text of [accelerator] that read_accelerator() reads, with its tables in files of these names.
std::string accelerator_text(const Accelerator& accelerator, const std::string& gemm_file,
                             const std::string& collective_file);

// Returns a string as TOML, on one line.
std::string toml_string(std::string_view text);

}  // namespace stretto::sim
