#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "model/scenario.hpp"

namespace stretto {

// What happens to a knob whose gate is closed.
enum class GateKind : std::uint8_t {
  error,  // reading the scenario is an error; a knob of [overlap] that only the profile sets is off instead
  off,    // the knob is off, and a note of the schedule says why
  acts,   // a framework refuses the knob or switches it off, and Stretto does not: such a gate is always open
};

// A condition for a knob to act, as the framework has it that `source` names.
struct Gate {
  std::string knob;
  std::string needs;  // "KEY = VALUE" or "KEY above N" where one key decides, otherwise words
  GateKind kind = GateKind::off;
  std::string source = {};  // framework, commit, file and line; "Stretto" where no framework has the knob or the gate
  std::string wider = {};   // what Stretto does beyond the source on purpose; "": nothing
  bool asked = false;       // the knob is on in the scenario
  bool open = false;
  std::string got = {};             // of an error: what the scenario has in place of `needs`
  std::string why = {};             // the reason; an error may have none, because its `needs` and `got` say it
  std::string section = "overlap";  // of the scenario: where an error points to
  std::string key = {};             // the key there; "": `knob`

  // "KNOB is off: …", where the gate is closed. Never empty.
  std::string reason() const;
  // The message of an error behind its key: "expected … as well, got …: …".
  std::string refusal() const;
};

// Files of the frameworks at the commits that the gates were compared with, 2026-08-22.
std::string megatron(const std::string& place);            // of NVIDIA/Megatron-LM: "arguments.py:1028"
std::string bridge(const std::string& place);              // of NVIDIA-NeMo/Megatron-Bridge
std::string transformer_engine(const std::string& place);  // of NVIDIA/TransformerEngine
constexpr const char* kOwnGate = "Stretto";

class Gates {
 public:
  void add(Gate gate);
  // `knob` is off unless the size `key` is above 1.
  void above_one(const std::string& knob, bool asked, const std::string& key, std::int64_t size,
                 const std::string& source = kOwnGate);
  // It acts on gradients of parameters.
  void trains(const std::string& knob, bool asked, const Scenario& scenario, const std::string& source = kOwnGate);
  // It acts on buckets of gradients, which ZeRO-2 and ZeRO-3 do not have.
  void off_with_units(const std::string& knob, bool asked, const Scenario& scenario);

  const std::vector<Gate>& all() const { return gates_; }
  // Whether a knob is asked for and all its gates are open.
  bool acts(const std::string& knob) const;
  // The first closed gate whose knob is asked for and that is an error; null: none. `by_profile`: keys of which those
  // of [overlap] are no errors, because nobody asked for them in this scenario.
  const Gate* refused(std::span<const std::string> by_profile) const;
  // A line for each knob that was asked for and is off, unless it is one of `silent`.
  std::vector<std::string> notes(std::span<const std::string> silent = {}) const;

 private:
  std::vector<Gate> gates_;
};
// All gates of a scenario: those of the overlap modes, in their order, then the others.
Gates gates_of(const Scenario& scenario);

// All gates as a table for people.
std::string print_gates(const Gates& gates);

// `show --gates` in docs/json.md.
nlohmann::json gates_json(const Gates& gates);

// Every gate there is: those of a scenario of one rank that names all groups of ranks.
Gates all_gates();
// They and the modes, as the Markdown tables of docs/gates.md.
std::string gates_reference();

}  // namespace stretto
