#include <fmt/format.h>

#include "base/printable.hpp"
#include "calibrate/import/import_platform.hpp"
#include "sim/accelerator/numbers.hpp"

namespace stretto::calibrate {
namespace {

// Returns lines of a comment, because a line of a TOML file has a maximum length.
std::string comment(std::string_view text) {
  constexpr std::size_t kWidth = 118;
  std::string lines;
  while (text.size() > kWidth) {
    const std::size_t space = text.rfind(' ', kWidth), end = space == std::string_view::npos ? kWidth : space;
    lines += "# " + std::string(text.substr(0, end)) + "\n";
    text.remove_prefix(space == std::string_view::npos ? end : end + 1);
  }
  return lines + "# " + std::string(text) + "\n";
}

}  // namespace

std::string platform_text(const ImportedPlatform& imported, const std::string& gemm_file,
                          const std::string& collective_file) {
  const sim::Platform& platform = imported.platform;
  const auto listed = [&](std::string_view from) {
    std::string list;
    for (const ImportedPlatform::Part& part : imported.parts)
      if (part.from == from) list += (list.empty() ? "" : ", ") + part.what;
    return list;
  };
  const std::string yours = listed(kYours), of_sheet = listed(kDataSheet), measured = listed(kMeasured);
  std::string text = fmt::format("# Written by `stretto calibrate --{}`; docs/platform.md says what every key means.\n",
                                 measured.empty() ? "import" : "minimal");
  if (!measured.empty()) text += comment("Measured on a GPU: " + measured + ".");
  if (!yours.empty()) text += comment("From the files that were imported: " + yours + ".");
  if (!of_sheet.empty()) text += comment("From the data sheet that was given: " + of_sheet + ".");
  text += comment(imported.base.empty()
                      ? "All else is assumed, or derived from the data sheet."
                      : "All else is from " + printable(imported.base) +
                            (measured.empty()
                                 ? ", with it gemm_sustained: what GEMMs of a training step take over those of a sweep."
                                 : "."));
  const auto quoted = [](const std::string& word) { return sim::toml_string(word); };
  text += fmt::format("name = {}\ndevice = {}\ndate = \"{}\"\nmemory_bytes = {}\nranks_per_device = 1\n",
                      quoted(platform.name), quoted(platform.device), platform.date, platform.memory_bytes);
  if (platform.compute_capability > 0)
    text += fmt::format("compute_capability = {:.1f}\n", platform.compute_capability);
  text += "\n";
  return text + sim::accelerator_text(*platform.accelerator, gemm_file, collective_file);
}

}  // namespace stretto::calibrate
