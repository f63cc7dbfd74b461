#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/scenario.hpp"

namespace stretto::predict {

// How far predictions of one framework on one GPU are from its published steps: a row of scenarios/accuracy.csv, which
// scripts/figures writes from what `stretto validate` printed.
struct Accuracy {
  std::string profile, platform, precision;  // names; precision_of_products()
  std::int64_t steps = 0;
  double mean_abs_error_pct = 0;
};

// Returns all rows. Throws Error(input) where the file is missing or damaged.
std::vector<Accuracy> published_accuracies();
// Returns the row of the scenario's profile and the recipe of its products (LowPrecisionRules::Recipe; "" for 16 bits
// and more) on a platform by its name; nullopt where no published step was predicted so. Throws as that does.
std::optional<Accuracy> published_accuracy(const Scenario& scenario, const std::string& platform);

// The word for the recipe of products in the table: "" where it is off.
std::string precision_of_products(const Scenario& scenario);

}  // namespace stretto::predict
