#include "sim/platform.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/error.hpp"
#include "base/toml.hpp"

namespace stretto::sim {
namespace {

constexpr std::array<DemandClass, kDemandClasses> kClasses = {DemandClass::gemm, DemandClass::attention,
                                                              DemandClass::vector, DemandClass::memory};

Source read_source(TomlTable& table) {
  Source source;
  source.kind = choice_or(table, "kind", "measured", {"measured", "published", "assumed"});
  source.origin = require<std::string>(table, "source");
  source.spread_pct = value_or<double>(table, "spread_pct", 0, {.min = 0});
  return source;
}

Quantity read_quantity(TomlTable table, Limits<double> limits) {
  Quantity quantity;
  quantity.value = require<double>(table, "value", limits);
  quantity.source = read_source(table);
  table.finish();
  return quantity;
}

std::string source_text(const Source& source) {
  return fmt::format("kind = \"{}\", source = \"{}\", spread_pct = {:.2f}", source.kind, source.origin,
                     source.spread_pct);
}
std::string quantity_text(const Quantity& quantity) {
  return fmt::format("{{ value = {:.6e}, {} }}", quantity.value, source_text(quantity.source));
}

}  // namespace

const char* name_of(DemandClass cls) {
  static constexpr const char* kNames[kDemandClasses] = {"gemm", "attention", "vector", "memory"};
  return kNames[static_cast<int>(cls)];
}

Platform read_platform(const std::string& path) {
  TomlTable root = read_toml(path);
  Platform platform;
  platform.name = require<std::string>(root, "name");
  platform.device = require<std::string>(root, "device");
  platform.date = value_or<std::string>(root, "date", "");
  platform.cores = static_cast<int>(require<std::int64_t>(root, "cores", {.min = 1, .max = 1 << 20}));
  platform.memory_bytes = require<std::int64_t>(root, "memory_bytes", {.min = 1});
  TomlTable host = root.section("host");
  platform.sgemm_GFLOPs = read_quantity(host.section("sgemm_GFLOPs"), {.min = 0, .above_min = true});
  platform.sgemm_filled_GFLOPs = read_quantity(host.section("sgemm_filled_GFLOPs"), {.min = 0, .above_min = true});
  platform.op_overhead_us = read_quantity(host.section("op_overhead_us"), {.min = 0});
  platform.wake_us = read_quantity(host.section("wake_us"), {.min = 0});
  platform.timer_overshoot_us = read_quantity(host.section("timer_overshoot_us"), {.min = 0});
  host.finish();
  TomlTable slowdown = root.section("slowdown"), oversubscribed = root.section("oversubscribed");
  for (const DemandClass a : kClasses) {
    platform.oversubscribed[static_cast<int>(a)] =
        read_quantity(oversubscribed.section(name_of(a)), {.min = 0, .max = 100});
    for (const DemandClass b : kClasses)
      platform.slowdown[static_cast<int>(a)][static_cast<int>(b)] =
          read_quantity(slowdown.section(std::string(name_of(a)) + "_beside_" + name_of(b)), {.min = 0, .max = 100});
  }
  slowdown.finish();
  oversubscribed.finish();
  TomlTable costs = root.section("cost");
  for (const std::string& key : costs.keys()) {
    TomlTable table = costs.section(key);
    CostFit fit;
    fit.coefficients = require<std::vector<double>>(table, "coefficients_us");
    fit.source = read_source(table);
    fit.points = static_cast<int>(value_or<std::int64_t>(table, "points", 0, {.min = 0, .max = 1 << 30}));
    fit.median_error_pct = value_or<double>(table, "fit_median_error_pct", 0, {.min = 0});
    fit.p95_error_pct = value_or<double>(table, "fit_p95_error_pct", 0, {.min = 0});
    table.finish();
    platform.costs[key] = std::move(fit);
  }
  costs.finish();
  root.finish();
  return platform;
}

void write_platform(const std::string& path, const Platform& platform) {
  std::string text = "# Written by `stretto calibrate`; docs/platform.md says what every key means.\n";
  text += fmt::format("name = \"{}\"\ndevice = \"{}\"\ndate = \"{}\"\ncores = {}\nmemory_bytes = {}\n\n[host]\n",
                      platform.name, platform.device, platform.date, platform.cores, platform.memory_bytes);
  text += "sgemm_GFLOPs = " + quantity_text(platform.sgemm_GFLOPs) + "\n";
  text += "sgemm_filled_GFLOPs = " + quantity_text(platform.sgemm_filled_GFLOPs) + "\n";
  text += "op_overhead_us = " + quantity_text(platform.op_overhead_us) + "\n";
  text += "wake_us = " + quantity_text(platform.wake_us) + "\n";
  text += "timer_overshoot_us = " + quantity_text(platform.timer_overshoot_us) + "\n\n[slowdown]\n";
  for (const DemandClass a : kClasses)
    for (const DemandClass b : kClasses)
      text += fmt::format("{}_beside_{} = {}\n", name_of(a), name_of(b),
                          quantity_text(platform.slowdown[static_cast<int>(a)][static_cast<int>(b)]));
  text += "\n[oversubscribed]\n";
  for (const DemandClass a : kClasses)
    text += fmt::format("{} = {}\n", name_of(a), quantity_text(platform.oversubscribed[static_cast<int>(a)]));
  for (const auto& [key, fit] : platform.costs) {
    text += fmt::format("\n[cost.{}]\ncoefficients_us = [", key);
    for (std::size_t i = 0; i < fit.coefficients.size(); ++i)
      text += fmt::format("{}{:.6e}", i == 0 ? "" : ", ", fit.coefficients[i]);
    text += fmt::format(
        "]\nkind = \"{}\"\nsource = \"{}\"\nspread_pct = {:.2f}\npoints = {}\nfit_median_error_pct = "
        "{:.2f}\nfit_p95_error_pct = {:.2f}\n",
        fit.source.kind, fit.source.origin, fit.source.spread_pct, fit.points, fit.median_error_pct, fit.p95_error_pct);
  }
  const std::string temporary = path + ".tmp";
  {
    std::ofstream file(temporary, std::ios::trunc);
    file << text;
    file.flush();
    if (!file) {
      const std::string reason = std::strerror(errno);
      std::remove(temporary.c_str());
      throw runtime_failure(path + ": cannot be written: " + reason);
    }
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0)
    throw runtime_failure(path + ": cannot be written: " + std::strerror(errno));
}

}  // namespace stretto::sim
