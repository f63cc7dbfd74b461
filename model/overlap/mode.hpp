#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/toml.hpp"
#include "model/lower/lower.hpp"
#include "model/overlap/gates.hpp"
#include "model/scenario.hpp"

namespace stretto {

// The time at which the rewrite of a mode runs. Blocks are cut first, because data-parallel rewrites search the cut
// blocks.
enum class RewriteStage : std::uint8_t { cut_blocks, attach_data_parallel };

// One overlap mode. Each has a file of its own, which makes this row, holds the rewrite and states its edges and its
// exposed part; table.cpp lists the rows. A null function does nothing.
struct OverlapMode {
  std::string name;         // name in [compare] modes, in tables, and of the schedule
  std::string meaning;      // one line, for people
  std::string memory = {};  // memory that it keeps in addition to the plain schedule's, for people; empty: none
  // The key of [overlap] that turns the mode on; none for the plain schedule. Modes that differ in further settings
  // share one key.
  std::string knob = {};
  bool Overlap::*on = nullptr;
  // Returns false when the knob cannot act in this layout.
  bool (*applies)(const Parallel& parallel) = [](const Parallel&) { return true; };
  void (*configure)(Overlap& overlap) = nullptr;  // sets what the mode needs in any layout; all knobs are off before it
  void (*clear)(Overlap& overlap) = nullptr;      // turns off the settings that are an error without the knob
  // Returns whether this mode is the one that is on, when several share a knob or one includes another. Null: the knob
  // decides.
  bool (*is_meant)(const Overlap& overlap) = nullptr;

  // When modes share a knob, only the mode with the knob's name has these three functions.
  // reads keys that have no row in model/scenario/keys.hpp
  void (*read)(TomlTable& table, Overlap& overlap) = nullptr;
  void (*check)(TomlTable& table, const Overlap& overlap) = nullptr;  // throws Error(input) when keys do not fit
  void (*gates)(const Scenario& scenario, Gates& gates) = nullptr;    // adds the gates of all its keys

  // Edits the plain schedule. Null: lowering itself reads the knob.
  void (*rewrite)(Lowered& lowered, const Scenario& scenario, const Gates& gates) = nullptr;
  RewriteStage stage = RewriteStage::cut_blocks;

  bool is_set(const Overlap& overlap) const { return on && overlap.*on && (!is_meant || is_meant(overlap)); }
};

}  // namespace stretto
