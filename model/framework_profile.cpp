#include "model/framework_profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/data_folder.hpp"
#include "base/error.hpp"

namespace stretto {

namespace {

constexpr int kMostBases = 4;  // of a profile, its base's base included: a circle ends here
FrameworkProfile read_profile(const std::string& path, int bases);

}  // namespace

namespace {

struct Release {
  std::vector<std::string> names;
  std::string until, profile;
};

// Returns the releases that a profile's file names, the oldest first.
std::vector<Release> releases_of(TomlTable& root) {
  std::vector<Release> releases;
  for (TomlTable& table : root.tables("release")) {
    releases.push_back({require<std::vector<std::string>>(table, "names"), value_or<std::string>(table, "until", ""),
                        value_or<std::string>(table, "profile", "")});
    table.finish();
  }
  return releases;
}

std::vector<Release> releases_of(const std::string& profile) {
  if (!is_data_name(profile)) return {};
  TomlTable root = read_toml(data_file("profiles", profile));
  return releases_of(root);
}

}  // namespace

std::string profile_of_release(const std::string& profile, const std::string& release) {
  for (const Release& one : releases_of(profile)) {
    const bool is_named = std::find(one.names.begin(), one.names.end(), release) != one.names.end();
    const bool is_before = !one.until.empty() && release.substr(0, one.until.size()) <= one.until;
    if (is_named || is_before) return one.profile.empty() ? profile : one.profile;
  }
  return profile;
}

std::string released_profile(const std::string& text) {
  const std::size_t at = text.find('@');
  if (at == std::string::npos || !is_data_name(text.substr(0, at))) return text;
  const std::string profile = text.substr(0, at), release = text.substr(at + 1);
  std::string known;
  for (const Release& one : releases_of(profile))
    for (const std::string& name : one.names) {
      if (name == release) return one.profile.empty() ? profile : one.profile;
      known += (known.empty() ? "" : ", ") + name;
    }
  throw input_error(
      "profile " + text + ": expected " +
      (known.empty() ? "a profile without a release, as " + profile + " has none" : "one of the releases " + known) +
      ", got " + in_quotes(release));
}

std::vector<std::string> profiles_meant(const Framework& framework) {
  if (framework.files.empty()) return {};
  TomlTable root = read_toml(framework.files.back());
  const auto names = value_or<std::vector<std::string>>(root, "could_mean", {});
  for (const std::string& name : names)
    if (!is_data_name(name)) throw root.error("could_mean", "names of profiles that come with Stretto");
  return names;
}

FrameworkProfile read_framework_profile(const std::string& path) { return read_profile(path, 0); }

namespace {

FrameworkProfile read_profile(const std::string& path, int bases) {
  TomlTable root = read_toml(path), scenario = root.section("scenario");
  const std::string base = value_or<std::string>(root, "base", "");
  FrameworkProfile profile{{}, scenario, {}};
  if (!base.empty()) {
    if (bases == kMostBases)
      throw root.error("base", fmt::format("at most {} profiles, each the base of the one before", kMostBases));
    profile = read_profile(
        is_data_name(base) ? data_file("profiles", base) : (std::filesystem::path(path).parent_path() / base).string(),
        bases + 1);
    if (scenario.present()) profile.scenario = with_defaults(scenario, profile.scenario);
  }
  Framework& f = profile.framework;
  f.name = require<std::string>(root, "name");
  TomlTable kernels = root.section("kernels"), elements = root.section("element_bytes"), host = root.section("host"),
            memory = root.section("memory");
  releases_of(root);                                           // released_profile() reads them
  value_or<std::vector<std::string>>(root, "could_mean", {});  // profiles_meant() reads it
  root.finish();

  f.attention_kernel = value_or<std::string>(kernels, "attention_kernel", f.attention_kernel);
  f.norm_quantises = value_or<bool>(kernels, "norm_quantises", f.norm_quantises);
  f.softmax_heads = value_or<std::int64_t>(kernels, "softmax_heads", f.softmax_heads, {.min = 1, .max = 1 << 10});
  const auto own = [&](const char* key, std::optional<Quantity>& quantity, Limits<double> limits) {
    if (kernels.has(key)) quantity = read_quantity(kernels.section(key), limits);
  };
  own("gemm_sustained", f.gemm_sustained, {.min = 0, .above_min = true});
  own("hbm_share", f.hbm_share, {.min = 0, .max = 1, .above_min = true});
  own("kernel_us", f.kernel_us, {.min = 0, .max = 1e6});
  own("bmm_share", f.bmm_share, {.min = 0, .max = 1, .above_min = true});
  own("collective_in_step_us", f.collective_in_step_us, {.min = 0, .max = 1e6});
  kernels.finish();

  for (const std::string& kind : elements.keys())
    f.element_bytes[kind] = read_quantity(elements.section(kind), {.min = 0, .max = 1e6, .above_min = true});
  elements.finish();

  if (host.has("max_connections"))
    profile.max_connections = read_quantity(host.section("max_connections"), {.min = 1, .max = 32});
  read_framework_host(std::move(host), f.host);
  read_framework_memory(std::move(memory), f.memory);
  f.files.push_back(path);
  return profile;
}

}  // namespace
}  // namespace stretto
