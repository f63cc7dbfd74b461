#include "predict/accuracy.hpp"

#include "base/csv.hpp"
#include "base/data_folder.hpp"
#include "base/toml_text.hpp"

namespace stretto::predict {

std::string precision_of_products(const Scenario& scenario) {
  const LowPrecision& low = scenario.training.low_precision;
  if (low.fp4_format != LowPrecision::Fp4Format::none) return name_of(low.fp4_recipe);
  return low.fp8_format != LowPrecision::Fp8Format::none ? name_of(low.fp8_recipe) : "";
}

std::vector<Accuracy> published_accuracies() {
  const std::string path = data_path("accuracy.csv");
  std::vector<Accuracy> rows;
  read_csv(toml_text(path), path, {"profile", "platform", "precision", "steps", "mean_abs_error_pct"},
           [&](const CsvRow& row) {
             rows.push_back({std::string(row.text(0)), std::string(row.text(1)), std::string(row.text(2)), row.count(3),
                             row.number(4, 0, 1e3)});
           });
  return rows;
}

std::optional<Accuracy> published_accuracy(const Scenario& scenario, const std::string& platform) {
  const std::string precision = precision_of_products(scenario);
  for (const Accuracy& row : published_accuracies())
    if (row.profile == scenario.framework.name && row.platform == platform && row.precision == precision) return row;
  return std::nullopt;
}

}  // namespace stretto::predict
