#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/toml.hpp"
#include "model/lower/lower.hpp"
#include "model/overlap/gates.hpp"
#include "model/scenario.hpp"

namespace stretto {

// When the rewrite of a mode runs. Blocks are cut first: data-parallel rewrites look for operations in them.
enum class RewriteStage : std::uint8_t { cut_blocks, attach_data_parallel };

// All that is known about one overlap mode. Each has a file of its own, which makes the row, holds the rewrite and
// states its edges and its exposed part; table.cpp lists the rows. Functions that are null have nothing to do.
struct OverlapMode {
  std::string name;     // in [compare] modes, in tables, and of the schedule
  std::string meaning;  // one line, for people
  // The key of [overlap] that turns it on; none for the plain schedule. Modes that differ in further settings share
  // one.
  std::string knob = {};
  bool Overlap::*on = nullptr;
  // False: in this layout the knob cannot act.
  bool (*applies)(const Parallel& parallel) = [](const Parallel&) { return true; };
  void (*configure)(Overlap& overlap) = nullptr;  // what the mode sets besides; the knobs of all modes are off before
  void (*clear)(Overlap& overlap) = nullptr;      // turns off what is an error without the knob
  // Of the modes that share a knob, or that another covers: whether it is this one. Null: the knob alone says it.
  bool (*is_meant)(const Overlap& overlap) = nullptr;

  // Of modes that share a knob, only the one that has its name has these three.
  void (*read)(TomlTable& table, Overlap& overlap) = nullptr;         // its further keys of [overlap]
  void (*check)(TomlTable& table, const Overlap& overlap) = nullptr;  // what they need; throws Error(input)
  void (*gates)(const Scenario& scenario, Gates& gates) = nullptr;    // of all its keys

  // Null: lowering itself looks at the knob.
  void (*rewrite)(Lowered& lowered, const Scenario& scenario, const Gates& gates) = nullptr;
  RewriteStage stage = RewriteStage::cut_blocks;

  bool is_set(const Overlap& overlap) const { return on && overlap.*on && (!is_meant || is_meant(overlap)); }
};

}  // namespace stretto
