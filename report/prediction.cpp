#include "report/prediction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/values_of.hpp"
#include "report/layout_text.hpp"
#include "report/units.hpp"

namespace stretto {
namespace {

constexpr std::array kLinks = {LinkKind::nvlink, LinkKind::network};

std::string share_text(const std::optional<double>& share) { return share ? percent_text(*share) : "–"; }
double share_of(const Prediction& p, double ms) { return ms / p.step_ms; }

// Returns "1.120 s (7.3 %): tp 1.058 s, dp 59.36 ms; NVLink 1.058 s, network 62.64 ms", without parts of 0.
std::string exposed_text(const Prediction& p) {
  std::vector<std::string> parts, links;
  for (const Coord axis : kExposedAxes)
    if (const double ms = p.exposed_ms(axis); ms > 0)
      parts.push_back(fmt::format("{} {}", name_of(axis), time_text(ms)));
  for (const LinkKind link : kLinks)
    if (const double ms = p.exposed_ms(link); ms > 0)
      links.push_back(fmt::format("{} {}", link == LinkKind::nvlink ? "NVLink" : "network", time_text(ms)));
  std::string text =
      fmt::format("{} ({})", time_text(p.breakdown.exposed), percent_text(share_of(p, p.breakdown.exposed)));
  if (!parts.empty()) text += fmt::format(": {}", fmt::join(parts, ", "));
  if (!links.empty()) text += fmt::format("; {}", fmt::join(links, ", "));
  return text;
}

nlohmann::json known(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

// Returns parts of memory with their sources.
nlohmann::json parts_json(const std::vector<OutsidePlan>& outside_plan) {
  nlohmann::json parts = nlohmann::json::array();
  for (const OutsidePlan& part : outside_plan)
    parts.push_back({{"part", part.what}, {"bytes", part.bytes}, {"kind", part.kind}, {"source", part.source}});
  return parts;
}

nlohmann::json memory_json(const DeviceMemory& memory) {
  nlohmann::json roles = nlohmann::json::array();
  for (const MemoryUse& use : memory.roles)
    roles.push_back({{"stage", use.role},
                     {"parameter_bytes", use.parameters},
                     {"gradient_bytes", use.gradients},
                     {"optimizer_state_bytes", use.optimizer_state},
                     {"activation_bytes", use.activations},
                     {"workspace_bytes", use.workspace},
                     {"input_bytes", use.inputs_and_scalars},
                     {"peak_bytes", use.taken()},
                     {"other_parts", parts_json(use.further)},
                     {"allocated_bytes", use.allocated()},
                     {"held_bytes", use.held}});
  return roles;
}

// The ends of the interval of the predicted memory.
std::int64_t low_end(const DeviceMemory& memory) {
  return std::llround(double(memory.predicted_bytes()) * (1 - memory.unsure));
}
std::int64_t high_end(const DeviceMemory& memory) {
  return std::llround(double(memory.predicted_bytes()) * (1 + memory.unsure));
}

}  // namespace

const char* name_of(LinkKind link) { return name_in({"unknown", "nvlink", "network"}, link); }

Coord axis_of(const std::vector<Coord>& axes) {
  const bool has_dp = std::any_of(axes.begin(), axes.end(), [](Coord axis) {
    return axis == Coord::dp || axis == Coord::dp_instance || axis == Coord::edp;
  });
  if (axes.empty() || has_dp) return Coord::dp;
  switch (axes.front()) {
    case Coord::cp_exchange:
      return Coord::cp;
    case Coord::etp:
      return Coord::tp;
    default:
      return axes.front();
  }
}

double Prediction::exposed_ms(Coord axis) const {
  double ms = 0;
  for (const ExposedPart& part : exposed)
    if (part.axis == axis) ms += part.ms;
  return ms;
}

double Prediction::exposed_ms(LinkKind link) const {
  double ms = 0;
  for (const ExposedPart& part : exposed)
    if (part.link == link) ms += part.ms;
  return ms;
}

bool Prediction::knows_links() const {
  return std::none_of(exposed.begin(), exposed.end(),
                      [](const ExposedPart& part) { return part.link == LinkKind::unknown; });
}

std::vector<std::pair<std::string, double>> Prediction::limits() const {
  const BreakdownMs& b = breakdown;
  std::vector<std::pair<std::string, double>> limits = {
      {"compute", b.compute}, {"waiting for a core", b.core_wait}, {"waiting for peers", b.bubble - b.host}};
  if (b.host > 0) limits.push_back({"waiting for the host", b.host});
  if (b.queue_wait > 0) limits.push_back({"waiting for a hardware queue", b.queue_wait});
  for (const ExposedPart& part : exposed)
    limits.push_back({"exposed " + part.communicator + " communication", part.ms});
  for (auto& [what, ms] : limits) ms /= step_ms;
  std::stable_sort(limits.begin(), limits.end(), [](const auto& x, const auto& y) { return x.second > y.second; });
  return limits;
}

std::string about_text(const Prediction& p) {
  return fmt::format("scenario {} on {}: {} parameters, {} rank{}, schedule {}, network {}", p.scenario, p.platform,
                     count_text(p.parameters), p.ranks, p.ranks == 1 ? "" : "s", p.schedule, p.engine);
}

std::string limits_text(const Prediction& p) {
  std::string text = "what limits it:";
  for (const auto& [what, share] : p.limits())
    if (share >= 0.005) text += fmt::format("  {} {}", what, percent_text(share));
  return text;
}

Table prediction_table(const Prediction& p) {
  const std::string device = p.devices == 1 ? "" : " a " + p.device;
  Table table({"what", "value"});
  table.add_row({"layout", layout_text(p.parallel, p.micro_batches)});
  table.add_row({"step", time_text(p.step_ms) + (p.steady ? "" : " (not steady)")});
  std::string tokens = fmt::format("{:.0f}", p.throughput.tokens_per_s);
  if (p.devices > 1) tokens += fmt::format(", {:.0f}{}", p.throughput.tokens_per_s_per_device, device);
  table.add_row({"tokens/s", tokens});
  const auto within = p.throughput.FLOPs_within_documents_per_s;
  table.add_row({"FLOP/s", rate_text(p.throughput.FLOPs_per_s / double(p.devices)) + device +
                               (within ? fmt::format(" of whole sequences, as frameworks count; {}{} within documents",
                                                     rate_text(*within / double(p.devices)), device)
                                       : "")});
  if (p.throughput.mfu_within_documents)
    table.add_row({"MFU within documents",
                   fmt::format("{} / HFU {} of {}{}, {}; MFU {} of whole sequences",
                               percent_text(*p.throughput.mfu_within_documents), share_text(p.throughput.hfu),
                               rate_text(p.peak.FLOPs_per_s / double(p.devices)), device, p.peak.source,
                               share_text(p.throughput.mfu))});
  else if (p.throughput.mfu)
    table.add_row(
        {"MFU / HFU", fmt::format("{} / {} of {}{}, {}; MFU {} with attention in full", percent_text(*p.throughput.mfu),
                                  share_text(p.throughput.hfu), rate_text(p.peak.FLOPs_per_s / double(p.devices)),
                                  device, p.peak.source, share_text(p.throughput.mfu_full_attention))});
  table.add_row({"exposed communication", exposed_text(p)});
  table.add_row(
      {"bubble", fmt::format("{} ({})", time_text(p.breakdown.bubble), percent_text(share_of(p, p.breakdown.bubble)))});
  if (p.breakdown.queue_wait > 0)
    table.add_row({"waiting for hardware queues", fmt::format("{} ({})", time_text(p.breakdown.queue_wait),
                                                              percent_text(share_of(p, p.breakdown.queue_wait)))});
  if (p.has_host)
    table.add_row({"host bound", percent_text(share_of(p, p.breakdown.host))});
  else
    table.add_row({"host", "not modelled"});
  table.add_row({"memory", memory_text(p.memory, p.device)});
  return table;
}

nlohmann::json prediction_json(const Prediction& p) {
  nlohmann::json limits = nlohmann::json::array(), communicators = nlohmann::json::array(), links = nullptr;
  for (const auto& [what, share] : p.limits()) limits.push_back({{"what", what}, {"share", share}});
  for (const ExposedPart& part : p.exposed)
    communicators.push_back(
        {{"communicator", part.communicator},
         {"axis", name_of(part.axis)},
         {"link", part.link == LinkKind::unknown ? nlohmann::json(nullptr) : nlohmann::json(name_of(part.link))},
         {"exposed_ms", part.ms}});
  if (p.knows_links())
    links = {{"nvlink", p.exposed_ms(LinkKind::nvlink)}, {"network", p.exposed_ms(LinkKind::network)}};
  nlohmann::json exposed = {{"total", p.breakdown.exposed}};
  for (const Coord axis : kExposedAxes) exposed[name_of(axis)] = p.exposed_ms(axis);
  return {{"scenario", p.scenario},
          {"engine", p.engine},
          {"ranks", p.ranks},
          {"layout", layout_json(p.parallel, p.micro_batches)},
          {"parameters", p.parameters},
          {"step_ms", p.step_ms},
          {"tokens_per_s", p.throughput.tokens_per_s},
          {"tokens_per_s_per_gpu", p.throughput.tokens_per_s_per_device},
          {"mfu", known(p.throughput.mfu)},
          {"mfu_full_attention", known(p.throughput.mfu_full_attention)},
          {"mfu_within_documents", known(p.throughput.mfu_within_documents)},
          {"hfu", known(p.throughput.hfu)},
          {"tflops_per_gpu", p.throughput.TFLOPs_per_device},
          {"peak_tflops_per_gpu", p.peak.FLOPs_per_s / double(p.devices) * 1e-12},
          {"exposed_ms", std::move(exposed)},
          {"exposed_by_link_ms", std::move(links)},
          {"exposed_by_communicator", std::move(communicators)},
          {"bubble_ms", p.breakdown.bubble},
          {"compute_ms", p.breakdown.compute},
          {"core_wait_ms", p.breakdown.core_wait},
          {"queue_wait_ms", p.breakdown.queue_wait},
          {"host_bound_pct", p.has_host ? nlohmann::json(p.host_bound_pct()) : nlohmann::json(nullptr)},
          {"host_bound", p.has_host ? nlohmann::json(p.host_bound_pct() > 50) : nlohmann::json(nullptr)},
          {"peak_bytes", p.memory.predicted_bytes()},
          {"predicted_peak_bytes", p.memory.predicted_bytes()},
          {"reserved_bytes", p.memory.reserved_bytes()},
          {"reserved", parts_json(p.memory.outside_plan)},
          {"device_bytes", p.memory.device_bytes},
          {"free_bytes", p.memory.free_bytes()},
          {"fullest_stage", p.memory.roles.empty() ? "" : p.memory.roles[p.memory.fullest()].role},
          {"memory", memory_json(p.memory)},
          {"memory_parts", parts_json(p.memory.parts())},
          {"memory_low_bytes", low_end(p.memory)},
          {"memory_high_bytes", high_end(p.memory)},
          {"memory_verdict", name_of(p.memory.fit())},
          {"fits", p.memory.fits()},
          {"limits", std::move(limits)},
          {"operations", p.operations},
          {"simulated_micro_batches", p.simulated_micro_batches},
          {"why_simulated", p.why_simulated.empty() ? nlohmann::json(nullptr) : nlohmann::json(p.why_simulated)},
          {"simulate_s", p.whole_s},
          {"notes", p.notes}};
}

}  // namespace stretto
