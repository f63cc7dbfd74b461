#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace stretto {

// What a flag of Megatron-LM is for a predicted step, where it is no key of a scenario (megatron.hpp has those). Flags
// are those of megatron/training/arguments.py and the configurations that it makes flags of, at d98e8a64 (August 2026),
// and of releases back to 2021.
enum class Verdict {
  without_effect,  // files, logs, checks, the course of training
  approximated,    // the step is predicted as if it were absent; `says` what it would change
  refused,         // an answer without it would mean nothing; `says` what is not modelled: "experts"
};
struct FlagRule {
  std::string_view flag;  // one that ends in '-' stands for all that begin so and have no rule of their own
  Verdict verdict;
  std::string_view says = "";
  std::string_view neutral = "";  // values that change nothing, between bars: "0|None"
};
const std::vector<FlagRule>& flag_rules();
// The rule of a flag; null: Megatron-LM has no such flag that we know.
const FlagRule* rule_of(std::string_view flag);
bool is_neutral(const FlagRule& rule, const std::vector<std::string>& values);

// A program that trains no decoder with the sizes that the flags say: what it is instead, "image encoders"; "" for
// others.
std::string_view other_kind_of(std::string_view program);

}  // namespace stretto
