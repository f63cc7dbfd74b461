#include "ask/swept.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/error.hpp"
#include "base/read_file.hpp"
#include "base/shell.hpp"
#include "base/toml_text.hpp"
#include "model/model_json.hpp"
#include "predict/run.hpp"
#include "sweep/names.hpp"

namespace stretto::ask {
namespace {

// Returns a scenario's file without its table [sweep], which says which points there are and not what they are.
std::string contents_of(const std::string& path) {
  std::istringstream file(toml_text(path));
  std::string text, line;
  bool is_left_out = false;
  while (std::getline(file, line)) {
    if (line.starts_with('[')) is_left_out = line.starts_with("[sweep]");
    if (!is_left_out) text += line + "\n";
  }
  return text;
}

void add_contents(Checksum& sum, const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const std::vector<std::byte> bytes = ReadFile::open(file).take();
    sum.add(bytes.data(), bytes.size());
  }
}

}  // namespace

Swept swept_of(const Request& request) {
  const std::string path = predict::scenario_path(request.scenario);
  const auto input = std::make_shared<const predict::ScenarioInput>(request.scenario);
  Swept swept;
  swept.text = contents_of(path);
  swept.read = [input, own = request.set](const std::vector<std::string>& set, const std::string& platform) {
    std::vector<std::string> all = own;
    all.insert(all.end(), set.begin(), set.end());
    return input->read(std::move(all), platform);
  };
  swept.command = "stretto simulate " + in_shell(request.scenario);
  swept.axes = [path, own = request.set] { return read_toml(path, own).section("sweep"); };
  return swept;
}

SweptSpace::SweptSpace(SweepRequest of, Swept varied)
    : request(std::move(of)), swept(std::move(varied)), base_(read_base()) {
  const sim::Platform& own = platform();
  // A sweep needs no key of [run], but a wrong one is an error here, too.
  if (!swept.text_of) predict::require_run_keys(request.scenario, request.set, own);
  space_ = sweep::read_space(swept.axes(), request.over, scenario(), own);
  require_acting();
  for (const sweep::Axis& axis : space_.axes)
    if (axis.key == sweep::kPlatform)
      for (const std::string& name : axis.values) platform({{}, name});
  of_scenario_.add(swept.text);
  // Files that the text names may have changed.
  add_contents(of_scenario_, scenario().framework.files);
  of_scenario_.add(model_json(scenario().model).dump());
  for (const std::string& set : request.set) of_scenario_.add("\n" + set);
}

// Reads the scenario as it is; or with the first values of axes, where its own, which axes replace, are refused.
SweptSpace::Base SweptSpace::read_base() const {
  const auto read = [&](const std::vector<std::string>& set, const std::string& platform, const std::string& why) {
    Base base{swept.read(set, platform), platform, why};
    predict::read_platform_input(platform, base.scenario);  // it may be missing
    return base;
  };
  std::string why_not_own;
  std::exception_ptr own;
  try {
    return read({}, request.platform, "");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    own = std::current_exception();
    why_not_own = error.what();
  }
  const sweep::PointSettings first = sweep::first_values(swept.axes(), request.over);
  const std::string& platform = first.platform.empty() ? request.platform : first.platform;
  for (const std::vector<std::string>& set : {std::vector<std::string>(), first.set})
    if (!set.empty() || !first.platform.empty()) try {
        return read(set, platform, why_not_own);
      } catch (const Error&) {
      }
  std::rethrow_exception(own);
}

// Throws where an option says what every point replaces.
void SweptSpace::require_acting() const {
  const auto axis_of = [&](const std::string& key) -> const sweep::Axis* {
    for (const sweep::Axis& axis : space_.axes)
      if (axis.key == key) return &axis;
    return nullptr;
  };
  for (const std::string& set : request.set) {
    const std::string key = set.substr(0, set.find('=')), value = set.substr(std::min(key.size() + 1, set.size()));
    if (const sweep::Axis* axis = axis_of(key); axis != nullptr && axis->values != std::vector{value})
      throw input_error(fmt::format("--set {}: the sweep varies this key; expected --over {}={}", key,
                                    sweep::short_name(key), value));
    if (key == sweep::kDp && axis_of(sweep::kDp) == nullptr && axis_of(sweep::kGpus) != nullptr)
      throw input_error(fmt::format(
          "--set {}: it follows from the number of GPUs, which the sweep varies; expected --over dp={}", key, value));
  }
  if (const sweep::Axis* axis = axis_of(sweep::kPlatform);
      axis != nullptr && request.names_platform &&
      !std::count(axis->values.begin(), axis->values.end(), request.platform))
    throw input_error(
        fmt::format("--platform: expected one of the values of {}, got {}", axis->place, in_quotes(request.platform)));
}

Scenario SweptSpace::read(const sweep::PointSettings& settings) const {
  return swept.read(settings.set, settings.platform.empty() ? base_.platform : settings.platform);
}

const sim::Platform& SweptSpace::platform(const sweep::PointSettings& settings) {
  const std::string& name = settings.platform;
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = platforms_.try_emplace(name);
  if (is_new)
    at->second = std::make_unique<sim::Platform>(
        predict::read_platform_input(name.empty() ? base_.platform : name, base_.scenario));
  if (!at->second) throw input_error("platform " + name + ": cannot be read");
  return *at->second;
}

const std::string& SweptSpace::digest(const std::string& name) {
  const sim::Platform& of = platform({{}, name});
  const std::lock_guard lock(mutex_);
  std::string& digest = digests_[name];
  if (!digest.empty()) return digest;
  Checksum sum;
  add_contents(sum, of.files);
  return digest = sum.digits();
}

std::string SweptSpace::key(const sweep::PointSettings& settings) {
  Checksum sum = of_scenario_;
  sum.add("\n" + (settings.platform.empty() ? platform().name : settings.platform));
  sum.add(digest(settings.platform));
  for (const std::string& set : settings.set) sum.add("\n" + set);
  return sum.digits();
}

}  // namespace stretto::ask
