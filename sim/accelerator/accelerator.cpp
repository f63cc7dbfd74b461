#include "sim/accelerator/accelerator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "base/budget.hpp"
#include "sim/accelerator/numbers.hpp"

namespace stretto::sim {
namespace {

// Reads the table file that `key` names, in the folder of the platform file; "" when the platform has none.
std::string read_table(TomlTable& table, const std::string& key, const std::string& folder, std::string& path,
                       Source& source) {
  if (!table.has(key)) return "";
  TomlTable entry = table.section(key);
  path = (std::filesystem::path(folder) / require<std::string>(entry, "file")).lexically_normal().string();
  source = read_source(entry);
  entry.finish();
  Budget budget(path);
  return read_text(path, budget);
}

AttentionKernel read_attention(TomlTable table, const std::string& name) {
  AttentionKernel kernel;
  kernel.name = name;
  kernel.forward_TFLOPs = read_quantity(table.section("forward_TFLOPs"), kRate);
  kernel.backward_TFLOPs = read_quantity(table.section("backward_TFLOPs"), kRate);
  const Limits<std::int64_t> rows{.min = 1, .max = 1 << 12};
  kernel.forward_rows = static_cast<int>(value_or<std::int64_t>(table, "forward_rows", 128, rows));
  kernel.backward_rows = static_cast<int>(value_or<std::int64_t>(table, "backward_rows", 128, rows));
  kernel.half_rate_keys = value_or<double>(table, "half_rate_keys", 0, {.min = 0, .max = 1 << 16});
  kernel.backward_half_rate_keys =
      value_or<double>(table, "backward_half_rate_keys", kernel.half_rate_keys, {.min = 0, .max = 1 << 16});
  kernel.half_rate_head_dim = value_or<double>(table, "half_rate_head_dim", 0, {.min = 0, .max = 1 << 12});
  kernel.head_dim = value_or<std::int64_t>(table, "head_dim", kernel.head_dim, {.min = 1, .max = 1 << 12});
  kernel.most_keys = value_or<std::int64_t>(table, "most_keys", kernel.most_keys, {.min = 1, .max = 1 << 30});
  table.finish();
  return kernel;
}

CastRate read_casts(TomlTable table) {
  CastRate rate;
  rate.elements = require<std::vector<double>>(table, "elements");
  rate.share = require<std::vector<double>>(table, "share");
  rate.source = read_source(table);
  bool rises = !rate.elements.empty() && rate.elements.size() == rate.share.size() && rate.elements.front() > 0;
  for (std::size_t i = 0; rises && i < rate.elements.size(); ++i)
    rises = (i == 0 || rate.elements[i] > rate.elements[i - 1]) && rate.share[i] > 0 && rate.share[i] <= 1;
  if (!rises) throw table.error("elements", "rising numbers above 0, and as many `share`s above 0, up to 1");
  table.finish();
  return rate;
}

}  // namespace

// The default stands in for a generation of kernels that other GPUs have and for which this platform has no rates, as
// frameworks choose the kernel by the GPU: TransformerEngine takes cuDNN's from compute capability 9.0 on and
// FlashAttention below (get_attention_backend, "Select FusedAttention for performance"), torchtitan puts cuDNN's first
// on B200 (ScaledDotProductAttention._init_backend).
const AttentionKernel& Accelerator::attention_named(const std::string& name) const {
  std::vector<std::string> names;
  for (const AttentionKernel& kernel : attention) {
    if (name.empty() || kernel.name == name) return kernel;
    names.push_back(kernel.name);
  }
  for (const char* generation : {"cudnn", "flash2", "triton"})
    if (name == generation && !attention.empty()) return attention.front();
  const std::string nearest = nearest_spelling(name, names);
  std::string known;
  for (const std::string& kernel : names) known += (known.empty() ? "" : ", ") + kernel;
  throw input_error("the platform has no attention kernel \"" + name +
                    "\", which the profile's [kernels] attention_kernel names: " + "it has " + known +
                    "; add [accelerator.attention." + name + "] to the platform or name another" +
                    (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
}

double CastRate::share_at(double count) const {
  if (count <= elements.front()) return share.front();
  for (std::size_t i = 1; i < elements.size(); ++i)
    if (count <= elements[i]) {
      const double part = std::log(count / elements[i - 1]) / std::log(elements[i] / elements[i - 1]);
      return share[i - 1] + part * (share[i] - share[i - 1]);
    }
  return share.back();
}

namespace {

// Returns the numbers of a low precision; nullptr for others.
const ProductRate* rate_of(const Accelerator& a, ProductType type) {
  switch (type) {
    case ProductType::fp8:
      return &a.fp8;
    case ProductType::fp8_block:
      return &a.fp8_block;
    case ProductType::mxfp8:
      return &a.mxfp8;
    case ProductType::nvfp4:
      return &a.nvfp4;
    case ProductType::bf16:
    case ProductType::f32:
      break;
  }
  return nullptr;
}

}  // namespace

double Accelerator::peak_TFLOPs_of(ProductType type) const {
  const ProductRate* low = rate_of(*this, type);
  return low != nullptr ? low->peak_TFLOPs.value : peak_TFLOPs.value * rule_of(type).of_peak;
}

double Accelerator::sustained_of(ProductType type) const {
  const ProductRate* low = rate_of(*this, type);
  return (low != nullptr ? low->gemm_sustained : gemm_sustained).value;
}

double Accelerator::product_us(ProductType type, double m, double n, double k) const {
  if (gemms.has(type)) return sustained_of(type) * gemms.time_us(m, n, k, gemm_waves ? sms : 0, type);
  const double bytes = rule_of(type).bytes * (m * k + k * n) + double(bytes_of(Dtype::bf16)) * m * n;
  const double arithmetic_us = 2 * m * n * k / (gemm_share.value * peak_TFLOPs_of(type) * 1e6);
  return sustained_of(type) * std::max(arithmetic_us, bytes / (hbm_share.value * hbm_GBps.value * 1e3));
}

double Accelerator::card_GBps(double leaving) const {
  const double cards = std::min(1.0, double(network_cards) / double(domain));
  return network.GBps.value * network_share.value * cards / std::max(1.0, leaving * oversubscription);
}

std::string contradiction(const Accelerator& a) {
  constexpr double kMostOfPeak = 1.1, kMostReduced = 2;
  const double most_TFLOPs = kMostOfPeak * a.peak_TFLOPs.value;
  for (const GemmTime& time : a.gemms.times())
    if (const double TFLOPs = 2 * time.m * time.n * time.k / time.us * 1e-6, peak = a.peak_TFLOPs_of(time.type);
        TFLOPs > kMostOfPeak * peak)
      return fmt::format(
          "gemm_table: expected at most peak_TFLOPs, {:g}{}, got {:.0f} TFLOP/s with m, n, k = {:g}, {:g}, {:g}", peak,
          time.type == ProductType::bf16 ? "" : std::string(" in ") + name_of(time.type), TFLOPs, time.m, time.n,
          time.k);
  for (const AttentionKernel& kernel : a.attention)
    for (const Quantity* rate : {&kernel.forward_TFLOPs, &kernel.backward_TFLOPs})
      if (rate->value / 2 > most_TFLOPs)
        return fmt::format("attention.{}: expected at most twice peak_TFLOPs, {:g}, got {:g}", kernel.name,
                           a.peak_TFLOPs.value, rate->value);
  for (const CollectiveTime& time : a.collectives.times()) {
    if (time.span.nodes > 1) continue;
    const double bus_GBps = time.bytes / time.us * ring_share(time.kind, time.span.members) * 1e-3;
    const bool is_of_others = a.nvlink_change() != 1;
    const double measured_GBps = is_of_others ? a.measured_nvlink_GBps : a.nvlink.GBps.value;
    const double most_GBps = measured_GBps * (time.kind == CollectiveKind::all_reduce ? kMostReduced : 1);
    if (bus_GBps > most_GBps)
      return fmt::format(
          "collective_table: expected at most {:g} GB/s by {}, got {:.3g} with {} of {:g} bytes "
          "on {} GPUs",
          most_GBps, is_of_others ? "measured_at.nvlink_GBps" : "nvlink.GBps", bus_GBps, name_of(time.kind), time.bytes,
          time.span.members);
  }
  return "";
}

Accelerator read_accelerator(TomlTable table, const std::string& folder) {
  Accelerator a;
  a.sms = static_cast<int>(value_or<std::int64_t>(table, "sms", kDefaultSms, {.min = 1, .max = 1 << 16}));
  a.domain = require<std::int64_t>(table, "domain", {.min = 1, .max = 1 << 16});
  a.multicast = value_or<bool>(table, "multicast", false);
  std::string path;
  if (const std::string text = read_table(table, "gemm_table", folder, path, a.gemm_source); table.has("gemm_table")) {
    a.gemms = GemmTable::parse(text, path);
    a.table_files.push_back(path);
  }
  a.gemm_waves = value_or<bool>(table, "gemm_waves", false);
  if (const std::string text = read_table(table, "collective_table", folder, path, a.collective_source);
      table.has("collective_table")) {
    a.collectives = CollectiveTable::parse(text, path);
    a.table_files.push_back(path);
  }
  for (const CollectiveTime& time : a.collectives.times())
    if (time.span.on_node() > a.domain)
      throw input_error(path + ": expected at most " + std::to_string(a.domain) +
                        " GPUs on a node, the platform's domain, got " + std::to_string(time.span.members) + " on " +
                        std::to_string(time.span.nodes));
  a.linear_attention.is_given = table.has("linear_attention");
  const std::vector<AcceleratorNumber> numbers = numbers_of(a);
  std::map<std::string, TomlTable> sections;
  for (const AcceleratorNumber& number : numbers)
    if (*number.section != '\0') sections.try_emplace(number.section, table.section(number.section));
  const auto section_of = [&](const AcceleratorNumber& number) -> TomlTable& {
    return *number.section == '\0' ? table : sections.at(number.section);
  };
  for (const AcceleratorNumber& number : numbers)
    if (number.of_data_sheet) *number.quantity = read_quantity(section_of(number).section(number.key), number.limits);
  TomlTable measured_at = table.section("measured_at");
  a.measured_nvlink_GBps = value_or<double>(measured_at, "nvlink_GBps", a.nvlink.GBps.value, kRate);
  a.measured_network_GBps = value_or<double>(measured_at, "network_GBps", a.network.GBps.value, kRate);
  measured_at.finish();
  set_defaults(a);
  for (const AcceleratorNumber& number : numbers)
    if (!number.of_data_sheet && section_of(number).has(number.key))
      *number.quantity = read_quantity(section_of(number).section(number.key), number.limits);
  for (auto& [name, section] : sections) section.finish();
  if (table.has("casts")) a.casts = read_casts(table.section("casts"));
  if (table.has("attention")) {
    a.attention.clear();
    TomlTable attention = table.section("attention");
    for (const std::string& name : attention.keys())
      a.attention.push_back(read_attention(attention.section(name), name));
    if (a.attention.empty())
      throw table.failure("attention", "expected a kernel, [accelerator.attention.NAME], got none");
  }
  const std::string first = value_or<std::string>(table, "attention_kernel", a.attention.front().name);
  std::stable_partition(a.attention.begin(), a.attention.end(),
                        [&](const AttentionKernel& kernel) { return kernel.name == first; });
  if (a.attention.front().name != first) throw table.error("attention_kernel", "a kernel of [accelerator.attention]");
  a.network_cards = value_or<std::int64_t>(table, "network_cards", a.domain, {.min = 1, .max = 1 << 16});
  if (TomlTable spine = table.section("spine"); !spine.keys().empty()) {
    a.pod = require<std::int64_t>(spine, "pod", {.min = a.domain, .max = std::int64_t{1} << 40});
    if (a.pod % a.domain != 0) throw spine.error("pod", "a multiple of domain " + std::to_string(a.domain));
    a.oversubscription = require<double>(spine, "oversubscription", {.min = 1, .max = 1e6});
    spine.finish();
  }
  table.finish();
  if (const std::string why = contradiction(a); !why.empty())
    throw table.failure(why.substr(0, why.find_first_of(":.")),
                        why.substr(why.find(": ") + 2) + ": it is of another GPU; stretto calibrate --base scales it");
  return a;
}

}  // namespace stretto::sim
