#include "cli/show_platform.hpp"

#include <fmt/format.h>

#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/data_folder.hpp"
#include "base/printable.hpp"
#include "report/table.hpp"
#include "sim/accelerator/numbers.hpp"
#include "sim/cost/concurrent_kernels.hpp"
#include "sim/platform.hpp"

namespace stretto::cli {
namespace {

struct Row {
  std::string key, value;
  Source source;
};

void add(std::vector<Row>& rows, const std::string& key, const Quantity& quantity) {
  rows.push_back({key, fmt::format("{:.6g}", quantity.value), quantity.source});
}

std::vector<Row> rows_of(sim::Accelerator a) {
  std::vector<Row> rows;
  if (!a.gemms.empty()) rows.push_back({"gemm_table", fmt::format("{} shapes", a.gemms.times().size()), a.gemm_source});
  if (!a.collectives.empty())
    rows.push_back({"collective_table", fmt::format("{} times", a.collectives.times().size()), a.collective_source});
  for (const sim::AcceleratorNumber& number : numbers_of(a)) add(rows, number.name(), *number.quantity);
  for (const sim::AttentionKernel& kernel : a.attention) {
    add(rows, "attention." + kernel.name + ".forward_TFLOPs", kernel.forward_TFLOPs);
    add(rows, "attention." + kernel.name + ".backward_TFLOPs", kernel.backward_TFLOPs);
  }
  return rows;
}

// Returns the rows of a calibrated machine.
std::vector<Row> rows_of(const sim::Platform& platform) {
  if (platform.accelerator) return rows_of(*platform.accelerator);
  std::vector<Row> rows;
  if (platform.gpu) {
    add(rows, "gpu.gemm_TFLOPs", platform.gpu->gemm_TFLOPs);
  } else {
    add(rows, "host.sgemm_GFLOPs", platform.sgemm_GFLOPs);
    add(rows, "host.sgemm_filled_GFLOPs", platform.sgemm_filled_GFLOPs);
  }
  add(rows, "op_overhead_us", platform.op_overhead_us);
  add(rows, "wake_us", platform.wake_us);
  add(rows, "timer_overshoot_us", platform.timer_overshoot_us);
  for (int a = 0; a < sim::kDemandClasses; ++a)
    for (int b = 0; b < sim::kDemandClasses; ++b)
      add(rows,
          fmt::format("slowdown.{}_beside_{}", sim::name_of(static_cast<sim::DemandClass>(a)),
                      sim::name_of(static_cast<sim::DemandClass>(b))),
          platform.slowdown[a][b]);
  for (int a = 0; a < sim::kDemandClasses && !platform.gpu; ++a)
    add(rows, fmt::format("oversubscribed.{}", sim::name_of(static_cast<sim::DemandClass>(a))),
        platform.oversubscribed[a]);
  for (const auto& [key, fit] : platform.costs)
    rows.push_back({"cost." + key,
                    fmt::format("{} points, fit error {:.1f} % ({:.1f} % at the 95th pct)", fit.points,
                                fit.median_error_pct, fit.p95_error_pct),
                    fit.source});
  return rows;
}

std::string kind_of(const Quantity& factor, const char* by) {
  return factor.source.kind == "measured" ? "measured" : by;
}

// Returns what communication costs by engine, and the kinds of these numbers below it.
Table engines_table(const std::vector<sim::EnginePrice>& prices) {
  Table table({"concurrent with", "SMs", "kind", "product of one wave", "of many waves", "attention", "memory bound",
               "the communication", "source of SMs"});
  const auto factor = [](double value) { return fmt::format("{:.2f}", value); };
  for (const sim::EnginePrice& p : prices)
    table.add_row({p.engine, fmt::format("{:g}", p.sms.value), p.sms.source.kind, factor(p.one_wave),
                   factor(p.many_waves), factor(p.attention), factor(p.memory_bound), factor(p.itself),
                   printable(p.sms.source.origin)});
  return table;
}

std::string engines_text(const sim::Accelerator& a, const std::vector<sim::EnginePrice>& prices) {
  if (prices.empty())
    return "SMs of communication are not known: kernels concurrent with it take the factors of beside_communication\n";
  const sim::BesideCommunication& factors = a.beside_communication;
  return fmt::format(
      "time concurrent with communication over the time alone, at the full rate of its link:\n\n{}\nproducts {}, "
      "attention {}, "
      "memory bound {}, the communication {}\n",
      engines_table(prices).text(), kind_of(factors.gemm, "assumed (whole waves on the SMs that are left)"),
      kind_of(factors.attention, "assumed (share of the SMs that are left)"),
      kind_of(factors.memory_bound, "assumed (share of the memory's rate that is left)"),
      factors.communication.source.kind);
}

nlohmann::json engines_json(const std::vector<sim::EnginePrice>& prices) {
  nlohmann::json engines = nlohmann::json::array();
  for (const sim::EnginePrice& p : prices)
    engines.push_back({{"engine", p.engine},
                       {"sms", p.sms.value},
                       {"kind", p.sms.source.kind},
                       {"source", p.sms.source.origin},
                       {"one_wave", p.one_wave},
                       {"many_waves", p.many_waves},
                       {"attention", p.attention},
                       {"memory_bound", p.memory_bound},
                       {"communication", p.itself}});
  return engines;
}

}  // namespace

void show_platform(const std::string& path, const Output& json) {
  const sim::Platform platform = sim::read_platform(is_data_name(path) ? data_file("platforms", path) : path);
  // Where a number was measured, its readings spread.
  Table table({"number", "value", "kind", "spread", "source"});
  nlohmann::json numbers = nlohmann::json::array();
  std::map<std::string, int> kinds;
  for (const Row& row : rows_of(platform)) {
    table.add_row({printable(row.key), row.value, row.source.kind,
                   row.source.spread_pct > 0 ? fmt::format("{:.1f} %", row.source.spread_pct) : "",
                   printable(row.source.origin)});
    numbers.push_back(
        {{"number", row.key}, {"value", row.value}, {"kind", row.source.kind}, {"source", row.source.origin}});
    ++kinds[row.source.kind];
  }
  std::vector<sim::EnginePrice> prices;
  if (platform.accelerator) prices = sim::engine_prices(*platform.accelerator);
  if (!json.is_standard()) {
    std::cout << printable(platform.name) << ", " << printable(platform.device) << "\n\n" << table.text() << "\n";
    std::cout << table.rows() << " numbers: ";
    bool is_first = true;
    for (const auto& [kind, count] : kinds) {
      std::cout << (is_first ? "" : ", ") << count << " " << kind;
      is_first = false;
    }
    std::cout << "\n";
    if (platform.accelerator) std::cout << "\n" << engines_text(*platform.accelerator, prices);
  }
  write_json(json, {{"platform", platform.name},
                    {"device", platform.device},
                    {"kinds", std::move(kinds)},
                    {"numbers", std::move(numbers)},
                    {"engines", engines_json(prices)}});
}

}  // namespace stretto::cli
