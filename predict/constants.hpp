#pragma once
#include <string>
#include <vector>

#include "model/framework.hpp"
#include "sim/accelerator/accelerator.hpp"

namespace stretto::predict {

// One number that a prediction depends on, by its place in the files: "accelerator.hbm_share" of a platform,
// "kernels.hbm_share" or "host.issue_us" of a profile. Refers to the platform and the profile that it was taken from.
struct Constant {
  std::string name;
  Quantity* quantity = nullptr;

  bool is_fitted() const { return quantity->source.kind == "fitted"; }
  bool has_interval() const { return quantity->high > quantity->low; }  // interval of 80 % probability
};

// Returns the numbers on which steps of the framework on the GPU depend: where the profile has its own, not the
// platform's, and only the attention kernel that it names. Throws Error(input) when there is no such kernel.
std::vector<Constant> constants_of(sim::Accelerator& accelerator, Framework& framework);

}  // namespace stretto::predict
