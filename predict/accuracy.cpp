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

std::optional<Accuracy> published_accuracy(const Scenario& scenario, const std::string& platform) {
  const std::string path = data_path("accuracy.csv"), precision = precision_of_products(scenario);
  std::optional<Accuracy> found;
  read_csv(toml_text(path), path, {"profile", "platform", "precision", "steps", "mean_abs_error_pct"},
           [&](const CsvRow& row) {
             if (row.text(0) == scenario.framework.name && row.text(1) == platform && row.text(2) == precision)
               found = Accuracy{row.count(3), row.number(4, 0, 1e3)};
           });
  return found;
}

}  // namespace stretto::predict
