#pragma once
// "Trains what a single rank trains": one runner for tables of layouts, modes and models.
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/training.hpp"

namespace stretto::testing {

// Returns the training of `scenario` by one rank, without parallelism, overlap, recomputation and fusions.
Scenario on_single_rank(Scenario scenario, const std::string& precision);

// Trains layouts in fp64 and compares each with a single rank's training of its model, which it trains once for each
// model and batch.
class SingleRank {
 public:
  // `change` is called for each tensor of the initial weights, in the layout and on the single rank.
  explicit SingleRank(int steps = 2, ChangeWeights change = {}) : steps_(steps), change_(std::move(change)) {}

  // CHECKs loss and norm of every step and the last gradients within 1e-10, parameters within 1e-8, and that every rank
  // has allocated its plan's bytes.
  void check(const Scenario& scenario, bool threaded = false);
  // CHECKs that the first loss in bf16 is within 2 % of a single rank's.
  void check_bf16(Scenario scenario);

 private:
  const Trained& reference(const Scenario& scenario);

  int steps_;
  ChangeWeights change_;
  std::map<std::string, Trained> known_;  // [text of the model and the batch]
};

// Makes the scenario of a layout in a mode.
using ScenarioOf = std::function<Scenario(const Layout&, const std::string& mode)>;

// Checks the layouts in every mode that acts in them, or those of them that `cases` takes.
void check_every_mode(SingleRank& single, std::span<const Layout> layouts, const ScenarioOf& scenario_of,
                      bool threaded = false);

// Checks threads, both kinds of recomputation with and without whole layers and fusions, shards of units with and
// without their overlap, and that bf16 has about the loss of a single rank.
void check_what_goes_with(SingleRank& single, const ScenarioOf& scenario_of);

// Checks lists of modules that are computed again, with and without whole functions, and that plans need no more
// memory, and less where `saves`.
void check_recomputed(SingleRank& single, const ScenarioOf& scenario_of,
                      const std::vector<std::vector<Recompute::Module>>& lists, bool saves);

// Checks that the FLOPs of a step, of one rank, are those of its products.
void check_flops(const Scenario& scenario);

}  // namespace stretto::testing
