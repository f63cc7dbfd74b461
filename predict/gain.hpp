#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/framework.hpp"
#include "model/scenario.hpp"
#include "predict/quick_step.hpp"
#include "predict/spread.hpp"
#include "sim/platform.hpp"

namespace stretto::predict {

// One yaml on two software stacks differs by 5.5 % of its step (median of nine; NVIDIA/Megatron-LM#5728): what two
// overlap modes differ by less is no reason to choose one, whatever its interval.
constexpr double kBetweenStacks = 0.05;

// The kinds of what is not known of a gain.
enum class Doubt : std::uint8_t {
  nothing,
  host,          // times of the process that issues operations: the factor of Python, kinds, C++
  interference,  // how much kernels and communication slow each other
  queue,         // whether one hardware queue serialises reductions of gradients
  profile,       // which of several releases or libraries of the framework is meant
  exchange,      // rates of exchanges of experts' rows
  network,       // rates and latencies of other communication
  kernels,       // times of kernels alone
  stacks,        // two runs of one setting
};
// Returns what decides, and what would settle it: "your release's host decides; a 30 s trace settles it". "" of
// nothing.
std::string words_of(Doubt doubt);

// The saving of one step over another, as a share of the other, and its interval of 80 %. Negative: it costs that.
struct Gain {
  double saved = 0, low = 0, high = 0;
  Doubt decides = Doubt::nothing;  // the part that makes the interval widest
};

// All that is not known of a step on a published GPU, by which gains get their intervals. Each part is simulated on
// both sides of a gain, so that what changes both cancels:
//
//   constants      of platform and profile with an interval of their own (base/quantity.hpp): the host's and
//                  interference's to both ends, because steps have cliffs where the host becomes the bound; all others
//                  to the farther end, which stands for both
//   queue          with one hardware queue, reductions of gradients serialised or not ([host] reductions_serialise)
//   profile        the profile's `could_mean`, releases or libraries with other hosts and kernels
//   both sides     kBetweenContainers each, independent of each other
//
// Changes of the logarithm of the ratio add in quadrature (GUM, JCGM 100:2008, 5.1.2); profiles are choices and no
// errors, so the interval covers those of all of them. Coverage, the collectives that a framework's overlap hides, is
// the profile's data with its source ([scenario.overlap]) and adds nothing. Thread-safe.
class Doubts {
 public:
  // Throws Error(input) where a profile's file is gone or wrong. The platform must be a published GPU.
  Doubts(const Scenario& scenario, const sim::Platform& platform);

  // Returns ln of a step's seconds with the shipped constants, then with each doubt. `shipped_s`: the first. Costs that
  // a doubt does not change are not simulated again.
  std::vector<double> logs(const QuickStep& step, double shipped_s) const;
  // Returns what the step of `to` saves of that of `from`.
  Gain gain(const std::vector<double>& from, const std::vector<double>& to) const;

 private:
  struct Part {
    Doubt kind = Doubt::nothing;
    std::size_t constant = 0;            // of constants_of()
    double value = 0;                    // that it gets
    bool is_both = false;                // the change stands for one in the other direction too
    std::optional<Framework> framework;  // the profile in place of a constant
  };
  const sim::Platform& platform_;  // borrowed
  Framework framework_;
  std::vector<Part> parts_;
};

}  // namespace stretto::predict
