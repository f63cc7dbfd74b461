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
// states its edges and its exposed part; table.cpp lists the rows. A pointer that may be null says so.
struct OverlapMode {
  std::string name;     // in [compare] modes, in tables, and of the schedule
  std::string meaning;  // one line, for people
  // The key of [overlap] that turns it on; "" for the plain schedule. Modes that differ in further settings share one.
  std::string knob;
  bool (*applies)(const Parallel& parallel);  // false: in this layout the knob cannot act
  void (*configure)(Overlap& overlap);        // turns the mode on; the knobs of all modes are off before
  void (*clear)(Overlap& overlap);            // turns the knob off, and what is an error without it
  bool (*is_set)(const Overlap& overlap);     // the knob is on, and its further settings are those of this mode

  // Of modes that share a knob, only the one that has its name has these three; null: nothing to do.
  void (*read)(TomlTable& table, Overlap& overlap) = nullptr;         // its keys of [overlap]
  void (*check)(TomlTable& table, const Overlap& overlap) = nullptr;  // what they need; throws Error(input)
  void (*gates)(const Scenario& scenario, Gates& gates) = nullptr;    // of its keys

  // Null: nothing is rewritten, lowering itself looks at the knob.
  void (*rewrite)(Lowered& lowered, const Scenario& scenario, const Gates& gates) = nullptr;
  RewriteStage stage = RewriteStage::cut_blocks;
};

}  // namespace stretto
