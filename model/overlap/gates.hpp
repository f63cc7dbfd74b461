#pragma once
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
std::vector<Gate> gates_of(const Scenario& scenario);

// Asked for, and every gate open.
bool acts(const std::vector<Gate>& gates, const std::string& knob);
// A line for each knob that was asked for and is off.
std::vector<std::string> notes_of(const std::vector<Gate>& gates);
// All gates as a table for people.
std::string print_gates(const std::vector<Gate>& gates);

}  // namespace stretto
