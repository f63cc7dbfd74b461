#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace stretto {

// The effect of a Megatron-LM flag on a predicted step, for flags that are no key of a scenario (megatron.hpp has
// those). The flags are those of megatron/training/arguments.py and the configurations that it makes flags of, at
// d98e8a64 (August 2026), and of releases back to 2021.
enum class FlagVerdict {
  without_effect,  // files, logs, checks, the course of training
  approximated,    // the step is predicted as if the flag were absent; `says` names the effect that is left out
  refused,         // a prediction without the flag would be meaningless; `says` names the missing model: "experts"
};
struct FlagRule {
  std::string_view flag;  // a flag that ends in '-' stands for all flags with this beginning and no rule of their own
  FlagVerdict verdict;
  std::string_view says = "";
  std::string_view neutral = "";  // values without effect, between bars: "0|None"
};
const std::vector<FlagRule>& flag_rules();
// Returns the rules of flags that only Megatron-DeepSpeed has (deepspeedai/Megatron-DeepSpeed, megatron/arguments.py).
// They are a part of flag_rules().
std::vector<FlagRule> deepspeed_flag_rules();
// Returns the rules of flags of older releases and of forks. They are a part of flag_rules().
std::vector<FlagRule> fork_flag_rules();
// Gives flags of older releases and of forks the name of the flag that means the same today, with a note.
struct CommandLine;
void rename_old_flags(CommandLine& line);
// Returns the rule of a flag; null: no known Megatron-LM has the flag.
const FlagRule* rule_of(std::string_view flag);
// Returns whether the importer takes the flag without a row of its own (megatron_import.cpp).
bool is_flag_of_import(std::string_view flag);
bool is_neutral(const FlagRule& rule, const std::vector<std::string>& values);

// Returns the effect of an environment variable that Stretto does not model; "" for a variable without effect on a
// step.
std::string_view effect_of_variable(std::string_view name, std::string_view value);

// Returns what a program trains when it is not a decoder with the sizes of the flags, "image encoders"; "" for other
// programs.
std::string_view other_kind_of(std::string_view program);

}  // namespace stretto
