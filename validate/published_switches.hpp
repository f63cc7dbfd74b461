#pragma once
#include <map>
#include <string>

#include "validate/published_words.hpp"

namespace stretto::validate {

// Removes each switch of [overlap] from a cell and returns its value, by the key's name: "overlap_grad_reduce",
// "tp_comm_overlap = false", "no overlap_param_gather", or Megatron-LM's flag "--overlap-grad-reduce".
std::map<std::string, bool> take_switches(Words& cell);

}  // namespace stretto::validate
