#include "base/quantity.hpp"

#include <fmt/format.h>

namespace stretto {

Source read_source(TomlTable& table) {
  Source source;
  source.kind = choice_or(table, "kind", "measured", {"measured", "published", "fitted", "assumed", "derived"});
  source.origin = require<std::string>(table, "source");
  source.spread_pct = value_or<double>(table, "spread_pct", 0, {.min = 0});
  return source;
}

Quantity read_quantity(TomlTable table, Limits<double> limits) {
  Quantity quantity;
  quantity.value = require<double>(table, "value", limits);
  quantity.source = read_source(table);
  if (table.has("low") || table.has("high")) {
    quantity.low = require<double>(table, "low", limits);
    quantity.high = require<double>(table, "high", limits);
    if (quantity.low > quantity.value || quantity.high < quantity.value)
      throw table.error("low", "low <= value <= high");
  }
  quantity.sourced = table.find<double>("sourced", limits);
  table.finish();
  return quantity;
}

std::string source_text(const Source& source) {
  return fmt::format("kind = \"{}\", source = \"{}\", spread_pct = {:.2f}", source.kind, source.origin,
                     source.spread_pct);
}

std::string quantity_text(const Quantity& quantity) {
  const std::string interval =
      quantity.high == 0 ? "" : fmt::format("low = {:.6e}, high = {:.6e}, ", quantity.low, quantity.high);
  return fmt::format("{{ value = {:.6e}, {}{} }}", quantity.value, interval, source_text(quantity.source));
}

}  // namespace stretto
