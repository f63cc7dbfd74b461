#include "sim/accelerator/numbers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/printable.hpp"

namespace stretto::sim {
namespace {

constexpr Limits<double> kShare{.min = 1e-6, .max = 1};
constexpr Limits<double> kTime{.min = 0, .max = 1e9};
constexpr Limits<double> kAtLeastOne{.min = 1, .max = 1e6};
constexpr Limits<double> kFactor{.min = 1e-3, .max = 1e3};
constexpr Limits<double> kLoss{.min = 0, .max = 100};
constexpr Limits<double> kSms{.min = 0, .max = 1 << 16};
constexpr Limits<double> kBytes{.min = 0, .max = 1e15};

Quantity assumed(double value, double low, double high, const char* why) {
  return {value, {"assumed", why, 0}, low, high};
}
Quantity derived(double value, const char* how) { return {value, {"derived", how, 0}, 0, 0}; }

std::string number_text(const Quantity& quantity) {
  std::string text = fmt::format("{{ value = {}", quantity.value);
  if (quantity.high != 0) text += fmt::format(", low = {}, high = {}", quantity.low, quantity.high);
  if (quantity.sourced) text += fmt::format(", sourced = {}", *quantity.sourced);
  return text +
         fmt::format(", kind = \"{}\", source = {} }}\n", quantity.source.kind, toml_string(quantity.source.origin));
}

std::string toml_key(const std::string& key) {
  const bool is_bare = !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char letter) {
    return letter == '_' || letter == '-' || (letter < 0x80 && std::isalnum(letter) != 0);
  });
  return is_bare ? key : toml_string(key);
}

std::string table_text(const char* key, const std::string& file, const Source& source) {
  return fmt::format("{} = {{ file = {}, kind = \"{}\", source = {} }}\n", key, toml_string(file), source.kind,
                     toml_string(source.origin));
}

}  // namespace

std::string toml_string(std::string_view text) {
  std::string quoted = "\"";
  for (const char letter : printable(text)) {
    if (letter == '"' || letter == '\\') quoted += '\\';
    quoted += letter;
  }
  return quoted + "\"";
}

std::vector<AcceleratorNumber> numbers_of(Accelerator& a) {
  std::vector<AcceleratorNumber> numbers = {
      {"", "peak_TFLOPs", &a.peak_TFLOPs, kRate, true},
      {"", "hbm_GBps", &a.hbm_GBps, kRate, true},
      {"", "gemm_sustained", &a.gemm_sustained, kRate},
      {"", "gemm_odd", &a.gemm_odd, kAtLeastOne},
      {"", "gemm_unaligned", &a.gemm_unaligned, kAtLeastOne},
      {"", "gemm_share", &a.gemm_share, kShare},
      {"", "hbm_share", &a.hbm_share, kShare},
      {"", "kernel_us", &a.kernel_us, kTime},
      {"", "grouped_gemm", &a.grouped_gemm, kRate},
      {"", "fp8_attention", &a.fp8_attention, kAtLeastOne},
      {"", "bmm_share", &a.bmm_share, kShare},
      {"", "collective_in_step_us", &a.collective_in_step_us, kTime},
      {"", "network_share", &a.network_share, kShare},
      {"", "collective_bandwidth", &a.collective_bandwidth, kFactor},
      {"", "collective_latency", &a.collective_latency, kFactor},
      {"", "reserved_bytes", &a.reserved_bytes, kBytes},
      {"nvlink", "GBps", &a.nvlink.GBps, kRate, true},
      {"nvlink", "latency_us", &a.nvlink.latency_us, kTime},
      {"network", "GBps", &a.network.GBps, kRate, true},
      {"network", "latency_us", &a.network.latency_us, kTime},
      {"fp8", "peak_TFLOPs", &a.fp8.peak_TFLOPs, kRate},
      {"fp8", "gemm_sustained", &a.fp8.gemm_sustained, kRate},
      {"fp8", "split_accumulation", &a.split_accumulation, kAtLeastOne},
      {"fp8_block", "peak_TFLOPs", &a.fp8_block.peak_TFLOPs, kRate},
      {"fp8_block", "gemm_sustained", &a.fp8_block.gemm_sustained, kRate},
      {"mxfp8", "peak_TFLOPs", &a.mxfp8.peak_TFLOPs, kRate},
      {"mxfp8", "gemm_sustained", &a.mxfp8.gemm_sustained, kRate},
      {"nvfp4", "peak_TFLOPs", &a.nvfp4.peak_TFLOPs, kRate},
      {"nvfp4", "gemm_sustained", &a.nvfp4.gemm_sustained, kRate},
      {"beside_communication", "gemm", &a.beside_communication.gemm, kAtLeastOne},
      {"beside_communication", "attention", &a.beside_communication.attention, kAtLeastOne},
      {"beside_communication", "memory_bound", &a.beside_communication.memory_bound, kAtLeastOne},
      {"beside_communication", "communication", &a.beside_communication.communication, kAtLeastOne},
      {"beside_communication", "loss", &a.beside_communication.loss, kLoss},
      {"communication_sms", "ring", &a.communication_sms.ring, kSms},
      {"communication_sms", "nvls", &a.communication_sms.nvls, kSms},
      {"communication_sms", "ring_across", &a.communication_sms.ring_across, kSms},
      {"communication_sms", "exchange", &a.communication_sms.exchange, kSms},
      {"communication_sms", "message", &a.communication_sms.message, kSms},
      {"communication_sms", "deepep", &a.communication_sms.deepep, kSms},
      {"communication_sms", "hybridep", &a.communication_sms.hybridep, kSms},
      {"token_exchange", "network_share", &a.token_exchange.network_share, kShare},
      {"token_exchange", "us", &a.token_exchange.us, kTime},
      {"token_exchange", "flex_nvlink_GBps", &a.token_exchange.flex_nvlink_GBps, kRate},
      {"token_exchange", "flex_network_GBps", &a.token_exchange.flex_network_GBps, kRate},
      {"token_exchange", "flex_us", &a.token_exchange.flex_us, kTime},
      {"token_exchange", "hybridep_us", &a.token_exchange.hybridep_us, kTime}};
  LinearAttentionRates& linear = a.linear_attention;
  if (linear.is_given)
    numbers.insert(numbers.end(), {{"linear_attention", "delta_ns", &linear.delta_ns, kTime},
                                   {"linear_attention", "delta_serial_ns", &linear.delta_serial_ns, kTime},
                                   {"linear_attention", "delta_backward", &linear.delta_backward, kTime},
                                   {"linear_attention", "ssd_ns", &linear.ssd_ns, kTime},
                                   {"linear_attention", "ssd_pairs", &linear.ssd_pairs, kTime},
                                   {"linear_attention", "ssd_backward", &linear.ssd_backward, kTime}});
  return numbers;
}

void set_defaults(Accelerator& a) {
  a.gemm_sustained = a.gemms.empty()
                         ? assumed(1, 1, 1.1, "gemm_share is of sustained GEMMs")
                         : assumed(1.2, 1, 1.5, "between A100's 1.1 and B200's 1.42 over a table of constant data");
  for (const auto& [low, type] : {std::pair{&a.fp8, ProductType::fp8},
                                  {&a.fp8_block, ProductType::fp8_block},
                                  {&a.mxfp8, ProductType::mxfp8},
                                  {&a.nvfp4, ProductType::nvfp4}}) {
    low->peak_TFLOPs = derived(rule_of(type).of_peak * a.peak_TFLOPs.value,
                               type == ProductType::nvfp4 ? "4 times bf16" : "twice bf16, as of H100 and B200");
    low->gemm_sustained = a.gemms.empty() ? assumed(1, 1, 1.1, "gemm_share is of sustained GEMMs")
                                          : assumed(1.2, 1, 1.45, "as bf16's; not measured");
  }
  a.split_accumulation = assumed(1, 1, 1.2, "Blackwell has no other accumulation; on Hopper 1.1 to 1.2");
  a.gemm_odd = assumed(3.9, 2, 5, "as A100");
  a.gemm_unaligned = assumed(2.4, 1.5, 3, "as A100");
  a.gemm_share = assumed(0.65, 0.55, 0.75, "where no table is: what large GEMMs sustain");
  a.hbm_share = assumed(0.85, 0.67, 0.9, "streaming kernels on data-center GPUs reach 80 to 90 %");
  a.kernel_us = assumed(2.75, 2, 4, "launch gap and ramp of a short kernel after another");
  a.grouped_gemm =
      assumed(1, 0.85, 1.2,
              "the model errs by 11 to 23 % of SimuMax's 20 measured shapes on B200, of several shapes in a "
              "step by less");
  a.fp8_attention = assumed(1.2, 1.1, 1.4, "as B200");
  a.bmm_share = assumed(0.25, 0.2, 0.6, "as A100");
  a.collective_in_step_us =
      assumed(50, 0, 75, "launch, event wait and skew of ranks, which nccl-tests hides; as on B200");
  a.collective_bandwidth = a.collective_latency = {1, {"measured", "the table as it is", 0}};
  a.network_share = assumed(0.92, 0.8, 0.97, "23 GB/s of a 200 Gb/s card reach a GPU");
  a.reserved_bytes = assumed(2.1e9, 0.9e9, 3.9e9, "code of libraries, fragmentation");
  a.nvlink.latency_us = assumed(3, 2, 6, "a message between two kernels on NVLink");
  a.network.latency_us = assumed(10, 6, 20, "a message between two nodes through NCCL");
  for (Quantity* quantity : {&a.beside_communication.gemm, &a.beside_communication.attention,
                             &a.beside_communication.memory_bound, &a.beside_communication.communication})
    *quantity = assumed(1, 1, 1.2, "not measured on this GPU; gemm_sustained is of steps, and has some of it");
  // Measured over predicted losses of the components that sim/cost/concurrent_kernels.hpp names: 0.4 to 2.9, most
  // within this.
  a.beside_communication.loss = assumed(
      1, 0.5, 2, "what SMs and the memory's rate say; eleven components are within a factor of 2 or little more");
  for (Quantity* quantity : {&a.communication_sms.ring, &a.communication_sms.nvls, &a.communication_sms.ring_across,
                             &a.communication_sms.exchange, &a.communication_sms.message, &a.communication_sms.deepep,
                             &a.communication_sms.hybridep})
    *quantity = assumed(0, 0, 0, "not known; the factors of beside_communication count");
  TokenExchange& t = a.token_exchange;
  const double nvlink = a.nvlink.GBps.value / a.nvlink_change(), network = a.network.GBps.value / a.network_change();
  t.network_share = {
      0.74,
      {"fitted", "Qwen3-30B-A3B on 16 H100 with the all-to-all dispatcher, one step (Megatron-Bridge)", 0},
      0.6,
      0.92};
  t.us = {40, {"fitted", "one MoE layer on 8 H100 (Megatron-LM moe_perf) over the nccl-tests table", 0}, 0, 80};
  t.flex_nvlink_GBps = assumed(0.62 * nvlink, 0.5 * nvlink, 0.7 * nvlink,
                               "as H100's share of NVLink: 281 of 450 GB/s, DeepEP's combine with 20 to 24 SMs");
  t.flex_network_GBps = assumed(0.91 * network, 0.86 * network, 0.94 * network,
                                "as H100's share of its card: 45.5 of 50 GB/s, DeepEP over 4 nodes");
  t.flex_us = assumed(45, 20, 80, "what DeepEP's kernels take besides, on H100");
  t.hybridep_us = assumed(250, 100, 400, "its scan of what goes where runs on all SMs");
  const double peak = a.peak_TFLOPs.value;
  a.attention = {{"cudnn", derived(1.1 * peak, "1.1 of peak_TFLOPs; H100 1.13"),
                  derived(0.9 * peak, "0.9 of peak_TFLOPs; H100 0.91")},
                 {"flash2", derived(0.7 * peak, "0.7 of peak_TFLOPs, as H100"),
                  derived(0.6 * peak, "0.6 of peak_TFLOPs, as H100")}};
}

std::string accelerator_text(const Accelerator& accelerator, const std::string& gemm_file,
                             const std::string& collective_file) {
  Accelerator a = accelerator;
  std::string text = fmt::format("[accelerator]\nsms = {}\ndomain = {}\n", a.sms, a.domain);
  if (!a.gemms.empty())
    text += table_text("gemm_table", gemm_file, a.gemm_source) + fmt::format("gemm_waves = {}\n", a.gemm_waves);
  if (!a.collectives.empty()) text += table_text("collective_table", collective_file, a.collective_source);
  if (a.measured_nvlink_GBps > 0)
    text += fmt::format("measured_at = {{ nvlink_GBps = {}, network_GBps = {} }}\n", a.measured_nvlink_GBps,
                        a.measured_network_GBps);
  if (a.multicast) text += "multicast = true\n";
  if (a.network_cards != a.domain) text += fmt::format("network_cards = {}\n", a.network_cards);
  if (a.oversubscription != 1)
    text += fmt::format("spine = {{ pod = {}, oversubscription = {} }}\n", a.pod, a.oversubscription);
  std::string section;
  for (const AcceleratorNumber& number : numbers_of(a)) {
    if (number.section != section) text += fmt::format("\n[accelerator.{}]\n", section = number.section);
    text += std::string(number.key) + " = " + number_text(*number.quantity);
    if (number.quantity == &a.reserved_bytes)
      text += fmt::format("attention_kernel = {}\n", toml_string(a.attention.front().name));
  }
  if (!a.casts.elements.empty())
    text += fmt::format("\n[accelerator.casts]\nelements = [{}]\nshare = [{}]\nkind = \"{}\"\nsource = {}\n",
                        fmt::join(a.casts.elements, ", "), fmt::join(a.casts.share, ", "), a.casts.source.kind,
                        toml_string(a.casts.source.origin));
  for (const AttentionKernel& kernel : a.attention)
    text += fmt::format(
        "\n[accelerator.attention.{}]\nforward_TFLOPs = {}backward_TFLOPs = {}forward_rows = "
        "{}\nbackward_rows = {}\nhalf_rate_keys = {}\nbackward_half_rate_keys = {}\nhalf_rate_head_dim = {}\nhead_dim "
        "= {}\nmost_keys = {}\n",
        toml_key(kernel.name), number_text(kernel.forward_TFLOPs), number_text(kernel.backward_TFLOPs),
        kernel.forward_rows, kernel.backward_rows, kernel.half_rate_keys, kernel.backward_half_rate_keys,
        kernel.half_rate_head_dim, kernel.head_dim, kernel.most_keys);
  return text;
}

}  // namespace stretto::sim
