#include "cli/import.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "base/printable.hpp"
#include "cli/number.hpp"
#include "report/table.hpp"
#include "sim/accelerator/numbers.hpp"

namespace stretto::cli {
namespace {

constexpr const char* kGroup = "Import";

template <class T>
void add_number(CLI::App& command, const std::string& name, std::optional<T>& value, double most,
                const std::string& help) {
  command.add_option(name, value, help)->check(number_from(std::is_integral_v<T> ? 1.0 : 1e-3, most))->group(kGroup);
}

// Returns a file name in the folder of `path`: "mine.toml" and "gemm" give "mine.gemm.csv".
std::string next_to(const std::string& path, const char* what) {
  return std::filesystem::path(path).replace_extension(std::string(what) + ".csv").string();
}

Table host_table(const calibrate::HostTimes& host) {
  Table table({"kind of the host", "gaps", "median us", "80 % of them", "kernels an operation"});
  for (const calibrate::HostKindTime& of : host.kinds)
    table.add_row({std::string(of.kind) + (of.is_backward ? "_backward" : ""), fmt::format("{}", of.count),
                   fmt::format("{:.4g}", of.us), fmt::format("{:.4g} to {:.4g}", of.low, of.high),
                   fmt::format("{:.2f}", of.kernels)});
  return table;
}

Table overlap_table(const calibrate::HostTimes& host) {
  Table table({"communication", "calls", "hidden", "CTAs", "concurrent over alone"});
  for (const calibrate::CollectiveOverlap& of : host.overlap)
    table.add_row({of.name, fmt::format("{}", of.calls), fmt::format("{:.0f} %", 100 * of.hidden),
                   of.ctas > 0 ? fmt::format("{:.0f}", of.ctas) : "-",
                   of.stretch > 0 ? fmt::format("{:.2f}", of.stretch) : "-"});
  return table;
}

std::string host_lines(const calibrate::HostTimes& host) {
  std::string text = fmt::format("\nthe host, of {} marked steps with {} synchronisations:\n", host.steps, host.syncs);
  if (!host.kinds.empty()) text += host_table(host).text();
  if (!host.overlap.empty()) text += "\n" + overlap_table(host).text();
  if (host.full > 0) text += fmt::format("left out: {} gaps in which the queue of launches was full\n", host.full);
  for (const std::string& unknown : host.unknown) text += "not determined: " + unknown + "\n";
  return text;
}

nlohmann::json host_json(const calibrate::HostTimes& host) {
  nlohmann::json kinds = nlohmann::json::array(), overlap = nlohmann::json::array();
  for (const calibrate::HostKindTime& of : host.kinds)
    kinds.push_back({{"kind", of.kind},
                     {"backward", of.is_backward},
                     {"gaps", of.count},
                     {"us", of.us},
                     {"low_us", of.low},
                     {"high_us", of.high},
                     {"kernels", of.kernels}});
  for (const calibrate::CollectiveOverlap& of : host.overlap)
    overlap.push_back({{"communication", of.name},
                       {"calls", of.calls},
                       {"hidden", of.hidden},
                       {"ctas", of.ctas > 0 ? nlohmann::json(of.ctas) : nlohmann::json(nullptr)},
                       {"stretch", of.stretch > 0 ? nlohmann::json(of.stretch) : nlohmann::json(nullptr)}});
  return {{"kinds", std::move(kinds)}, {"communication", std::move(overlap)}, {"steps", host.steps},
          {"syncs", host.syncs},       {"gaps_of_full_queue", host.full},     {"unknown", host.unknown}};
}

std::string file_name(const Output& output) { return std::filesystem::path(output.name()).filename().string(); }

}  // namespace

bool MeasurementImport::is_asked() const {
  return !imports.empty() || !base.empty() || sheet.peak_TFLOPs || sheet.hbm_GBps || sheet.memory_GiB ||
         sheet.nvlink_GBps || sheet.network_GBps || sheet.domain || sheet.sms;
}

void add_import_options(CLI::App& command, Files& files, MeasurementImport& options) {
  command
      .add_option(
          "--import", options.imports,
          "make a platform file of measurements: output of nccl-tests, a table of collectives or of GEMMs, a trace "
          "(docs/platform.md). Where the file does not say which operation it is, or on how many GPUs and nodes: "
          "OP@GPUS/NODES=FILE (repeatable)")
      ->type_name("FILE")
      ->allow_extra_args(false)
      ->group(kGroup);
  files.add_input(command, "--base", options.base, "the platform that has the rest: h100-sxm, or a file")
      ->group(kGroup);
  calibrate::DataSheet& sheet = options.sheet;
  // The limits are twenty times and more the figures of GPUs of 2026, so a larger number is a mistake.
  add_number(command, "--peak_TFLOPs", sheet.peak_TFLOPs, sim::kRate.max, "of the data sheet: dense bf16");
  add_number(command, "--hbm_GBps", sheet.hbm_GBps, sim::kRate.max, "of the data sheet: memory");
  add_number(command, "--memory_GiB", sheet.memory_GiB, 1e4, "of the data sheet");
  add_number(command, "--nvlink_GBps", sheet.nvlink_GBps, 1e4, "of a GPU, one direction");
  add_number(command, "--network_GBps", sheet.network_GBps, 1e4, "of a GPU, one direction");
  add_number(command, "--domain", sheet.domain, 1 << 16, "GPUs that NVLink connects");
  add_number(command, "--sms", sheet.sms, 1 << 16, "streaming multiprocessors");
  files.add_output(command, "--gemm-table", options.gemms, "")->group("");
  files.add_output(command, "--collective-table", options.collectives, "")->group("");
  files.add_output(command, "--host-file", options.host, "")->group("");
}

void import_measurements(MeasurementImport& options, const Files& files, Output& output, const Output& json,
                         const Measure& measure) {
  if (output.empty())
    throw input_error(std::string(measure ? "--minimal" : "--import") +
                      ": expected --output FILE, the platform file to write, got none");
  if (std::filesystem::path(output.name()).extension() == ".csv")
    throw input_error("--output " + output.name() + ": expected a platform file, FILE.toml, got a table");
  Files::set_default(options.gemms, next_to(output.name(), "gemm"));
  Files::set_default(options.collectives, next_to(output.name(), "collectives"));
  Files::set_default(options.host, std::filesystem::path(output.name()).replace_extension("host.toml").string());
  if (is_data_name(options.base)) options.base = data_file("platforms", options.base);
  std::vector<calibrate::ImportFile> imports;
  std::vector<Input> read;
  for (const std::string& text : options.imports) {
    imports.push_back(calibrate::parse_import(text));
    read.push_back({"--import", imports.back().path});
  }
  std::optional<sim::Platform> base;
  if (!options.base.empty()) {
    base = sim::read_platform(options.base);
    for (const char* table : {"gemm", "collectives"})
      read.push_back({"a table of --base", next_to(options.base, table)});
  }
  files.claim_outputs(read);
  std::vector<calibrate::Measurements> measured;
  for (const calibrate::ImportFile& file : imports) measured.push_back(calibrate::read_measurements(file));
  const std::string name = std::filesystem::path(output.name()).stem().string();
  calibrate::ImportedPlatform imported = calibrate::import_platform(name, measured, base, options.sheet);
  if (measure) measure(imported);

  const sim::Accelerator& a = *imported.platform.accelerator;
  if (!a.gemms.empty()) write_text(options.gemms, a.gemms.text());
  if (!a.collectives.empty()) write_text(options.collectives, a.collectives.text());
  write_text(output, platform_text(imported, file_name(options.gemms), file_name(options.collectives)));
  const auto of_host = std::find_if(measured.begin(), measured.end(),
                                    [](const calibrate::Measurements& m) { return m.host && !m.host->kinds.empty(); });
  const bool has_host = of_host != measured.end();
  if (has_host) write_text(options.host, host_text(*of_host->host, of_host->file));

  Table table({"what", "value", "from"});
  nlohmann::json parts = nlohmann::json::array();
  for (const calibrate::ImportedPlatform::Part& part : imported.parts) {
    table.add_row({printable(part.what), part.value, printable(part.from)});
    parts.push_back({{"what", part.what}, {"value", part.value}, {"from", part.from}});
  }
  if (!json.is_standard()) {
    for (const std::string& note : imported.notes) std::cout << "note: " << printable(note) << "\n";
    std::cout << table.text() << "\nwrote " << output.name();
    if (!a.gemms.empty()) std::cout << ", " << options.gemms.name();
    if (!a.collectives.empty()) std::cout << ", " << options.collectives.name();
    if (has_host) std::cout << ", " << options.host.name();
    std::cout << "\n";
    if (has_host) std::cout << host_lines(*of_host->host);
  }
  write_json(json, {{"platform", output.name()},
                    {"parts", std::move(parts)},
                    {"notes", imported.notes},
                    {"host", has_host ? host_json(*of_host->host) : nlohmann::json(nullptr)}});
}

}  // namespace stretto::cli
