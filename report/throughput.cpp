#include "report/throughput.hpp"

#include <fmt/format.h>

#include "model/training_flops.hpp"
#include "report/data_sheet.hpp"
#include "report/units.hpp"

namespace stretto {

std::string data_sheet_of(Dtype type) { return "the data sheet's " + std::string(name_of(type)) + " peak"; }

PeakRate data_sheet_peak(std::string_view device, std::int64_t devices, Dtype type) {
  return {data_sheet_TFLOPs(device, type).value_or(0) * 1e12 * double(devices), data_sheet_of(type)};
}

Throughput throughput_of(const Scenario& scenario, double step_ms, std::int64_t devices, const PeakRate& peak) {
  const Training& training = scenario.training;
  const double document_tokens = scenario.document_tokens_on_average();
  const Flops flops =
      training_flops_per_sequence(scenario.model, training.frozen_base, training.attention_backend, document_tokens);
  const double executed =
      flops.hardware + recompute_flops_per_sequence(scenario.model, training.recompute, training.attention_backend,
                                                    scenario.parallel.tensor_model_parallel_size, document_tokens);
  const double sequences_per_s = double(scenario.training.global_batch_size) / (step_ms * 1e-3);
  Throughput throughput;
  throughput.tokens_per_s = sequences_per_s * double(scenario.model.seq_length);
  throughput.tokens_per_s_per_device = throughput.tokens_per_s / double(devices);
  throughput.FLOPs_per_s = flops.model * sequences_per_s;
  throughput.TFLOPs_per_device = throughput.FLOPs_per_s / double(devices) * 1e-12;
  if (document_tokens > 0) throughput.FLOPs_within_documents_per_s = flops.model_within_documents * sequences_per_s;
  if (peak.FLOPs_per_s > 0) {
    // No step is faster than a true peak: where a step is, the yardstick is wrong, and no share of it means anything.
    const auto share = [&](double FLOPs_per_s, const char* name) -> std::optional<double> {
      if (FLOPs_per_s <= peak.FLOPs_per_s) return FLOPs_per_s / peak.FLOPs_per_s;
      if (throughput.doubt.empty())
        throughput.doubt = fmt::format(
            "{} is left out: {} of a step are more than the yardstick, {}, of {}, which is too low (docs/mfu.md)", name,
            rate_text(FLOPs_per_s), rate_text(peak.FLOPs_per_s), peak.source);
      return {};
    };
    if (const auto within = throughput.FLOPs_within_documents_per_s) {
      throughput.mfu_within_documents = share(*within, "MFU within documents");
      if (throughput.doubt.empty() && throughput.FLOPs_per_s > peak.FLOPs_per_s)
        throughput.doubt = fmt::format(
            "MFU of whole sequences is left out: it would be {}, because it counts pairs of tokens of different "
            "documents, "
            "which no kernel multiplies; MFU within documents is {} (docs/mfu.md)",
            percent_text(throughput.FLOPs_per_s / peak.FLOPs_per_s), percent_text(*throughput.mfu_within_documents));
    }
    throughput.mfu = share(throughput.FLOPs_per_s, "MFU");
    throughput.hfu = share(executed * sequences_per_s, "HFU");
    // With long sequences of a causal model, this count has twice the products that any kernel executes.
    if (const double full = flops.model_full_attention * sequences_per_s; throughput.mfu && full <= peak.FLOPs_per_s)
      throughput.mfu_full_attention = full / peak.FLOPs_per_s;
  }
  return throughput;
}

}  // namespace stretto
