#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "predict/gain.hpp"
#include "report/table.hpp"
#include "sweep/settings.hpp"
#include "sweep/space.hpp"

namespace stretto::sweep {

// A scenario with one setting changed: a size of the layout by one legal value, a switch of [overlap], another word.
struct SingleChange {
  std::string key = {};  // in full
  std::string what;      // "tensor_model_parallel_size 4 -> 8"
  std::vector<std::string> set;
  double step_ms = 0;
  std::optional<predict::Gain> gain;  // of an overlap mode
};
// Returns all single changes that may be legal, without their steps. GPUs and batch stay, so the data-parallel size may
// change too; which of them are legal is decided by the scenario's reader.
std::vector<SingleChange> single_changes(const Scenario& scenario, const sim::Platform& platform);
// Returns the single changes that fit and make a step faster than `step_ms`, the fastest first. What a
// switch of [overlap] saves has its interval. `read` returns the
// scenario with further overrides, and throws Error(input) where they are refused. Keys that `leaves_out` are not
// changed; null: none. Published GPUs only; others give none.
std::vector<SingleChange> faster_changes(const Scenario& scenario, const sim::Platform& platform, double step_ms,
                                         const std::function<Scenario(const std::vector<std::string>& set)>& read,
                                         const std::function<bool(const std::string& key)>& leaves_out = nullptr);

Sheet changes_sheet(const std::vector<SingleChange>& changes, double step_ms);  // `changes` of docs/json.md

}  // namespace stretto::sweep
