#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/toml.hpp"
#include "base/values_of.hpp"
#include "model/scenario.hpp"

namespace stretto {

// The keys of a scenario, one row each: the only place where a plain key is written down. Every other place walks the
// rows: the reader, docs/scenario.md, JSON, the record of a training, config.json of Hugging Face's, flags of
// Megatron-LM and fields of Megatron-Bridge, columns of published steps, random layouts. A place that makes something
// else of a key than its value has code for it: readers of sections (rows without `field`), hf_config.cpp (without a
// name), kSpecial of megatron_rows.cpp, random_layout.cpp. docs/schedule.md tells how a key is added.

using KeyValue = nlohmann::json;

// Where a scenario has the value. An enumeration of one byte, whose name_of() gives the spellings.
struct WordField {
  std::uint8_t* value;
  const char* (*name)(std::uint8_t);
  template <class Enum>
  static WordField of(Enum& value) {
    static_assert(sizeof(Enum) == 1);
    return {reinterpret_cast<std::uint8_t*>(&value), [](std::uint8_t v) { return name_of(static_cast<Enum>(v)); }};
  }
};
using Field = std::variant<bool*, std::int64_t*, std::uint64_t*, double*, std::string*, WordField>;

struct Bounds {
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();
  bool above_min = false, below_max = false;  // the bound itself is not allowed
};

// Whether a checkpoint states the key, and what it means to resume with another value.
enum class Record : std::uint8_t {
  none,
  identity,        // another training: an error
  identity_since,  // an error too; a checkpoint that does not state it, being older, has the default
  setting,         // the same training continued in another way: a note
};
inline bool is_identity(Record record) { return record == Record::identity || record == Record::identity_since; }

// The key in a config.json of Hugging Face's; "": it has none, or code of hf_config.cpp makes the value.
struct HfName {
  const char* name = "";
  bool is_required = true;  // otherwise absent means what the reader of that class has set before
};

// The key on Megatron-LM's command line.
struct MegatronFlag {
  const char* name = "";      // "": Megatron-LM has none
  KeyValue given = nullptr;   // what the flag stands for, of one without a value
  KeyValue absent = nullptr;  // what a command line without the flag means; null: Stretto's default
  const char* with = "";      // a flag that goes with it
  std::vector<std::pair<const char*, const char*>> words = {};  // its spellings and ours, where they differ
  bool is_list = false;
  bool may_be_one = false;                // and a list of one is that value
  std::vector<const char*> aliases = {};  // other spellings that Megatron-LM takes
};

// A row without one of the fields that have no default here does not compile.
struct ScenarioKey {
  const char* name;
  // Null: the reader of the section makes something else of it than one value.
  Field (*field)(Scenario&);
  Bounds bounds = {};                     // of a number
  std::vector<const char*> choices = {};  // of a string that is no enumeration
  std::vector<const char*> also = {};     // other programs' spellings, which a scenario may have
  // What JSON, records and flags say, where it is not the field's own value.
  KeyValue (*get)(const Scenario&) = nullptr;

  // docs/scenario.md. "": as the field says.
  const char* type = "";
  const char* unit = "";
  const char* by_default = "";
  const char* range = "";  // what holds besides the bounds
  const char* meaning;

  MegatronFlag megatron;
  bool says_how = true;    // how a step is computed; otherwise no other program is asked for it
  bool in_bridge = false;  // a field of Megatron-Bridge's CommOverlapConfig, by the key's name
  HfName gpt2 = {}, llama = {};
  const char* column = "";  // of a file of published steps (docs/validate.md), whose cells are the key's value
  bool (*acts)(const Scenario&) = nullptr;  // where it is false the key does nothing, and JSON has null
  Record record;
  // Small legal values that random layouts choose from. Empty: tests/random_layout.cpp draws the key, or says why not.
  std::vector<KeyValue> drawn = {};

  const char* section = "";  // set by scenario_keys_of()
  std::string full_name() const { return std::string(section) + "." + name; }
};

// Of "model", in the order of the documentation and of JSON.
const std::vector<ScenarioKey>& scenario_keys_of(std::string_view section);
inline constexpr std::array kSectionsOfKeys = {"model", "parallel", "overlap", "training"};
// Throws Error(runtime) for a key that has no row.
const ScenarioKey& scenario_key(std::string_view section, std::string_view name);

// As JSON and records have it: a boolean, a number, a string. Null for a key without field and get().
KeyValue value_of(const ScenarioKey& key, const Scenario& scenario);
// Null as well where the key does nothing.
KeyValue acting_value_of(const ScenarioKey& key, const Scenario& scenario);
// A record's text of it: "1", "12", "0.100000", "RMSNorm".
std::string identity_text(const KeyValue& value);
// Sets the field from such a text; false where it is no number that the field can have. A word that is no spelling
// leaves an enumeration as it is.
bool set_identity(const ScenarioKey& key, Scenario& scenario, const std::string& text);

// Reads the keys of one section into a scenario. What the scenario has before is the default.
class KeyReader {
 public:
  KeyReader(TomlTable& table, std::string_view section, Scenario& scenario);
  // Of a row with a field. Throws Error(input) where the value is none of it or beyond the bounds, which may be
  // narrower than the row's, or `must_be_there` and it is not.
  void read(std::string_view name, bool must_be_there = false, const std::optional<Bounds>& bounds = {});
  // Every row with a field that is not read yet.
  void read_others();

 private:
  TomlTable& table_;
  std::string_view section_;
  Scenario& scenario_;
  std::vector<const ScenarioKey*> read_;
};
// One value; `name` is how the table spells the key.
void read_field(TomlTable& table, const std::string& name, const ScenarioKey& key, Scenario& scenario,
                bool must_be_there, const std::optional<Bounds>& bounds = {});

// Tables of docs/scenario.md: of a section; of names in Hugging Face's config.json that stand for one key each. And all
// of them, with headings.
std::string keys_reference(std::string_view section);
std::string hf_reference();
std::string scenario_reference();

}  // namespace stretto
