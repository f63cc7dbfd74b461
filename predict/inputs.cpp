#include "predict/inputs.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>

#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "base/user_folder.hpp"

namespace stretto::predict {
namespace {

std::string platform_path(const std::string& given) {
  return is_data_name(given) ? data_file("platforms", given) : std::filesystem::absolute(given).string();
}

}  // namespace

bool is_scenario_name(const std::string& given) {
  for (const char* folder : {"modes", ".", "models"}) {
    const std::vector<std::string> names = data_names(folder);
    if (std::find(names.begin(), names.end(), given) != names.end()) return true;
  }
  return false;
}

std::string scenario_path(const std::string& given) {
  std::error_code problem;
  // An existing path of that name, or one that cannot be looked up, is a file that read_scenario() opens or refuses.
  const auto type = std::filesystem::symlink_status(given, problem).type();
  if (!is_data_name(given) || type != std::filesystem::file_type::not_found) return given;
  for (const char* folder : {"modes", "."}) {
    const std::vector<std::string> names = data_names(folder);
    if (std::find(names.begin(), names.end(), given) != names.end()) return data_file(folder, given);
  }
  return data_file("models", given);
}

struct ScenarioInput::Paths {
  std::mutex mutex = {};
  std::map<std::string, std::string> known = {};  // [platform as it is named]

  std::string of(const std::string& platform) {
    const std::lock_guard lock(mutex);
    const auto found = known.find(platform);
    return found != known.end() ? found->second : known.emplace(platform, platform_path(platform)).first->second;
  }
};

ScenarioInput::ScenarioInput(const std::string& scenario) : reader_(scenario_path(scenario)), paths_(new Paths) {}
ScenarioInput::~ScenarioInput() = default;
ScenarioInput::ScenarioInput(ScenarioInput&&) noexcept = default;

Scenario ScenarioInput::read(std::vector<std::string> set, const std::string& platform) const {
  // The platform says whether ranks share devices, so the scenario must know it.
  if (!platform.empty()) set.push_back("platform=" + paths_->of(platform));
  return reader_.read(set);
}

Scenario read_scenario_input(const std::string& scenario, std::vector<std::string> set, const std::string& platform) {
  return ScenarioInput(scenario).read(std::move(set), platform);
}

std::string default_platform_path(const std::string& backend) {
  const std::string folder = user_folder("XDG_DATA_HOME", ".local/share");
  return folder.empty() ? "" : folder + "/" + backend + ".toml";
}

sim::Platform read_platform_input(const std::string& platform, const Scenario& scenario, const std::string& backend) {
  if (!platform.empty()) return sim::read_platform(platform_path(platform));
  if (!scenario.platform.empty()) return sim::read_platform(scenario.platform);
  const std::string path = default_platform_path(backend);
  if (path.empty())
    throw input_error(
        "no platform file: neither XDG_DATA_HOME nor HOME is an absolute path, in which `stretto calibrate` "
        "would have written one; name one with --platform");
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    std::string published;
    for (const std::string& name : data_names("platforms")) published += (published.empty() ? "" : ", ") + name;
    if (!published.empty() && !scenario.framework.name.empty() && backend == "host")
      throw input_error("no platform is named: for GPUs give --platform with one of " + published +
                        ", or a file that `stretto calibrate` writes on such a machine");
    throw input_error("no platform file: " + path + " does not exist; run `stretto calibrate" +
                      (backend == "host" ? "` (under a minute)" : " --backend " + backend + "` (minutes)") +
                      " or name one with --platform" + (published.empty() ? "" : "; platforms of GPUs: " + published));
  }
  return sim::read_platform(path);
}

}  // namespace stretto::predict
