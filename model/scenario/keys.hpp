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

// The keys of a scenario, one row each: the only place where a plain key is written down. All other code walks the
// rows: the reader, docs/scenario.md, JSON, the record of a training, config.json of Hugging Face's, flags of
// Megatron-LM and fields of Megatron-Bridge, columns of published steps, random layouts. Where code needs something
// other than the key's value, it has code of its own: readers of sections (rows without `field`), hf_config.cpp (rows
// without a name), kSpecial of megatron_rows.cpp, random_layout.cpp. docs/adding.md says how a key is added.

using KeyValue = nlohmann::json;

// The scenario's member with the value. WordField is an enumeration of one byte, whose name_of() gives the spellings.
struct WordField {
  std::uint8_t* value;
  const char* (*name)(std::uint8_t);
  template <class Enum>
  static WordField of(Enum& value) {
    static_assert(sizeof(Enum) == 1);
    return {reinterpret_cast<std::uint8_t*>(&value), [](std::uint8_t v) { return name_of(static_cast<Enum>(v)); }};
  }
};
// A list of integers may be one integer.
using IntegerList = std::vector<std::int64_t>;
using Field = std::variant<bool*, std::int64_t*, std::uint64_t*, double*, std::string*, IntegerList*, WordField>;

struct Bounds {
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();
  bool above_min = false, below_max = false;  // the bound itself is not allowed
};

// Whether a checkpoint records the key, and the consequence of a resume with another value.
enum class Record : std::uint8_t {
  none,
  identity,        // it is another training: an error
  identity_since,  // an error too; an older checkpoint without the key has the default
  setting,         // the training goes on in another way: a note
};
inline bool is_identity(Record record) { return record == Record::identity || record == Record::identity_since; }

// The key in a config.json of Hugging Face's; "": it has none, or code of hf_config.cpp makes the value.
struct HfName {
  const char* name = "";
  bool is_required = true;  // false: an absent key keeps the value that the reader of its class has set
};

// The key on Megatron-LM's command line.
struct MegatronFlag {
  const char* name = "";      // "": Megatron-LM has none
  KeyValue given = nullptr;   // the value for which a flag without an argument stands
  KeyValue absent = nullptr;  // the meaning of a command line without the flag; null: Stretto's default
  const char* with = "";      // another flag that must be given with it
  std::vector<std::pair<const char*, const char*>> words = {};  // Megatron-LM's words and Stretto's, where they differ
  bool is_list = false;
  bool may_be_one = false;                // a list; a single value may stand for a list of one
  std::vector<const char*> aliases = {};  // other spellings that Megatron-LM accepts
};

// A row must set all fields that have no default here, or it does not compile.
struct ScenarioKey {
  const char* name;
  // Returns the member. Null: the section's reader makes something other than one value of the key.
  Field (*field)(Scenario&);
  Bounds bounds = {};                     // bounds of a number
  std::vector<const char*> choices = {};  // allowed values of a string that is not an enumeration
  std::vector<const char*> also = {};     // other programs' spellings, which a scenario accepts too
  // The value for JSON, records and flags, where it is not the member's own value.
  KeyValue (*get)(const Scenario&) = nullptr;

  // Texts for docs/scenario.md. "": derived from the member.
  const char* type = "";
  const char* unit = "";
  const char* by_default = "";
  const char* range = "";  // conditions beyond the bounds
  const char* meaning;

  MegatronFlag megatron;
  bool says_how = true;    // it affects how a step is computed; otherwise no other program needs it
  bool in_bridge = false;  // CommOverlapConfig of Megatron-Bridge has a field of the key's name
  HfName gpt2 = {}, llama = {};
  const char* column = "";  // column in a file of published steps (docs/validate.md), whose cells are values of the key
  bool (*acts)(const Scenario&) = nullptr;  // returns false where the key has no effect; JSON then has null
  Record record;
  // Small valid values from which random layouts choose. Empty: tests/random_layout.cpp draws the key, or says why not.
  std::vector<KeyValue> drawn = {};

  const char* section = "";  // set by scenario_keys_of()
  std::string full_name() const { return std::string(section) + "." + name; }
};

// Returns the keys of a section ("model"), in the order of the documentation and of JSON.
const std::vector<ScenarioKey>& scenario_keys_of(std::string_view section);
inline constexpr std::array kSectionsOfKeys = {"model", "cluster", "parallel", "overlap", "training", "compare"};
// Finds a key. Throws Error(runtime) for a key that has no row.
const ScenarioKey& scenario_key(std::string_view section, std::string_view name);

// Returns the value for JSON and records: a boolean, a number, a string. Null for a key without field and get().
KeyValue value_of(const ScenarioKey& key, const Scenario& scenario);
// Returns value_of(), but null where the key has no effect.
KeyValue acting_value_of(const ScenarioKey& key, const Scenario& scenario);
// Returns the value's text in a record: "1", "12", "0.100000", "RMSNorm".
std::string identity_text(const KeyValue& value);
// Sets the member from such a text; returns false where the text is no number that the member can hold. An unknown word
// leaves an enumeration unchanged.
bool set_identity(const ScenarioKey& key, Scenario& scenario, const std::string& text);

// Reads the keys of one section into a scenario. The values that the scenario already has are the defaults.
class KeyReader {
 public:
  KeyReader(TomlTable& table, std::string_view section, Scenario& scenario);
  // Reads a row with a field. Throws Error(input) where the value has the wrong type or is beyond the bounds, which may
  // be narrower than the row's, or where the key is absent although `must_be_there`.
  void read(std::string_view name, bool must_be_there = false, const std::optional<Bounds>& bounds = {});
  // Reads every row with a field that has not been read yet.
  void read_others();

 private:
  TomlTable& table_;
  std::string_view section_;
  Scenario& scenario_;
  std::vector<const ScenarioKey*> read_;
};
// Reads one value; `name` is the table's spelling of the key.
void read_field(TomlTable& table, const std::string& name, const ScenarioKey& key, Scenario& scenario,
                bool must_be_there, const std::optional<Bounds>& bounds = {});

// Return tables of docs/scenario.md: the keys of one section; the names in Hugging Face's config.json that stand for
// one key each; all of them with headings.
std::string keys_reference(std::string_view section);
std::string hf_reference();
std::string scenario_reference();

}  // namespace stretto
