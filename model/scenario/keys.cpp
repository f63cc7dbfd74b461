#include "model/scenario/keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "base/charconv.hpp"
#include "model/scenario/section_keys.hpp"

namespace stretto {
namespace {

using Sections = std::map<std::string_view, std::vector<ScenarioKey>>;

const Sections& sections() {
  static const Sections all = [] {
    Sections made = {{"model", model_keys()},     {"cluster", cluster_keys()},   {"parallel", parallel_keys()},
                     {"overlap", overlap_keys()}, {"training", training_keys()}, {"compare", compare_keys()}};
    for (auto& [section, keys] : made)
      for (ScenarioKey& key : keys) key.section = section.data();
    return made;
  }();
  return all;
}

Field field_of(const ScenarioKey& key, const Scenario& scenario) { return key.field(const_cast<Scenario&>(scenario)); }

std::vector<std::string> spellings(const WordField& field) {
  std::vector<std::string> names;
  for (std::uint8_t v = 0; field.name(v) != std::string_view("?"); ++v) names.emplace_back(field.name(v));
  return names;
}

template <class T>
Limits<T> limits_of(const Bounds& bounds) {
  Limits<T> limits{.above_min = bounds.above_min, .below_max = bounds.below_max};
  if (std::isfinite(bounds.min)) limits.min = static_cast<T>(bounds.min);
  if (std::isfinite(bounds.max)) limits.max = static_cast<T>(bounds.max);
  return limits;
}

// Reads a value into one kind of field.
struct Reading {
  TomlTable& table;
  const std::string& name;
  const ScenarioKey& key;
  const Bounds bounds;
  bool must_be_there;

  template <class T>
  T value(T otherwise, LimitsOf<T> limits = {}) const {
    return must_be_there ? require<T>(table, name, limits) : value_or<T>(table, name, otherwise, limits);
  }
  void operator()(bool* to) const { *to = value<bool>(*to); }
  void operator()(std::int64_t* to) const { *to = value<std::int64_t>(*to, limits_of<std::int64_t>(bounds)); }
  void operator()(double* to) const { *to = value<double>(*to, limits_of<double>(bounds)); }
  void operator()(std::uint64_t* to) const {
    auto signed_value = static_cast<std::int64_t>(*to);
    (*this)(&signed_value);
    *to = static_cast<std::uint64_t>(signed_value);
  }
  void operator()(IntegerList* to) const {
    const auto limits = limits_of<std::int64_t>(bounds);
    if (table.has_array(name))
      *to = value<IntegerList>(*to, limits);
    else if (table.has(name))
      *to = {value<std::int64_t>(1, limits)};
  }
  void operator()(std::string* to) const {
    *to = key.choices.empty() ? value<std::string>(*to)
                              : choice_or(table, name, *to, {key.choices.begin(), key.choices.end()});
  }
  void operator()(const WordField& to) const {
    const std::vector<std::string> names = spellings(to);
    const std::string word = choice_or(table, name, to.name(*to.value), names);
    *to.value = static_cast<std::uint8_t>(std::find(names.begin(), names.end(), word) - names.begin());
  }
};

// Returns a bound as text: "2^14", "10^−6", "1000".
std::string in_docs(double bound) {
  const auto power = [&](double base) {
    const double exponent = std::round(std::log(std::abs(bound)) / std::log(base));
    return bound > 0 && std::abs(bound / std::pow(base, exponent) - 1) < 1e-12 ? exponent : 0;
  };
  const auto text = [](int base, double exponent) {
    return fmt::format("{}^{}{}", base, exponent < 0 ? "−" : "", std::abs(exponent));
  };
  if (const double tens = power(10); std::abs(tens) > 3) return text(10, tens);
  if (const double twos = power(2); twos > 10) return text(2, twos);
  return fmt::format("{}", bound);
}

std::string in_docs(const Bounds& bounds) {
  if (!std::isfinite(bounds.min) && !std::isfinite(bounds.max)) return "";
  const std::string from = (bounds.above_min ? "above " : "") + in_docs(bounds.min);
  if (!std::isfinite(bounds.max)) return "from " + from;
  return from + (bounds.above_min ? ", to " : " to ") + (bounds.below_max ? "below " : "") + in_docs(bounds.max);
}

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "`\"" : ", `\"") + word + "\"`";
  return text;
}

struct Documented {
  std::string type, range;
};
Documented documented(const ScenarioKey& key) {
  if (key.field == nullptr) return {};
  const Scenario any;
  const Field field = field_of(key, any);
  const auto is = [&](auto pointer) { return std::holds_alternative<decltype(pointer)>(field); };
  if (const auto* word = std::get_if<WordField>(&field)) return {"string", listed(spellings(*word))};
  if (is((std::string*)nullptr)) return {"string", listed({key.choices.begin(), key.choices.end()})};
  return {is((bool*)nullptr)          ? "boolean"
          : is((double*)nullptr)      ? "number"
          : is((IntegerList*)nullptr) ? "integer, or array of integers"
                                      : "integer",
          in_docs(key.bounds)};
}

std::string default_in_docs(const ScenarioKey& key) {
  if (*key.by_default != '\0' || key.field == nullptr) return key.by_default;
  const KeyValue value = value_of(key, {});
  if (value.is_string()) return value == "" ? "" : "`" + value.dump() + "`";
  return value.dump();
}

std::string joined(std::string text, const std::string& more, const char* between) {
  return text.empty() || more.empty() ? text + more : text + between + more;
}

}  // namespace

const std::vector<ScenarioKey>& scenario_keys_of(std::string_view section) {
  static const std::vector<ScenarioKey> none;
  const auto found = sections().find(section);
  return found == sections().end() ? none : found->second;
}

const ScenarioKey& scenario_key(std::string_view section, std::string_view name) {
  using ByName = std::unordered_map<std::string_view, const ScenarioKey*>;
  static const std::map<std::string_view, ByName> all = [] {
    std::map<std::string_view, ByName> made;
    for (const auto& [of, keys] : sections())
      for (const ScenarioKey& key : keys) made[of].try_emplace(key.name, &key);
    return made;
  }();
  if (const auto of = all.find(section); of != all.end())
    if (const auto found = of->second.find(name); found != of->second.end()) return *found->second;
  throw runtime_failure(fmt::format("[{}] {} has no row", section, name));
}

KeyValue value_of(const ScenarioKey& key, const Scenario& scenario) {
  if (key.get != nullptr) return key.get(scenario);
  if (key.field == nullptr) return nullptr;
  return std::visit(
      [](const auto& field) -> KeyValue {
        if constexpr (std::is_same_v<std::decay_t<decltype(field)>, WordField>)
          return field.name(*field.value);
        else if constexpr (std::is_same_v<std::decay_t<decltype(field)>, IntegerList*>)
          return field->size() == 1 ? KeyValue(field->front()) : KeyValue(*field);
        else
          return *field;
      },
      field_of(key, scenario));
}

KeyValue acting_value_of(const ScenarioKey& key, const Scenario& scenario) {
  return key.acts == nullptr || key.acts(scenario) ? value_of(key, scenario) : KeyValue();
}

std::string identity_text(const KeyValue& value) {
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? std::to_string(value.get<double>()) : value.dump();
}

namespace {

template <class T>
bool parse(const std::string& text, T& value) {
  const auto [end, error] = from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

struct Setting {
  const std::string& text;
  bool operator()(std::int64_t* to) const { return parse(text, *to) && *to >= 0; }
  bool operator()(std::uint64_t* to) const { return parse(text, *to); }
  bool operator()(double* to) const { return parse(text, *to) && std::isfinite(*to); }
  bool operator()(bool* to) const {
    std::int64_t number = 0;
    const bool is_number = (*this)(&number);
    *to = number != 0;
    return is_number;
  }
  bool operator()(IntegerList* to) const {
    const KeyValue value = KeyValue::parse(text, nullptr, false);
    const auto is_count = [](const KeyValue& one) { return one.is_number_unsigned(); };
    if (!is_count(value) && !(value.is_array() && std::all_of(value.begin(), value.end(), is_count))) return false;
    *to = value.is_array() ? value.get<IntegerList>() : IntegerList{value.get<std::int64_t>()};
    return true;
  }
  bool operator()(std::string* to) const {
    *to = text;
    return true;
  }
  bool operator()(const WordField& to) const {
    const std::vector<std::string> names = spellings(to);
    const auto found = std::find(names.begin(), names.end(), text);
    if (found != names.end()) *to.value = static_cast<std::uint8_t>(found - names.begin());
    return true;
  }
};

}  // namespace

bool set_identity(const ScenarioKey& key, Scenario& scenario, const std::string& text) {
  return std::visit(Setting{text}, key.field(scenario));
}

void read_field(TomlTable& table, const std::string& name, const ScenarioKey& key, Scenario& scenario,
                bool must_be_there, const std::optional<Bounds>& bounds) {
  if (!must_be_there && !table.has(name)) return;
  std::visit(Reading{table, name, key, bounds.value_or(key.bounds), must_be_there}, key.field(scenario));
}

KeyReader::KeyReader(TomlTable& table, std::string_view section, Scenario& scenario)
    : table_(table), section_(section), scenario_(scenario) {}

void KeyReader::read(std::string_view name, bool must_be_there, const std::optional<Bounds>& bounds) {
  const ScenarioKey& key = scenario_key(section_, name);
  read_.push_back(&key);
  read_field(table_, key.name, key, scenario_, must_be_there, bounds);
}

void KeyReader::read_others() {
  for (const ScenarioKey& key : scenario_keys_of(section_))
    if (key.field != nullptr && std::find(read_.begin(), read_.end(), &key) == read_.end())
      read_field(table_, key.name, key, scenario_, false, {});
}

std::string hf_reference() {
  std::string text = "| `gpt2` | `llama`, `mistral`, `qwen3` | is |\n|---|---|---|\n";
  const auto name = [](const HfName& hf) { return *hf.name == '\0' ? "" : fmt::format("`{}`", hf.name); };
  for (const ScenarioKey& key : scenario_keys_of("model"))
    if (const std::string gpt2 = name(key.gpt2), llama = name(key.llama); !(gpt2 + llama).empty())
      text += fmt::format("| {} | {} | `{}` |\n", gpt2, llama, key.name);
  return text;
}

std::string keys_reference(std::string_view section) {
  std::string text = "| key | type, unit | default | range | meaning |\n|---|---|---|---|---|\n";
  for (const ScenarioKey& key : scenario_keys_of(section)) {
    const Documented by_field = documented(key);
    text += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.name,
                        joined(*key.type != '\0' ? key.type : by_field.type, key.unit, ", "), default_in_docs(key),
                        joined(by_field.range, key.range, "; "), key.meaning);
  }
  return text;
}

std::string scenario_reference() {
  std::string text;
  for (const char* section : kSectionsOfKeys)
    text += fmt::format("## `[{}]`\n\n{}\n", section, keys_reference(section));
  return text + "### `hf_config`\n\n" + hf_reference();
}

}  // namespace stretto
