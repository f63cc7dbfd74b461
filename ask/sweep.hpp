#pragma once
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ask/swept.hpp"
#include "predict/predict_step.hpp"
#include "sweep/near.hpp"
#include "sweep/ranking.hpp"
#include "sweep/search.hpp"

namespace stretto::ask {

// A sweep calls these while it works. As in sweep::SearchCalls, `known` is called from several threads at once.
struct SweepCalls {
  std::function<const sweep::Point*(const std::string& key)> known;  // a point of an earlier sweep, or null
  std::function<void(const sweep::Point&, bool is_new, const sweep::SearchProgress&)> report;
  std::function<void(const std::string& line)> progress;  // what is done after the search
  std::function<bool()> stop;
};

// A step that was built in full, verified and simulated.
struct FullStep {
  std::size_t point = 0;        // index into SearchResult::points
  predict::PredictedStep step;  // the prediction alone, where the step is too long
};

// All that a search found. Indices are into result.points; times are in milliseconds unless a name says otherwise.
struct SweepAnswer {
  std::string scenario, platform;
  std::int64_t combinations = 0;
  sweep::SearchResult result;
  double seconds = 0;  // of the search
  // Indices into the points: the best, the first of `ranking` first; the Pareto front; the best of each number of GPUs.
  std::vector<std::size_t> order, front, by_gpus;
  std::optional<sweep::Ranking> ranking;     // where a point fits
  std::vector<FullStep> full;                // of the points of `order`
  std::vector<Prediction> scales;            // of the points of `by_gpus`
  std::optional<Prediction> own;             // the scenario as it is
  std::string why_no_own;                    // "" where there is one, or it is no scenario of the user's
  std::vector<sweep::SingleChange> changes;  // of the first point, of keys that were not searched
  std::string megatron;                      // flags of Megatron-LM of the first point; "" where it has none
  std::vector<std::string> notes;
  bool was_stopped = false;
};

// Searches. Throws as sweep::search() does; the caller asks require_one().
SweepAnswer sweep(SweptSpace& space, const SweepCalls& calls);
// Throws where no point fits: Error(input) where every one was refused, otherwise Error(runtime). A part of a sweep may
// have none.
void require_one(const SweepAnswer& answer, const SweepRequest& request);

nlohmann::json json_of(const SweepAnswer& answer);  // `sweep` in docs/json.md

}  // namespace stretto::ask
