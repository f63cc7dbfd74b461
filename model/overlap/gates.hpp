#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/scenario.hpp"

namespace stretto {

// What a knob needs in order to act, with the meaning that Megatron-LM, NeMo and Megatron-Bridge give it. Where they
// raise an error the scenario's reader does too, so that such a gate is open in every scenario there is; where they
// switch the knob off without a word, it is off here too, and a note of the schedule says why.
struct Gate {
  std::string knob;
  std::string needs;      // "data_parallel_size above 1"
  bool is_error = false;  // otherwise: the knob is off
  bool asked = false;     // the knob is on in the scenario
  bool open = false;
  std::string why;  // when closed: what is in the way and what would open it
};

class Gates {
 public:
  // `knob` is off unless the gate is open.
  void off(const std::string& knob, bool asked, const std::string& needs, bool open, const std::string& why);
  // The same for a size that must be above 1.
  void above_one(const std::string& knob, bool asked, const std::string& key, std::int64_t size);
  // To ask for `knob` is an error unless the gate is open.
  void error(const std::string& knob, bool asked, const std::string& needs, bool open);

  const std::vector<Gate>& all() const { return gates_; }
  // Whether a knob is asked for and all its gates are open.
  bool acts(const std::string& knob) const;
  // A line for each knob that was asked for and is off.
  std::vector<std::string> notes() const;

 private:
  std::vector<Gate> gates_;
};
// Those of the overlap modes, in their order, then all others.
Gates gates_of(const Scenario& scenario);

// All gates as a table for people.
std::string print_gates(const Gates& gates);

}  // namespace stretto
