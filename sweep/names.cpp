#include "sweep/names.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
#include "model/scenario/overrides.hpp"

namespace stretto::sweep {
const std::vector<std::string>& layout_keys() {
  static const std::vector<std::string> kKeys = {kTp, kPp, kVp, kCp, kEp, kEtp, kMicroBatch, kRecompute};
  return kKeys;
}

std::string full_key(const std::string& given, const std::string& place) {
  for (const char* name : {kGpus, kPlatform, kLayout, kOverlap})
    if (given == name) return given;
  std::vector<std::string> found, all = {kGpus, kPlatform, kLayout, kOverlap};
  for (const ShortName& known : short_names()) {
    if (given == known.name) return known.key;
    all.emplace_back(known.name);
  }
  for (const char* section : {"model", "parallel", "overlap", "training"})
    for (const ScenarioKey& key : scenario_keys_of(section)) {
      all.push_back(key.full_name());
      all.emplace_back(key.name);
      if (given == key.full_name() || given == key.name) found.push_back(key.full_name());
    }
  if (found.size() == 1) return found.front();
  if (found.size() > 1)
    throw input_error(fmt::format("{}: expected one of {}, got \"{}\"", place, fmt::join(found, ", "), given));
  const std::string nearest = nearest_spelling(given, all);
  throw input_error(
      fmt::format("{}: expected a key of [model], [parallel], [overlap] or [training], gpus, platform, layout or "
                  "overlap, got {}{}",
                  place, in_quotes(given), nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
}

std::string short_name(const std::string& key) {
  for (const ShortName& known : short_names())
    if (key == known.key) return known.name;
  return key.substr(key.find('.') + 1);
}

const ScenarioKey& row_of(const std::string& key) {
  const std::size_t dot = key.find('.');
  return scenario_key(key.substr(0, dot), key.substr(dot + 1));
}

bool says_layouts(const std::string& over) {
  const std::string key = full_key(over.substr(0, over.find('=')), "--over");
  for (const char* one : {kLayout, kTp, kPp, kVp, kCp, kEp, kEtp})
    if (key == one) return true;
  return false;
}

}  // namespace stretto::sweep
