#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "sim/inputs.hpp"
#include "sim/rounds.hpp"

namespace stretto::sim {

// How a steady step changes with every cost that it was simulated with: its exact derivatives, as long as no two causes
// of a time change places. Found by one walk back through the recorded step, from its end to causes and their causes
// (the reverse mode of automatic differentiation: Griewank and Walther, Evaluating Derivatives, 2008, chapter 3), so
// that all costs take as long as one.
struct StepGradient {
  std::vector<double> computes;  // [OpId] per picosecond of Demand::alone
  std::vector<double> moves;     // [OpId] per picosecond of CollectiveCost::movement
  // [OpId][class of computation] picoseconds per unit of KernelInterference::slows and ::slowed
  std::vector<std::array<double, kDemandClasses>> slows, slowed;
  std::vector<std::vector<double>> issued, awaited;  // [program][operation] per picosecond of the host (FlatOp)

  // Returns how much longer the step is with other costs of its operations, in picoseconds, to first order.
  double change(const OpCosts& from, const OpCosts& to) const;
  // Returns the same for another host; `from` and `to` are flat forms of the step's programs.
  double change(const SimInputs& inputs, const std::vector<std::shared_ptr<const FlatProgram>>& from,
                const std::vector<std::shared_ptr<const FlatProgram>>& to) const;
};

// Returns the gradient of a step of a published GPU, or of one with `rounds` more of its round. The timeline is that of
// a steady step (SimResult::steady), and has the rows of all of `inputs.programs`. nullopt where the rows do not say
// what they follow from, with the reason in `why_not`.
std::optional<StepGradient> gradient_of(const SimInputs& inputs, const Timeline& timeline,
                                        const std::optional<Round>& round, std::int64_t rounds,
                                        std::string* why_not = nullptr);

}  // namespace stretto::sim
