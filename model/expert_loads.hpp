#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace stretto {

// How a prediction distributes tokens over experts. A schedule leaves it open: every expert may get any number of rows.
struct ExpertLoads {
  enum class Kind : std::uint8_t {
    equal,     // every expert gets equally many
    forced,    // each token goes to experts at random (moe_router_force_load_balancing)
    natural,   // loads are drawn from a power law, as a router trained without balance leaves them
    measured,  // loads of `file`
  };
  Kind kind = Kind::equal;
  // Loads x of `natural` have the density x^−exponent from 1 token to 0.8 of all tokens (power_law of
  // ai-dynamo/aiconfigurator@095f58a5, which fits 1.01 to served models). Training balances loads: 0.25 is fitted to
  // one pair of steps of Qwen3-30B-A3B on 16 H100, 30.29 s with natural and 24.71 s with forced routing
  // (NVIDIA-NeMo/Megatron-Bridge@067f987d).
  double exponent = 0.25;
  std::string file = {};                           // CSV with the columns expert, tokens and, if present, layer
  std::vector<std::vector<double>> measured = {};  // [layer of the file][expert] tokens
};
const char* name_of(ExpertLoads::Kind kind);  // "equal", …

// Returns the rows of the rank that gets most of them over the mean of `ranks`. Each rank has experts / ranks in
// order: in expectation, and over the measured layers on average. `tokens` are those of all ranks, and each goes to
// `topk` of the experts. With random loads it is the mean of a fixed number of draws, equal in every run.
double most_over_mean(const ExpertLoads& loads, std::int64_t experts, std::int64_t topk, double tokens,
                      std::int64_t ranks);

// Reads loads.file, a path. Throws Error(input) for a file without a positive load, or of another number of experts.
void read_measured(ExpertLoads& loads, std::int64_t experts);

}  // namespace stretto
