#include "calibrate/import/import_platform.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "base/gpu_name.hpp"
#include "base/printable.hpp"
#include "calibrate/calibrate.hpp"
#include "calibrate/import/correct_gemms.hpp"
#include "sim/accelerator/kernel_time.hpp"
#include "sim/accelerator/numbers.hpp"

namespace stretto::calibrate {
namespace {

// GPUs of the largest common host: a larger domain spans several hosts.
constexpr std::int64_t kMostOfHost = 8;

using Series = std::tuple<CollectiveKind, std::int64_t, std::int64_t>;  // kind, nodes, GPUs
Series series_of(const sim::CollectiveTime& time) { return {time.kind, time.span.nodes, time.span.members}; }

// Returns "a.txt, b.txt and 3 more", because lines of a TOML file have a limit.
std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, names.size()); ++i)
    text += (i == 0 ? "" : ", ") + printable(names[i]).substr(0, 100);
  return names.size() > kMost ? fmt::format("{} and {} more", text, names.size() - kMost) : text;
}

std::vector<std::string> files_with(const std::vector<Measurements>& measured, bool (*has)(const Measurements&)) {
  std::vector<std::string> files;
  for (const Measurements& one : measured)
    if (has(one)) files.push_back(one.file);
  return files;
}

// Returns the names of shipped platforms of this model of a GPU: "h100-hbm2e-500w, h100-sxm".
std::string platforms_of(const std::string& device) {
  std::string names;
  for (const std::string& name : data_names("platforms"))
    if (gpu_model(sim::read_platform(data_file("platforms", name)).device) == gpu_model(device))
      names += (names.empty() ? "" : ", ") + name;
  return names;
}

class Importer {
 public:
  Importer(const std::vector<Measurements>& measured, const std::optional<sim::Platform>& base, const DataSheet& sheet)
      : measured_(measured), base_(base), sheet_(sheet) {}

  ImportedPlatform import(const std::string& name) {
    sim::Platform& platform = imported_.platform;
    if (base_) platform = *base_;
    imported_.base = base_name();
    if (!platform.accelerator) platform.accelerator.emplace();
    platform.name = name;
    platform.date = today();
    platform.cores = 1;
    read_sheet();
    scale_to_sheet();
    // Times that are added are of the platform's own links.
    platform.accelerator->measured_nvlink_GBps = platform.accelerator->nvlink.GBps.value;
    platform.accelerator->measured_network_GBps = platform.accelerator->network.GBps.value;
    add_gemms();
    add_collectives();
    add_interference();
    if (!base_) set_defaults(*platform.accelerator);
    // A platform file with a contradiction would be refused when it is read.
    if (const std::string why = sim::contradiction(*platform.accelerator); !why.empty())
      throw input_error("--import: " + why + "; times are in microseconds, and the data sheet's numbers are options");
    add_numbers();
    if (platform.device.empty()) platform.device = name;
    note_other_gpus();
    for (const Measurements& one : measured_) {
      if (!one.device.empty()) platform.device = printable(one.device);
      for (const std::string& note : one.notes) imported_.notes.push_back(one.file + ": " + note);
    }
    return std::move(imported_);
  }

 private:
  sim::Accelerator& accelerator() { return *imported_.platform.accelerator; }

  // Says which files are of another GPU than the base, whose numbers are the rest of the platform, or than one another.
  void note_other_gpus() {
    const std::string* before = base_ ? &base_->device : nullptr;
    for (const Measurements& one : measured_) {
      if (before && are_other_gpus(one.device, *before)) {
        const std::string ours = platforms_of(one.device);
        imported_.notes.push_back(
            fmt::format("{} is of another GPU, {}, than {}, {}: what your files lack stays that of the other one{}",
                        one.file, one.device, base_ ? base_name() : "a file before it", *before,
                        ours.empty() ? "" : "; platforms of that GPU: " + ours));
      } else if (!before && !gpu_model(one.device).empty()) {
        before = &one.device;
      }
    }
  }

  void read_sheet() {
    sim::Accelerator& a = accelerator();
    std::vector<std::string> missing;
    const auto take = [&](const char* option, const std::optional<double>& value, Quantity& quantity) {
      if (value)
        quantity = {*value, {"published", "data sheet, as given to stretto calibrate", 0}, 0, 0};
      else if (!base_)
        missing.push_back(option);
    };
    take("--peak_TFLOPs", sheet_.peak_TFLOPs, a.peak_TFLOPs);
    take("--hbm_GBps", sheet_.hbm_GBps, a.hbm_GBps);
    take("--nvlink_GBps", sheet_.nvlink_GBps, a.nvlink.GBps);
    take("--network_GBps", sheet_.network_GBps, a.network.GBps);
    if (sheet_.memory_GiB)
      imported_.platform.memory_bytes = static_cast<std::int64_t>(*sheet_.memory_GiB * (1 << 30));
    else if (!base_)
      missing.push_back("--memory_GiB");
    const bool has_card_each = !base_ || a.network_cards == a.domain;
    if (sheet_.domain)
      a.domain = *sheet_.domain;
    else if (!base_)
      missing.push_back("--domain");
    if (sheet_.sms || !base_) a.sms = static_cast<int>(sheet_.sms.value_or(sim::kDefaultSms));
    if (has_card_each) a.network_cards = a.domain;
    if (a.oversubscription != 1 && a.pod % a.domain != 0)
      throw input_error(
          fmt::format("--domain {}: expected a divisor of the pod of {}, {}", a.domain, base_name(), a.pod));
    if (missing.empty()) return;
    std::string text;
    for (const std::string& option : missing) text += (text.empty() ? "" : ", ") + option;
    throw input_error("expected --base, a platform to start from (h100-sxm), or a whole data sheet, got none of " +
                      text);
  }

  // Returns whether the given peak differs from the base's.
  bool is_peak_given() { return base_ && accelerator().peak_TFLOPs.value != base_->accelerator->peak_TFLOPs.value; }
  std::string of_base(bool is_scaled) const { return is_scaled ? "derived" : base_name(); }

  // Scales the base's times, which belong to its own GPU: under another data sheet they keep their share of the peak
  // and of NVLink.
  void scale_to_sheet() {
    if (!base_) return;
    sim::Accelerator& a = accelerator();
    const sim::Accelerator& before = *base_->accelerator;
    if (is_peak_given()) {
      const double faster = a.peak_TFLOPs.value / before.peak_TFLOPs.value;
      const std::string how = fmt::format("{}, at peak_TFLOPs {:g} instead of {:g}", base_name(), a.peak_TFLOPs.value,
                                          before.peak_TFLOPs.value);
      scale_gemms(faster, how);
      for (sim::AttentionKernel& kernel : a.attention)
        for (Quantity* rate : {&kernel.forward_TFLOPs, &kernel.backward_TFLOPs})
          *rate = {rate->value * faster, {"derived", how, 0}, rate->low * faster, rate->high * faster};
      imported_.notes.push_back("GEMMs and attention are those of " + how + ": measure them (--import)");
    }
    if (a.measured_nvlink_GBps == 0) a.measured_nvlink_GBps = before.nvlink.GBps.value;
    if (a.measured_network_GBps == 0) a.measured_network_GBps = before.network.GBps.value;
    if (a.nvlink_change() != 1 || a.network_change() != 1) scale_communication();
  }

  // Scales products; a memory-bound product does not become faster with the peak.
  void scale_gemms(double faster, const std::string& how) {
    sim::Accelerator& a = accelerator();
    if (a.gemms.empty()) return;
    std::vector<sim::GemmTime> times = a.gemms.times();
    for (sim::GemmTime& time : times) {
      const double bytes = sim::rule_of(time.type).bytes * (time.m * time.k + time.k * time.n) +
                           double(bytes_of(Dtype::bf16)) * time.m * time.n;
      const double memory_us = bytes / (a.hbm_share.value * a.hbm_GBps.value * 1e3);
      time.us = std::max(time.us / faster, std::min(time.us, memory_us));
    }
    a.gemms = sim::GemmTable(times, base_name());
    a.gemm_source = {"derived", how, 0};
  }

  // Scales what was measured on the base's links as a prediction does on changed links
  // (sim/accelerator/accelerator.hpp).
  void scale_communication() {
    sim::Accelerator& a = accelerator();
    std::string how = base_name();
    const auto rate = [&](const char* name, const Quantity& now, double measured, Quantity& of_library) {
      const double faster = now.value / measured;
      if (faster == 1) return;
      how += fmt::format(", at {} {:g} instead of {:g}", name, now.value, measured);
      of_library = {of_library.value * faster, {"derived", how, 0}, of_library.low * faster, of_library.high * faster};
    };
    rate("nvlink.GBps", a.nvlink.GBps, a.measured_nvlink_GBps, a.token_exchange.flex_nvlink_GBps);
    rate("network.GBps", a.network.GBps, a.measured_network_GBps, a.token_exchange.flex_network_GBps);
    are_links_scaled_ = true;
    std::vector<sim::CollectiveTime> times = a.collectives.times();
    const double bandwidth = a.collective_bandwidth.value, latency = a.collective_latency.value;
    a.collective_bandwidth.value = a.collective_latency.value = 1;  // they apply to the new table, too
    for (sim::CollectiveTime& time : times) time.us = sim::measured_collective_us(a, time.kind, time.bytes, time.span);
    a.collective_bandwidth.value = bandwidth, a.collective_latency.value = latency;
    if (times.empty()) return;
    a.collectives = sim::CollectiveTable(times);
    a.collective_source = {"derived", how, 0};
    imported_.notes.push_back("collectives are those of " + how + ": measure them (--import)");
  }

  void add_part(const std::string& what, const std::string& value, const std::string& from) {
    imported_.parts.push_back({what, value, from});
  }
  std::string base_name() const { return base_ ? base_->name : ""; }
  Source source_of(const std::string& what, const Source& before) const {
    return {"measured",
            what + ", " + imported_.platform.date + (before.origin.empty() ? "" : "; the rest " + base_name()), 0};
  }

  // Returns whether a grid is as wide as another up to a factor of 8 at each end, so that little is extrapolated.
  static bool reaches(const sim::GemmGrid& grid, const sim::GemmGrid& other) {
    constexpr double kFactor = 8;
    const auto covers = [](const std::vector<double>& axis, const std::vector<double>& others) {
      return axis.front() <= kFactor * others.front() && kFactor * axis.back() >= others.back();
    };
    return covers(grid.m(), other.m()) && covers(grid.n(), other.n()) && covers(grid.k(), other.k());
  }

  // Names the file and the shape that cannot be; contradiction() would name a shape that follows from it.
  void require_below_peak() {
    constexpr double kMostOfPeak = 1.1;  // as contradiction() has it
    for (const Measurements& one : measured_)
      for (const sim::GemmTime& time : one.gemms)
        if (const double TFLOPs = 2 * time.m * time.n * time.k / time.us * 1e-6,
            peak = accelerator().peak_TFLOPs_of(time.type);
            peak > 0 && TFLOPs > kMostOfPeak * peak)
          throw input_error(
              fmt::format("{}: m, n, k = {:g}, {:g}, {:g} in {:g} us: expected at most the peak, {:g} TFLOP/s, got "
                          "{:.0f}; times are "
                          "in microseconds, and the data sheet's numbers are options",
                          one.file, time.m, time.n, time.k, time.us, peak, TFLOPs));
  }

  void add_gemms() {
    sim::Accelerator& a = accelerator();
    std::vector<sim::GemmTime> times;
    for (const Measurements& one : measured_) times.insert(times.end(), one.gemms.begin(), one.gemms.end());
    require_below_peak();
    const std::string files = listed(files_with(measured_, [](const Measurements& one) { return !one.gemms.empty(); }));
    if (times.empty()) {
      if (!a.gemms.empty())
        add_part("GEMMs", fmt::format("{} shapes", a.gemms.times().size()), of_base(is_peak_given()));
      else
        add_part("GEMMs", "roofline", "derived");
      return;
    }
    std::map<sim::ProductType, std::vector<sim::GemmTime>> by_type;
    for (const sim::GemmTime& time : times) by_type[time.type].push_back(time);
    std::vector<sim::GemmTime> all = a.gemms.times();
    std::erase_if(all, [&](const sim::GemmTime& time) { return by_type.contains(time.type); });
    bool keeps_base = !all.empty();
    for (auto& [type, of_type] : by_type) {
      add_part("GEMMs" + (by_type.size() > 1 ? " in " + std::string(name_of(type)) : ""),
               fmt::format("{} shapes", count_shapes(of_type)), kYours);
      const bool is_base = a.gemms.has(type);
      if (is_base && !(is_gemm_grid(of_type) && reaches(sim::GemmGrid(of_type, files), a.gemms.grid(type)))) {
        const std::vector<sim::GemmTime> own = std::move(of_type);
        of_type = corrected_gemms(a.gemms.grid(type), a.gemm_waves ? a.sms : 0, own);
        for (sim::GemmTime& time : of_type) {
          time.type = type;
          // A few small shapes that are faster than the base's say nothing about its large ones, which are near the
          // peak.
          const bool is_own = std::any_of(own.begin(), own.end(), [&](const sim::GemmTime& measured) {
            return measured.m == time.m && measured.n == time.n && measured.k == time.k;
          });
          if (!is_own) time.us = std::max(time.us, 2 * time.m * time.n * time.k / a.peak_TFLOPs_of(type) * 1e-6);
        }
        keeps_base = true;
        add_part("GEMMs between and beyond these shapes", "scaled as they are", of_base(is_peak_given()));
      }
      all.insert(all.end(), of_type.begin(), of_type.end());
    }
    a.gemm_source = source_of(files, keeps_base ? a.gemm_source : Source{});
    a.gemms = sim::GemmTable(all, files);
  }

  // Times of GEMMs in steps are sustained. Of several files the one with the larger slowdown counts.
  void add_interference() {
    sim::Accelerator& a = accelerator();
    const auto take = [&](Quantity& quantity, double value, const std::string& file) {
      if (mine_.contains(&quantity) && quantity.value >= value) return;
      quantity = {value, {"measured", printable(file) + ", " + imported_.platform.date, 0}, 0, 0};
      mine_.insert(&quantity);
    };
    sim::BesideCommunication& concurrent = a.beside_communication;
    for (const Measurements& one : measured_) {
      if (one.in_steps && !one.gemms.empty()) take(a.gemm_sustained, 1, one.file);
      for (const auto& [value, quantity] : {std::pair(one.interference.gemm, &concurrent.gemm),
                                            std::pair(one.interference.attention, &concurrent.attention),
                                            std::pair(one.interference.memory_bound, &concurrent.memory_bound),
                                            std::pair(one.interference.communication, &concurrent.communication)})
        if (value) take(*quantity, *value, one.file);
    }
  }

  // Returns the span in domains, which may be larger than hosts.
  sim::GroupSpan span_of(const sim::CollectiveTime& time, const std::string& file) {
    const std::int64_t domain = accelerator().domain;
    sim::GroupSpan span = time.span;
    if (domain > kMostOfHost) span.nodes = (span.members + domain - 1) / domain;
    if (span.on_node() > domain || span.members % span.nodes != 0)
      throw input_error(
          fmt::format("{}: expected at most {} GPUs on a node, the domain of the platform, got {} on {}; "
                      "say how many nodes there are, or --domain",
                      file, domain, span.members, span.nodes));
    return span;
  }

  // Returns a time of the base for a size beyond the series of measured sizes, scaled by the ratio at the nearest
  // measured size; nullopt within their range. Across nodes the table itself extends a series.
  std::optional<sim::CollectiveTime> beyond(const sim::CollectiveTime& base, const std::set<double>& sizes,
                                            const std::vector<sim::CollectiveTime>& measured) {
    if (base.span.nodes > 1 || (base.bytes >= *sizes.begin() && base.bytes <= *sizes.rbegin())) return std::nullopt;
    const double nearest = base.bytes < *sizes.begin() ? *sizes.begin() : *sizes.rbegin();
    const sim::CollectiveTable mine(measured);
    const double ratio = mine.time_us(base.kind, base.span.members, nearest) /
                         accelerator().collectives.time_us(base.kind, base.span.members, nearest);
    sim::CollectiveTime scaled = base;
    scaled.us *= ratio;
    return scaled;
  }

  void add_collectives() {
    sim::Accelerator& a = accelerator();
    std::vector<sim::CollectiveTime> times;
    std::map<Series, std::set<double>> mine, others;
    for (const Measurements& one : measured_)
      for (sim::CollectiveTime time : one.collectives) {
        time.span = span_of(time, one.file);
        mine[series_of(time)].insert(time.bytes);
        times.push_back(time);
      }
    const std::vector<sim::CollectiveTime> measured = times;
    for (const sim::CollectiveTime& time : a.collectives.times()) {
      if (time.span.on_node() > a.domain) continue;
      if (const auto sizes = mine.find(series_of(time)); sizes != mine.end()) {
        if (const auto scaled = beyond(time, sizes->second, measured)) times.push_back(*scaled);
        continue;
      }
      others[series_of(time)].insert(time.bytes);
      times.push_back(time);
    }
    const auto add_parts = [&](const std::map<Series, std::set<double>>& all, const std::string& from) {
      for (const auto& [series, sizes] : all) {
        const auto& [kind, nodes, gpus] = series;
        add_part(fmt::format("{} on {} GPUs{}", name_of(kind), gpus, nodes > 1 ? fmt::format(", {} nodes", nodes) : ""),
                 fmt::format("{} sizes", sizes.size()), from);
      }
    };
    add_parts(mine, kYours);
    add_parts(others, of_base(are_links_scaled_));
    const bool is_across =
        std::any_of(times.begin(), times.end(), [](const auto& time) { return time.span.nodes > 1; });
    add_part(is_across ? "collectives on other numbers of nodes" : "collectives across nodes", "NCCL's model",
             "derived");
    if (mine.empty()) return;
    const auto has = [](const Measurements& one) { return !one.collectives.empty(); };
    a.collective_source =
        source_of(listed(files_with(measured_, has)), others.empty() ? Source{} : a.collective_source);
    a.collectives = sim::CollectiveTable(times);
  }

  void add_numbers() {
    sim::Accelerator& a = accelerator();
    const auto from = [&](const Quantity& quantity, bool is_given) {
      return mine_.contains(&quantity) ? kYours : is_given ? kDataSheet : base_ ? base_name() : quantity.source.kind;
    };
    const auto add = [&](const std::string& what, const Quantity& quantity, bool is_given) {
      add_part(what, fmt::format("{:.6g}", quantity.value), from(quantity, is_given));
    };
    const auto of_sheet = [&](const auto& given) { return given ? kDataSheet : base_ ? base_name() : "assumed"; };
    add_part("memory_bytes", fmt::format("{}", imported_.platform.memory_bytes), of_sheet(sheet_.memory_GiB));
    add_part("sms", fmt::format("{}", a.sms), of_sheet(sheet_.sms));
    add_part("domain", fmt::format("{}", a.domain), of_sheet(sheet_.domain));
    const std::map<const Quantity*, bool> given = {{&a.peak_TFLOPs, sheet_.peak_TFLOPs.has_value()},
                                                   {&a.hbm_GBps, sheet_.hbm_GBps.has_value()},
                                                   {&a.nvlink.GBps, sheet_.nvlink_GBps.has_value()},
                                                   {&a.network.GBps, sheet_.network_GBps.has_value()}};
    for (const sim::AcceleratorNumber& number : numbers_of(a)) {
      const auto found = given.find(number.quantity);
      add(number.name(), *number.quantity, found != given.end() && found->second);
    }
    for (const sim::AttentionKernel& kernel : a.attention) {
      const std::string name = "attention." + kernel.name;
      for (const auto& [pass, rate] : {std::pair(".forward_TFLOPs", &kernel.forward_TFLOPs),
                                       std::pair(".backward_TFLOPs", &kernel.backward_TFLOPs)})
        add_part(name + pass, fmt::format("{:.6g}", rate->value), base_ ? of_base(is_peak_given()) : rate->source.kind);
    }
  }

  const std::vector<Measurements>& measured_;
  const std::optional<sim::Platform>& base_;
  const DataSheet& sheet_;
  std::set<const Quantity*> mine_;  // numbers that the files have
  bool are_links_scaled_ = false;   // what was measured is scaled to other links
  ImportedPlatform imported_;
};

}  // namespace

ImportedPlatform import_platform(const std::string& name, const std::vector<Measurements>& measured,
                                 const std::optional<sim::Platform>& base, const DataSheet& sheet) {
  if (base && !base->accelerator)
    throw input_error("--base: expected a platform with [accelerator], as those that ship, got " + base->name);
  return Importer(measured, base, sheet).import(name);
}

}  // namespace stretto::calibrate
