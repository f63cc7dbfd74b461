#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "model/scenario.hpp"

namespace stretto {

// A condition for a knob to act, as in Megatron-LM, NeMo and Megatron-Bridge. Where they raise an error, reading the
// scenario does too, so such a gate is open in every scenario that could be read. Where they silently switch the knob
// off, it is off here too, and a note of the schedule says why.
struct Gate {
  std::string knob;
  std::string needs;      // "data_parallel_size above 1"
  bool is_error = false;  // otherwise: the knob is off
  bool asked = false;     // the knob is on in the scenario
  bool open = false;
  std::string why;  // when closed: the reason, and what would open it
};

class Gates {
 public:
  // `knob` is off unless the gate is open.
  void off(const std::string& knob, bool asked, const std::string& needs, bool open, const std::string& why);
  // The same for a size that must be above 1.
  void above_one(const std::string& knob, bool asked, const std::string& key, std::int64_t size);
  // It acts on gradients of parameters.
  void trains(const std::string& knob, bool asked, const Scenario& scenario);
  // It acts on buckets of gradients, which ZeRO-2 and ZeRO-3 do not have.
  void off_with_units(const std::string& knob, bool asked, const Scenario& scenario);
  // Asking for `knob` is an error unless the gate is open.
  void error(const std::string& knob, bool asked, const std::string& needs, bool open);

  const std::vector<Gate>& all() const { return gates_; }
  // Whether a knob is asked for and all its gates are open.
  bool acts(const std::string& knob) const;
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
