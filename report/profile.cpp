#include "report/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/statistics.hpp"

namespace stretto {
namespace {

constexpr const char* kBeaten = "; an operation did more";

}  // namespace

double bytes_moved(const Schedule& schedule, const Operation& operation) {
  const auto* embedding = std::get_if<Embedding>(&operation.work);
  double bytes = 0;
  for (const Access& access : operation.accesses) {
    std::int64_t rows = access.view.rows;
    if (embedding && access.view.cols == embedding->cols) rows = std::min(rows, embedding->rows);
    const Storage& storage = schedule.storages[schedule.tensors[access.view.tensor].places.front().storage];
    bytes += double(rows) * double(access.view.cols) * double(bytes_of(storage.dtype)) *
             (access.mode == AccessMode::accumulate ? 2 : 1);
  }
  return bytes;
}

Floor floor_of(const Schedule& schedule, const Operation& operation, const Peak& peak) {
  if (is_communication(operation.work)) return {};
  const double arithmetic_us = peak.GFLOPs > 0 ? model_flops(operation.work) / peak.GFLOPs * 1e-3 : 0,
               memory_us = peak.memory_GBps > 0 ? bytes_moved(schedule, operation) / peak.memory_GBps * 1e-3 : 0;
  return {std::max(arithmetic_us, memory_us), memory_us > arithmetic_us};
}

std::vector<ProfiledOperation> profile_operations(const Schedule& schedule, const std::vector<BoundProgram>& programs,
                                                  const std::vector<Timeline>& timelines, Peak& peak) {
  std::map<std::int64_t, const BoundProgram*> program_of;
  for (const BoundProgram& program : programs) program_of[program.rank] = &program;
  struct Times {
    std::vector<double> us, totals_ms;
  };
  std::map<OpId, Times> times;
  for (const Timeline& timeline : timelines) {
    std::map<OpId, double> total_ms;
    for (const TimelineRow& row : timeline.rows) {
      const OpId op = program_of.at(row.rank)->ops[row.op].op;
      times[op].us.push_back(to_us(row.moved() - row.transfer));
      total_ms[op] += to_ms(row.moved() - row.transfer) / double(programs.size());
    }
    for (const auto& [op, ms] : total_ms) times[op].totals_ms.push_back(ms);
  }
  std::vector<ProfiledOperation> operations;
  std::vector<OpId> ids;
  for (const auto& [op, of] : times) {
    const Operation& operation = schedule.operations[op];
    ProfiledOperation p;
    p.name = operation.name;
    p.work = describe(operation.work);
    p.is_communication = is_communication(operation.work);
    p.calls = double(of.us.size()) / double(timelines.size() * programs.size());
    p.us = median(of.us);
    p.total_ms = median(of.totals_ms);
    p.flops = model_flops(operation.work);
    p.bytes = p.is_communication ? 0 : bytes_moved(schedule, operation);
    operations.push_back(std::move(p));
    ids.push_back(op);
  }
  if (peak.GFLOPs > 0)
    for (const ProfiledOperation& p : operations)
      if (const double GFLOPs = p.flops / p.us * 1e-3; !p.is_communication && p.us > 0 && GFLOPs > peak.GFLOPs) {
        if (!peak.source.ends_with(kBeaten)) peak.source += kBeaten;
        peak.GFLOPs = GFLOPs;
      }
  for (std::size_t i = 0; i < operations.size(); ++i) {
    Floor floor = floor_of(schedule, schedule.operations[ids[i]], peak);
    floor.us = std::min(floor.us, operations[i].us);
    operations[i].floor = floor;
  }
  std::stable_sort(operations.begin(), operations.end(), [](const ProfiledOperation& a, const ProfiledOperation& b) {
    return a.total_ms - a.floor_ms() > b.total_ms - b.floor_ms();
  });
  return operations;
}

double Profile::overhead_pct() const { return 100 * (median(timed_step_ms) / median(step_ms) - 1); }
double Profile::step_over_path() const { return median(step_ms) / (path_compute_ms + path_communication_ms); }

std::string profile_text(const Profile& profile) {
  const auto spread = [](const std::vector<double>& ms) {
    return fmt::format("{:.2f} ms ({:.2f}–{:.2f})", median(ms), minimum(ms), maximum(ms));
  };
  std::string text = fmt::format(
      "step {}; with the times of its operations taken {}, {:+.1f} %\n"
      "critical path: {} operations, {:.2f} ms of compute, {:.2f} ms of communication, {:.2f} ms between them; the "
      "step takes {:.3f} x its operations\n",
      spread(profile.step_ms), spread(profile.timed_step_ms), profile.overhead_pct(), profile.path_operations,
      profile.path_compute_ms, profile.path_communication_ms, profile.path_between_ms, profile.step_over_path());
  const Peak& peak = profile.peak;
  std::vector<std::string> limits;
  if (peak.GFLOPs > 0) limits.push_back(fmt::format("{:.4g} TFLOP/s", peak.GFLOPs * 1e-3));
  if (peak.memory_GBps > 0) limits.push_back(fmt::format("{:.4g} GB/s", peak.memory_GBps));
  text += limits.empty() ? "no floors: what " + profile.device + " can do at most is not known\n"
                         : fmt::format("floors: {} ({})\n", fmt::join(limits, " and "), peak.source);

  Table table({"operation", "work", "calls", "us each", "ms", "share", "floor ms", "x floor", "bound"});
  double compute_ms = 0, floored_ms = 0, floor_ms = 0, all_ms = 0;
  for (const ProfiledOperation& p : profile.operations) all_ms += p.total_ms;
  for (const ProfiledOperation& p : profile.operations) {
    const bool has_floor = p.floor.us > 0;
    if (!p.is_communication) compute_ms += p.total_ms;
    if (has_floor) {
      floored_ms += p.total_ms;
      floor_ms += p.floor_ms();
    }
    table.add_row({p.name, p.work, fmt::format("{:g}", p.calls), fmt::format("{:.2f}", p.us),
                   fmt::format("{:.3f}", p.total_ms), fmt::format("{:.1f} %", 100 * p.total_ms / all_ms),
                   has_floor ? fmt::format("{:.3f}", p.floor_ms()) : "",
                   has_floor ? fmt::format("{:.2f}", p.total_ms / p.floor_ms()) : "",
                   !has_floor          ? ""
                   : p.floor.is_memory ? "memory"
                                       : "arithmetic"});
  }
  text += "\n" + table.text() + fmt::format("\ncompute {:.2f} ms a rank", compute_ms);
  if (floor_ms > 0)
    text += fmt::format("; what has a floor takes {:.2f} ms, {:.2f} x its floors' {:.2f} ms", floored_ms,
                        floored_ms / floor_ms, floor_ms);
  return text + "\n";
}

nlohmann::json profile_json(const Profile& profile) {
  nlohmann::json operations = nlohmann::json::array();
  for (const ProfiledOperation& p : profile.operations) {
    operations.push_back({{"name", p.name},
                          {"work", p.work},
                          {"communication", p.is_communication},
                          {"calls", p.calls},
                          {"us", p.us},
                          {"total_ms", p.total_ms},
                          {"flops", p.flops},
                          {"bytes", p.bytes},
                          {"floor_us", p.floor.us > 0 ? nlohmann::json(p.floor.us) : nlohmann::json(nullptr)},
                          {"bound", p.floor.us <= 0     ? nlohmann::json(nullptr)
                                    : p.floor.is_memory ? nlohmann::json("memory")
                                                        : nlohmann::json("arithmetic")}});
  }
  const auto known = [](double value) { return value > 0 ? nlohmann::json(value) : nlohmann::json(nullptr); };
  return {{"device", profile.device},
          {"peak_GFLOPs", known(profile.peak.GFLOPs)},
          {"peak_memory_GBps", known(profile.peak.memory_GBps)},
          {"peak_source", profile.peak.source},
          {"step_ms", profile.step_ms},
          {"median_step_ms", median(profile.step_ms)},
          {"timed_step_ms", profile.timed_step_ms},
          {"overhead_pct", profile.overhead_pct()},
          {"critical_path",
           {{"operations", profile.path_operations},
            {"compute_ms", profile.path_compute_ms},
            {"communication_ms", profile.path_communication_ms},
            {"between_ms", profile.path_between_ms}}},
          {"step_over_critical_path", profile.step_over_path()},
          {"operations", std::move(operations)}};
}

}  // namespace stretto
