#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "model/scenario.hpp"

namespace stretto {

// The consequence for a knob whose gate is closed.
enum class GateKind : std::uint8_t {
  error,  // reading the scenario is an error; a knob of [overlap] that only the profile sets is off instead
  off,    // the knob is off, and a note of the schedule says why
  acts,   // a framework refuses the knob or switches it off, but Stretto does not: such a gate is always open
};

// Whose condition a gate is. A gate that is `nobody`'s follows from what the knob means: without it there is nothing
// that the knob could act on. Gates of Stretto's are limits: what they refuse could be modelled.
enum class GateOwner : std::uint8_t { stretto, nobody, megatron_lm, megatron_bridge, transformer_engine, nccl };
const char* name_of(GateOwner owner);  // "Stretto", "nobody", "Megatron-LM", …

// Whose gate it is and where it stands there: "arguments.py:1028" and words on it. A gate of Stretto's or nobody's has
// no place: no framework has the knob, or a framework allows what is not modelled here.
struct GateSource {
  GateOwner owner = GateOwner::stretto;
  std::string place = {};
  std::string text() const;    // "Megatron-LM d98e8a64 arguments.py:1028", with the commit that was compared; "Stretto"
  std::string remark() const;  // for an error: "Megatron-LM's condition, arguments.py:1028", "a limit of Stretto's own"
};

// A condition for a knob to act, as `source` has it.
struct Gate {
  std::string knob;
  std::string needs;  // "KEY = VALUE" or "KEY above N" where one key decides, otherwise words
  GateKind kind = GateKind::off;
  GateSource source = {};
  std::string wider = {};  // what Stretto supports beyond the source on purpose; "": nothing
  bool asked = false;      // the knob is on in the scenario
  bool open = false;
  std::string got = {};             // for an error: the scenario's value in place of `needs`
  std::string why = {};             // the reason; an error may have none, because its `needs` and `got` say it
  std::string section = "overlap";  // section of the scenario to which an error points
  std::string key = {};             // the key there; "": `knob`
  bool of_size = false;             // a group of one rank or one stage has nothing to overlap, in a framework neither
  bool of_gpus = false;             // acts only on GPUs, whose executor notes that it is off; the schedule does not

  // Returns "KNOB is off: …" for a closed gate. Never empty.
  std::string reason() const;
  // Returns the message of an error after its key: "expected … as well, got …: … (Megatron-LM's condition, …)".
  std::string refusal() const;
};

// Places in the frameworks, at the commits with which the gates were compared, 2026-08-22.
GateSource megatron(const std::string& place);            // in NVIDIA/Megatron-LM: "arguments.py:1028"
GateSource bridge(const std::string& place);              // in NVIDIA-NeMo/Megatron-Bridge
GateSource transformer_engine(const std::string& place);  // in NVIDIA/TransformerEngine
inline const GateSource kOwnGate = {};
inline const GateSource kNothingToActOn = {GateOwner::nobody};

class Gates {
 public:
  void add(Gate gate);
  // `knob` is off unless the size `key` is above 1.
  void above_one(const std::string& knob, bool asked, const std::string& key, std::int64_t size,
                 const GateSource& source = kNothingToActOn);
  // A scenario that asks for the knob of [training] is refused while the gate is closed. `knob` begins with its key:
  // "main_grads_dtype = bf16".
  void of_training(const std::string& knob, bool asked, const std::string& needs, bool open, const std::string& got,
                   const GateSource& source, const std::string& why = "");
  // The knob acts on gradients of parameters, so it is off with a frozen base.
  void trains(const std::string& knob, bool asked, const Scenario& scenario,
              const GateSource& source = kNothingToActOn);
  // The knob acts on buckets of gradients, which ZeRO-2 and ZeRO-3 do not have.
  void off_with_units(const std::string& knob, bool asked, const Scenario& scenario);

  const std::vector<Gate>& all() const { return gates_; }
  // Returns whether a knob is requested and all its gates are open.
  bool acts(const std::string& knob) const;
  // Returns the first closed gate whose knob is requested and whose kind is error; null: none. `by_profile` are keys
  // that only the profile sets; those of [overlap] are no errors, because the scenario does not ask for them.
  const Gate* refused(std::span<const std::string> by_profile) const;
  // Returns a line for each knob that is requested but off, except those in `silent`.
  std::vector<std::string> notes(std::span<const std::string> silent = {}) const;

 private:
  std::vector<Gate> gates_;
};
// Returns all gates of a scenario: those of the overlap modes, in their order, then the others.
Gates gates_of(const Scenario& scenario);

// Returns all gates as a table for people.
std::string print_gates(const Gates& gates);

// Returns the JSON of `show --gates` (docs/json.md).
nlohmann::json gates_json(const Gates& gates);

// Returns every gate that exists: the gates of a scenario of one rank that names all groups of ranks.
Gates all_gates();
// Returns all gates and the modes as the Markdown tables of docs/gates.md.
std::string gates_reference();

}  // namespace stretto
