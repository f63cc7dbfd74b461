#include "habits/habits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/data_folder.hpp"
#include "base/toml.hpp"
#include "habits/model_names.hpp"
#include "habits/recipes.hpp"
#include "interchange/perf_recipes.hpp"
#include "model/framework_profile.hpp"

namespace stretto::habits {
namespace {

using Strings = std::vector<std::string>;

struct Habit {
  Strings of, models, platforms, precisions, tasks, sources;
  std::string from, until;
  bool pipeline = false, tensor = false, whole = false, context = false, ways = false;
  std::int64_t document_tokens = 0;
  std::string profile, precision_is, section, keys, refused, said, source;
  Strings off;
};

struct Table {
  std::vector<Habit> habits;
  Strings recipes_of, like_recipes, recipe_keys, outside_layout;
};

std::string letters_of(std::string_view text) {
  std::string plain;
  for (const unsigned char c : text)
    if (std::isalnum(c) != 0) plain += static_cast<char>(std::tolower(c));
  return plain;
}

Table read_table() {
  TomlTable root = read_toml(data_path("habits.toml"));
  Table table;
  table.recipes_of = require<Strings>(root, "recipes_of");
  table.like_recipes = require<Strings>(root, "like_recipes");
  table.outside_layout = require<Strings>(root, "outside_layout");
  table.recipe_keys = require<Strings>(root, "recipe_keys");
  for (TomlTable& entry : root.tables("habit")) {
    const auto text = [&](const char* key) { return value_or<std::string>(entry, key, ""); };
    const auto list = [&](const char* key) { return value_or<Strings>(entry, key, {}); };
    const auto is = [&](const char* key) { return value_or<bool>(entry, key, false); };
    Habit habit{.of = list("of"),
                .models = list("models"),
                .platforms = list("platforms"),
                .precisions = list("precisions"),
                .tasks = list("tasks"),
                .sources = list("sources"),
                .from = text("from"),
                .until = text("until"),
                .pipeline = is("pipeline"),
                .tensor = is("tensor"),
                .whole = is("whole"),
                .context = is("context"),
                .ways = is("ways"),
                .document_tokens = value_or<std::int64_t>(entry, "document_tokens", 0, {.min = 1, .max = 1 << 24}),
                .profile = text("profile"),
                .precision_is = text("precision_is"),
                .section = text("section"),
                .keys = text("keys"),
                .refused = text("refused"),
                .said = text("said"),
                .source = require<std::string>(entry, "source"),
                .off = list("off")};
    for (std::string& model : habit.models) model = letters_of(model);
    entry.finish();
    table.habits.push_back(std::move(habit));
  }
  root.finish();
  return table;
}

const Table& table() {
  static const Table read = read_table();
  return read;
}

bool has(const Strings& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}
bool is_any_or(const Strings& list, const std::string& name) { return list.empty() || has(list, name); }
bool names_any(const Strings& words, const std::string& text) {
  return words.empty() || std::any_of(words.begin(), words.end(),
                                      [&](const std::string& word) { return text.find(word) != std::string::npos; });
}

bool holds(const Habit& habit, const Run& run) {
  return is_any_or(habit.of, run.profile) && names_any(habit.models, letters_of(run.model)) &&
         is_any_or(habit.platforms, run.platform) && is_any_or(habit.precisions, run.precision) &&
         is_any_or(habit.tasks, run.task) && names_any(habit.sources, run.source) &&
         is_between(run.release, habit.from, habit.until) && (!habit.pipeline || run.pp > 1) &&
         (!habit.tensor || run.tp > 1) && (!habit.whole || run.pp <= 1) && (!habit.context || run.cp > 1) &&
         (!habit.ways || !run.says_ways);
}

// Returns an entry's keys and values, "section.key" and TOML.
std::vector<std::pair<std::string, std::string>> values_of(const Habit& habit) {
  std::vector<std::pair<std::string, std::string>> values;
  for (std::size_t at = 0; at < habit.keys.size();) {
    const std::size_t end = std::min(habit.keys.find('\n', at), habit.keys.size());
    const std::string line = habit.keys.substr(at, end - at);
    at = end + 1;
    if (const std::size_t equals = line.find(" = "); equals != std::string::npos)
      values.emplace_back((habit.section.empty() ? "" : habit.section + ".") + line.substr(0, equals),
                          line.substr(equals + 3));
  }
  return values;
}

void take_recipe(const Run& run, std::set<std::string>& decided, Filled& filled) {
  const std::string gpu = recipe_gpu(run.platform);
  const ModelName* model = model_named(run.model);
  if (!has(table().recipes_of, run.profile) || model == nullptr || platform_of_gpu(gpu) != run.platform) return;
  const auto recipe = recipe_of(*model, gpu, run.precision.empty() ? "bf16" : run.precision, run.task, run.gpus, false);
  if (!recipe) return;
  for (const std::string& key : table().recipe_keys) {
    const auto found = recipe->keys.find(key);
    if (found == recipe->keys.end() || !decided.insert(key).second) continue;
    filled.values.push_back(
        {key, found->second, "recipe " + recipe->name + " has it", "scenarios/bridge_recipes.csv", true});
    filled.recipe = recipe->name;
  }
}

}  // namespace

Filled habits_of(const Run& given) {
  Run run = given;
  Filled filled;
  if (!run.release.empty()) run.profile = profile_of_release(run.profile, run.release);
  if (run.profile != given.profile)
    filled.said.push_back("profile " + run.profile + ", as release " + run.release + " runs");
  std::set<std::string> decided = run.stated;
  for (const Habit& habit : table().habits) {
    if (!holds(habit, run)) continue;
    const auto values = values_of(habit);
    if (!values.empty() && run.stated.contains(values.front().first)) continue;
    if (!habit.refused.empty()) {
      filled.refused = habit.refused;
      break;
    }
    if (!habit.profile.empty()) run.profile = habit.profile;
    if (!habit.precision_is.empty()) run.precision = habit.precision_is;
    const std::string because = habit.said.empty() ? "profile " + run.profile + " runs so" : habit.said;
    for (const auto& [key, value] : values)
      if (decided.insert(key).second) filled.values.push_back({key, value, because, habit.source});
    decided.insert(habit.off.begin(), habit.off.end());
    if (habit.document_tokens > 0 && filled.document_tokens == 0) filled.document_tokens = habit.document_tokens;
    if (!habit.said.empty()) filled.said.push_back(habit.said);
  }
  filled.profile = run.profile;
  filled.precision = run.precision;
  if (filled.refused.empty() && !run.says_ways) take_recipe(run, decided, filled);
  return filled;
}

bool runs_recipes(const std::string& profile) {
  return has(table().recipes_of, profile) || has(table().like_recipes, profile);
}

const Strings& keys_outside_layout() { return table().outside_layout; }

std::string release_of(std::string_view text) {
  const auto is_digit = [&](std::size_t at) {
    return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0;
  };
  for (std::size_t at = 0; at + 5 <= text.size(); ++at) {
    const bool begins = at == 0 || (!is_digit(at - 1) && text[at - 1] != '.');
    const bool is_release = is_digit(at) && is_digit(at + 1) && text[at + 2] == '.' && is_digit(at + 3) &&
                            is_digit(at + 4) && !is_digit(at + 5);
    if (!begins || !is_release) continue;
    const int year = std::stoi(std::string(text.substr(at, 2))), month = std::stoi(std::string(text.substr(at + 3, 2)));
    if (year < 19 || year > 39 || month < 1 || month > 12) continue;
    std::size_t end = at + 5;
    if (end + 1 < text.size() && text[end] == '.' && is_digit(end + 1))
      for (++end; is_digit(end); ++end) {
      }
    return std::string(text.substr(at, end - at));
  }
  return "";
}

bool is_between(std::string_view release, std::string_view from, std::string_view until) {
  if (release.empty()) return until.empty();  // the newest
  if (!from.empty() && release.substr(0, from.size()) < from) return false;
  return until.empty() || release.substr(0, until.size()) <= until;
}

}  // namespace stretto::habits
