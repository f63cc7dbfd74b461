#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ask/simulate.hpp"
#include "predict/gain.hpp"

namespace stretto::ask {

// A key that steps do not share, with its value for each: "" where it has none there.
struct DifferentKey {
  std::string key;
  std::vector<std::string> values;  // [step]
};

// Several steps on one scale. The first is what the others are compared with.
struct SideBySide {
  std::vector<Asked> asked;
  std::vector<SimulateAnswer> answers;
  // [step] what it saves of the first one's time per token, with the interval of 80 %: by all that is not known of both
  // (predict/gain.hpp) where platform and profile are the first one's, otherwise by the intervals of both steps, which
  // are taken as independent. Of the first, and of steps on calibrated hosts, 0 to 0.
  std::vector<predict::Gain> gains;
  std::vector<DifferentKey> differ;
};

// Predicts each step, of at least two. Throws Error(input) as simulate() does.
SideBySide side_by_side(std::vector<Asked> asked, const SimulateOptions& options);

// Returns a table of the figures, one of the causes of each difference, which add up to it, and one of the settings
// that differ.
std::string text_of(const SideBySide& steps, std::size_t columns);
nlohmann::json json_of(const SideBySide& steps);  // `simulate` of several scenarios in docs/json.md

}  // namespace stretto::ask
