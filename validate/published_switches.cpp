#include "validate/published_switches.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "model/scenario/keys.hpp"

namespace stretto::validate {
namespace {

// A folded spelling, the key and its value where the spelling stands without one.
struct Switch {
  std::string word, key;
  bool is_on;
};

// Returns all spellings, longest first: a name may begin with another one.
std::vector<Switch> all_switches() {
  std::vector<Switch> switches;
  for (const ScenarioKey& key : scenario_keys_of("overlap")) {
    if (key.field == nullptr || !value_of(key, {}).is_boolean()) continue;
    switches.push_back({folded(key.name), key.name, true});
    if (*key.megatron.name != '\0' && key.megatron.given.is_boolean())
      switches.push_back({folded(key.megatron.name), key.name, key.megatron.given.get<bool>()});
  }
  std::stable_sort(switches.begin(), switches.end(),
                   [](const Switch& a, const Switch& b) { return a.word.size() > b.word.size(); });
  return switches;
}

}  // namespace

std::map<std::string, bool> take_switches(Words& cell) {
  static const std::vector<Switch> kSwitches = all_switches();
  std::map<std::string, bool> values;
  for (const Switch& one : kSwitches) {
    const auto with = [&](std::initializer_list<const char*> before, std::initializer_list<const char*> after) {
      std::vector<std::string> words;
      for (const char* word : after) words.push_back(one.word + word);
      for (const char* word : before) words.push_back(word + one.word);
      return words;
    };
    if (cell.take_all(with({"no", "without"}, {"false", "off", "disabled", "0"})))
      values[one.key] = !one.is_on;
    else if (cell.take_all(with({""}, {"true", "on", "enabled", "1"})))
      values[one.key] = one.is_on;
  }
  return values;
}

}  // namespace stretto::validate
