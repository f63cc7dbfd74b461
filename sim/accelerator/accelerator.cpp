#include "sim/accelerator/accelerator.hpp"

#include <algorithm>
#include <filesystem>

#include "base/read_file.hpp"

namespace stretto::sim {
namespace {

constexpr Limits<double> kRate{.min = 0, .above_min = true};
constexpr Limits<double> kShare{.min = 0, .max = 1, .above_min = true};
constexpr Limits<double> kTime{.min = 0, .max = 1e9};

// The text of a table that `key` names, beside the platform file; "" when there is none.
std::string table_text(TomlTable& table, const std::string& key, const std::string& folder, std::string& path) {
  const std::string name = value_or<std::string>(table, key, "");
  if (name.empty()) return "";
  path = (std::filesystem::path(folder) / name).lexically_normal().string();
  const std::vector<std::byte> bytes = ReadFile::open(path).take();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

LinkLevel read_level(TomlTable table) {
  LinkLevel level{read_quantity(table.section("GBps"), kRate), read_quantity(table.section("latency_us"), kTime)};
  table.finish();
  return level;
}

AttentionKernel read_attention(TomlTable table, const std::string& name) {
  AttentionKernel kernel;
  kernel.name = name;
  kernel.forward_TFLOPs = read_quantity(table.section("forward_TFLOPs"), kRate);
  kernel.backward_TFLOPs = read_quantity(table.section("backward_TFLOPs"), kRate);
  const Limits<std::int64_t> rows{.min = 1, .max = 1 << 12};
  kernel.forward_rows = static_cast<int>(value_or<std::int64_t>(table, "forward_rows", 128, rows));
  kernel.backward_rows = static_cast<int>(value_or<std::int64_t>(table, "backward_rows", 128, rows));
  table.finish();
  return kernel;
}

}  // namespace

const AttentionKernel& Accelerator::attention_named(const std::string& name) const {
  std::vector<std::string> names;
  for (const AttentionKernel& kernel : attention) {
    if (name.empty() || kernel.name == name) return kernel;
    names.push_back(kernel.name);
  }
  const std::string nearest = nearest_spelling(name, names);
  throw input_error("the platform has no attention kernel \"" + name + "\"" +
                    (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
}

double Accelerator::card_GBps(double leaving) const {
  const double cards = std::min(1.0, double(network_cards) / double(domain));
  return network.GBps.value * network_share.value * cards / std::max(1.0, leaving * oversubscription);
}

Accelerator read_accelerator(TomlTable table, const std::string& folder) {
  Accelerator a;
  a.sms = static_cast<int>(require<std::int64_t>(table, "sms", {.min = 1, .max = 1 << 16}));
  a.peak_TFLOPs = read_quantity(table.section("peak_TFLOPs"), kRate);
  a.hbm_GBps = read_quantity(table.section("hbm_GBps"), kRate);
  std::string path;
  if (const std::string text = table_text(table, "gemm_table", folder, path); !text.empty())
    a.gemms = GemmTable::parse(text, path);
  a.gemm_waves = value_or<bool>(table, "gemm_waves", false);
  a.gemm_sustained = read_quantity(table.section("gemm_sustained"), kRate);
  a.gemm_odd = read_quantity(table.section("gemm_odd"), {.min = 1});
  a.gemm_unaligned = read_quantity(table.section("gemm_unaligned"), {.min = 1});
  a.gemm_share = read_quantity(table.section("gemm_share"), kShare);
  a.hbm_share = read_quantity(table.section("hbm_share"), kShare);
  a.kernel_us = read_quantity(table.section("kernel_us"), kTime);
  a.bmm_share = read_quantity(table.section("bmm_share"), kShare);
  TomlTable attention = table.section("attention");
  for (const std::string& name : attention.keys()) a.attention.push_back(read_attention(attention.section(name), name));
  if (a.attention.empty())
    throw table.failure("attention", "expected a kernel, [accelerator.attention.NAME], got none");
  const std::string first = value_or<std::string>(table, "attention_kernel", a.attention.front().name);
  std::stable_partition(a.attention.begin(), a.attention.end(),
                        [&](const AttentionKernel& kernel) { return kernel.name == first; });
  if (a.attention.front().name != first) throw table.error("attention_kernel", "a kernel of [accelerator.attention]");
  if (const std::string text = table_text(table, "collective_table", folder, path); !text.empty())
    a.collectives = CollectiveTable::parse(text, path);
  a.collective_in_step_us = read_quantity(table.section("collective_in_step_us"), kTime);
  a.domain = require<std::int64_t>(table, "domain", {.min = 1, .max = 1 << 16});
  a.nvlink = read_level(table.section("nvlink"));
  a.network = read_level(table.section("network"));
  a.network_cards = value_or<std::int64_t>(table, "network_cards", a.domain, {.min = 1, .max = 1 << 16});
  if (TomlTable spine = table.section("spine"); !spine.keys().empty()) {
    a.pod = require<std::int64_t>(spine, "pod", {.min = a.domain, .max = std::int64_t{1} << 40});
    if (a.pod % a.domain != 0) throw spine.error("pod", "a multiple of domain " + std::to_string(a.domain));
    a.oversubscription = require<double>(spine, "oversubscription", {.min = 1, .max = 1e6});
    spine.finish();
  }
  a.network_share = read_quantity(table.section("network_share"), kShare);
  a.reserved_bytes = read_quantity(table.section("reserved_bytes"), {.min = 0});
  table.finish();
  return a;
}

}  // namespace stretto::sim
