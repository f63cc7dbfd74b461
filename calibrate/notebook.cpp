#include "calibrate/notebook.hpp"

#include <chrono>
#include <filesystem>
#include <utility>

#include "base/error.hpp"
#include "base/json_cost.hpp"
#include "base/new_file.hpp"

namespace stretto::calibrate {
namespace {

constexpr const char* kFormat = "stretto-calibration-1";
constexpr std::int64_t kOldest_s = 24 * 3600;

std::int64_t now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

Notebook::Notebook(std::string path, nlohmann::json about) : path_(std::move(path)), about_(std::move(about)) {
  remove_left_overs(path_);
  if (std::error_code problem; !std::filesystem::exists(path_, problem)) return;
  Budget budget(path_);
  const std::string text = read_text(path_, budget);
  charge_json(text, budget);
  const nlohmann::json found = nlohmann::json::parse(text, nullptr, false);
  if (!found.is_object() || !found.contains("format") || found["format"] != kFormat || !found.contains("about") ||
      !found.contains("parts") || !found["parts"].is_object() || !found.contains("saved_s") ||
      !found["saved_s"].is_number_integer())
    throw input_error(path_ +
                      ": is no calibration that was interrupted, and would be overwritten; move it away, or choose "
                      "another --output");
  if (found["about"] != about_)
    why_not_ = "is of another machine or program";
  else if (const std::int64_t age_s = now_s() - found["saved_s"].get<std::int64_t>(); age_s > kOldest_s || age_s < 0)
    why_not_ = "is more than a day old";
  else
    kept_ = found["parts"];
}

void Notebook::save() const {
  if (path_.empty()) return;
  NewFile file(path_);
  file.write(nlohmann::json{{"format", kFormat}, {"about", about_}, {"saved_s", now_s()}, {"parts", kept_}}.dump());
  file.finish();
}

void Notebook::remove() {
  std::error_code ignored;  // a file that cannot be removed is ignored once it is a day old
  if (!path_.empty()) std::filesystem::remove(path_, ignored);
}

}  // namespace stretto::calibrate
