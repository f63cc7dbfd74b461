#include "sim/platform.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "base/error.hpp"
#include "base/new_file.hpp"
#include "base/toml.hpp"

namespace stretto::sim {
namespace {

constexpr std::array<DemandClass, kDemandClasses> kClasses = {DemandClass::gemm, DemandClass::attention,
                                                              DemandClass::vector, DemandClass::memory};

// Reads a curve; `over` names its argument.
Curve read_curve(TomlTable table, const char* over) {
  Curve curve;
  curve.at = require<std::vector<double>>(table, over);
  curve.value = require<std::vector<double>>(table, "value");
  curve.source = read_source(table);
  bool rises = !curve.at.empty() && curve.at.size() == curve.value.size() && curve.at.front() > 0;
  for (std::size_t i = 0; rises && i < curve.at.size(); ++i)
    rises = (i == 0 || curve.at[i] > curve.at[i - 1]) && curve.value[i] >= 0 && curve.value[i] <= 100;
  if (!rises) throw table.error(over, "rising numbers above 0, and as many `value`s from 0 to 100");
  table.finish();
  return curve;
}

// Reads rows of features and a time, one after the other.
std::vector<MeasuredPoint> read_points(TomlTable& table, std::size_t features) {
  const auto numbers = value_or<std::vector<double>>(table, "measured_us", {}, {.min = 0});
  if (numbers.size() % (features + 1) != 0)
    throw table.error("measured_us", fmt::format("rows of {} features and a time", features));
  std::vector<MeasuredPoint> points;
  for (auto row = numbers.begin(); row != numbers.end(); row += static_cast<std::ptrdiff_t>(features + 1)) {
    const auto us = row + static_cast<std::ptrdiff_t>(features);
    if (*us <= 0) throw table.error("measured_us", "times above 0");
    points.push_back({{row, us}, *us});
  }
  return points;
}

std::string numbers_text(const std::vector<double>& numbers) {
  std::string text;
  for (const double number : numbers) text += fmt::format("{}{:.6g}", text.empty() ? "" : ", ", number);
  return "[" + text + "]";
}

// Reads the overheads that both hosts and GPUs have. `slowdown` applies between concurrent computations.
void read_overheads(TomlTable& table, Platform& platform) {
  platform.op_overhead_us = read_quantity(table.section("op_overhead_us"), {.min = 0});
  platform.wake_us = read_quantity(table.section("wake_us"), {.min = 0});
  platform.timer_overshoot_us = read_quantity(table.section("timer_overshoot_us"), {.min = 0});
}
void read_slowdown(TomlTable& root, Platform& platform) {
  TomlTable slowdown = root.section("slowdown");
  for (const DemandClass a : kClasses)
    for (const DemandClass b : kClasses)
      platform.slowdown[static_cast<int>(a)][static_cast<int>(b)] =
          read_quantity(slowdown.section(std::string(name_of(a)) + "_beside_" + name_of(b)), {.min = 0, .max = 100});
  slowdown.finish();
}

void read_host(TomlTable& root, Platform& platform) {
  platform.cores = static_cast<int>(require<std::int64_t>(root, "cores", {.min = 1, .max = 1 << 20}));
  TomlTable host = root.section("host");
  platform.sgemm_GFLOPs = read_quantity(host.section("sgemm_GFLOPs"), {.min = 0, .above_min = true});
  platform.sgemm_filled_GFLOPs = read_quantity(host.section("sgemm_filled_GFLOPs"), {.min = 0, .above_min = true});
  read_overheads(host, platform);
  host.finish();
  read_slowdown(root, platform);
  TomlTable oversubscribed = root.section("oversubscribed");
  for (const DemandClass a : kClasses)
    platform.oversubscribed[static_cast<int>(a)] =
        read_quantity(oversubscribed.section(name_of(a)), {.min = 0, .max = 100});
  oversubscribed.finish();
}

void read_gpu(TomlTable& root, Platform& platform) {
  platform.cores = 1;
  Gpu& gpu = platform.gpu.emplace();
  TomlTable table = root.section("gpu");
  gpu.sms = static_cast<int>(require<std::int64_t>(table, "sms", {.min = 1, .max = 1 << 16}));
  gpu.ctas = static_cast<int>(require<std::int64_t>(table, "ctas", {.min = 1, .max = 1 << 10}));
  gpu.gemm_TFLOPs = read_quantity(table.section("gemm_TFLOPs"), {.min = 0, .above_min = true});
  read_overheads(table, platform);
  table.finish();
  read_slowdown(root, platform);
  TomlTable blocks = root.section("blocks");
  for (const DemandClass cls : kClasses) {
    const std::string name = name_of(cls);
    gpu.beside_moving[static_cast<int>(cls)] = read_curve(blocks.section(name + "_beside_moving"), "blocks");
    gpu.beside_waiting[static_cast<int>(cls)] = read_curve(blocks.section(name + "_beside_waiting"), "blocks");
    gpu.moving_beside[static_cast<int>(cls)] = read_curve(blocks.section("moving_beside_" + name), "blocks");
  }
  blocks.finish();
  TomlTable copies = root.section("copies");
  for (const DemandClass cls : kClasses) {
    const std::string name = name_of(cls);
    gpu.beside_copying[static_cast<int>(cls)] = read_curve(copies.section(name + "_beside_copying"), "copies");
    gpu.copying_beside[static_cast<int>(cls)] = read_curve(copies.section("copying_beside_" + name), "copies");
  }
  copies.finish();
}

std::string overheads_text(const Platform& platform) {
  return "op_overhead_us = " + quantity_text(platform.op_overhead_us) +
         "\nwake_us = " + quantity_text(platform.wake_us) +
         "\ntimer_overshoot_us = " + quantity_text(platform.timer_overshoot_us) + "\n";
}
std::string slowdown_text(const Platform& platform) {
  std::string text = "\n[slowdown]\n";
  for (const DemandClass a : kClasses)
    for (const DemandClass b : kClasses)
      text += fmt::format("{}_beside_{} = {}\n", name_of(a), name_of(b),
                          quantity_text(platform.slowdown[static_cast<int>(a)][static_cast<int>(b)]));
  return text;
}

std::string host_text(const Platform& platform) {
  std::string text = "\n[host]\nsgemm_GFLOPs = " + quantity_text(platform.sgemm_GFLOPs) +
                     "\nsgemm_filled_GFLOPs = " + quantity_text(platform.sgemm_filled_GFLOPs) + "\n" +
                     overheads_text(platform) + slowdown_text(platform) + "\n[oversubscribed]\n";
  for (const DemandClass a : kClasses)
    text += fmt::format("{} = {}\n", name_of(a), quantity_text(platform.oversubscribed[static_cast<int>(a)]));
  return text;
}

std::string gpu_text(const Platform& platform) {
  const Gpu& gpu = *platform.gpu;
  std::string text = fmt::format("\n[gpu]\nsms = {}\nctas = {}\ngemm_TFLOPs = {}\n", gpu.sms, gpu.ctas,
                                 quantity_text(gpu.gemm_TFLOPs)) +
                     overheads_text(platform) + slowdown_text(platform) + "\n[blocks]\n";
  const auto curve_text = [](const Curve& curve, const char* over = "blocks") {
    return fmt::format("{{ {} = {}, value = {}, {} }}\n", over, numbers_text(curve.at), numbers_text(curve.value),
                       source_text(curve.source));
  };
  for (const DemandClass cls : kClasses) {
    const int c = static_cast<int>(cls);
    text += fmt::format("{}_beside_moving = {}", name_of(cls), curve_text(gpu.beside_moving[c]));
    text += fmt::format("{}_beside_waiting = {}", name_of(cls), curve_text(gpu.beside_waiting[c]));
    text += fmt::format("moving_beside_{} = {}", name_of(cls), curve_text(gpu.moving_beside[c]));
  }
  text += "\n[copies]\n";
  for (const DemandClass cls : kClasses) {
    const int c = static_cast<int>(cls);
    text += fmt::format("{}_beside_copying = {}", name_of(cls), curve_text(gpu.beside_copying[c], "copies"));
    text += fmt::format("copying_beside_{} = {}", name_of(cls), curve_text(gpu.copying_beside[c], "copies"));
  }
  return text;
}

}  // namespace

double value_of(const Curve& curve, double at) {
  double last_at = 0, last = 0;
  for (std::size_t i = 0; i < curve.at.size(); ++i) {
    if (at <= curve.at[i]) return last + (curve.value[i] - last) * (at - last_at) / (curve.at[i] - last_at);
    last_at = curve.at[i];
    last = curve.value[i];
  }
  return last;
}

const char* name_of(DemandClass cls) {
  static constexpr const char* kNames[kDemandClasses] = {"gemm", "attention", "vector", "memory"};
  return kNames[static_cast<int>(cls)];
}

namespace {

Platform platform_of(TomlTable root, const std::string& file) {
  Platform platform;
  platform.name = require<std::string>(root, "name");
  platform.device = require<std::string>(root, "device");
  platform.date = value_or<std::string>(root, "date", "");
  platform.memory_bytes = require<std::int64_t>(root, "memory_bytes", {.min = 1});
  platform.compute_capability = value_or<double>(root, "compute_capability", 0, {.min = 1, .max = 100});
  root.has("ranks_per_device");  // a default of scenarios, like compute_capability
  if (root.has("accelerator")) {
    platform.cores = 1;
    platform.accelerator =
        read_accelerator(root.section("accelerator"), std::filesystem::path(file).parent_path().string());
    TomlTable cpu = root.section("cpu");
    constexpr Limits<double> kFactor{.min = 0, .max = 100, .above_min = true};
    if (cpu.has("python")) platform.cpu.python = read_quantity(cpu.section("python"), kFactor);
    if (cpu.has("cpp")) platform.cpu.cpp = read_quantity(cpu.section("cpp"), kFactor);
    cpu.finish();
    root.finish();
    return platform;
  }
  if (root.has("gpu"))
    read_gpu(root, platform);
  else
    read_host(root, platform);
  TomlTable costs = root.section("cost");
  for (const std::string& key : costs.keys()) {
    TomlTable table = costs.section(key);
    CostFit fit;
    fit.coefficients = require<std::vector<double>>(table, "coefficients_us", {.min = 0});
    if (std::count(fit.coefficients.begin(), fit.coefficients.end(), 0) == std::ssize(fit.coefficients))
      throw table.error("coefficients_us", "one above 0 at least, as nothing takes no time");
    fit.source = read_source(table);
    fit.points = static_cast<int>(value_or<std::int64_t>(table, "points", 0, {.min = 0, .max = 1 << 30}));
    fit.median_error_pct = value_or<double>(table, "fit_median_error_pct", 0, {.min = 0});
    fit.p95_error_pct = value_or<double>(table, "fit_p95_error_pct", 0, {.min = 0});
    fit.measured = read_points(table, fit.coefficients.size());
    fit.largest_us = value_or<double>(table, "largest_us", 0, {.min = 0});
    table.finish();
    platform.costs[key] = std::move(fit);
  }
  costs.finish();
  root.finish();
  return platform;
}

}  // namespace

Platform read_platform(const std::string& path) {
  Platform platform = platform_of(read_toml(path), path);
  platform.files = {path};
  if (platform.accelerator)
    platform.files.insert(platform.files.end(), platform.accelerator->table_files.begin(),
                          platform.accelerator->table_files.end());
  return platform;
}
Platform parse_platform(const std::string& text, const std::string& name) {
  return platform_of(parse_toml(text, name, {}), name);
}

void write_platform(const std::string& path, const Platform& platform) {
  std::string text = "# Written by `stretto calibrate`; docs/platform.md says what every key means.\n";
  text += fmt::format("name = \"{}\"\ndevice = \"{}\"\ndate = \"{}\"\n", platform.name, platform.device, platform.date);
  if (!platform.gpu) text += fmt::format("cores = {}\n", platform.cores);
  text += fmt::format("memory_bytes = {}\n", platform.memory_bytes);
  if (platform.compute_capability > 0)
    text += fmt::format("compute_capability = {:.1f}\n", platform.compute_capability);
  text += platform.gpu ? gpu_text(platform) : host_text(platform);
  for (const auto& [key, fit] : platform.costs) {
    text += fmt::format("\n[cost.{}]\ncoefficients_us = [", key);
    for (std::size_t i = 0; i < fit.coefficients.size(); ++i)
      text += fmt::format("{}{:.6e}", i == 0 ? "" : ", ", fit.coefficients[i]);
    text += fmt::format(
        "]\nkind = \"{}\"\nsource = \"{}\"\nspread_pct = {:.2f}\npoints = {}\nfit_median_error_pct = "
        "{:.2f}\nfit_p95_error_pct = {:.2f}\n",
        fit.source.kind, fit.source.origin, fit.source.spread_pct, fit.points, fit.median_error_pct, fit.p95_error_pct);
    if (fit.largest_us > 0) text += fmt::format("largest_us = {:.6g}\n", fit.largest_us);
    if (fit.measured.empty()) continue;
    text += "measured_us = [\n";
    for (const MeasuredPoint& point : fit.measured) {
      std::vector<double> row = point.features;
      row.push_back(point.us);
      const std::string numbers = numbers_text(row);
      text += "  " + numbers.substr(1, numbers.size() - 2) + ",\n";
    }
    text += "]\n";
  }
  NewFile file(path);
  file.write(text);
  file.finish();
}

}  // namespace stretto::sim
