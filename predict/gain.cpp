#include "predict/gain.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/data_folder.hpp"
#include "base/parallel.hpp"
#include "model/framework_profile.hpp"
#include "predict/constants.hpp"

namespace stretto::predict {
namespace {

constexpr int kDoubts = static_cast<int>(Doubt::stacks) + 1;

// Names are places in files (predict/constants.hpp).
Doubt kind_of(const std::string& constant) {
  constexpr std::array kPlaces = {std::pair{"host.", Doubt::host},
                                  std::pair{"accelerator.beside_communication.", Doubt::interference},
                                  std::pair{"accelerator.communication_sms.", Doubt::interference},
                                  std::pair{"accelerator.token_exchange.", Doubt::exchange},
                                  std::pair{"accelerator.collective_", Doubt::network},
                                  std::pair{"kernels.collective_", Doubt::network},
                                  std::pair{"accelerator.network", Doubt::network},
                                  std::pair{"accelerator.nvlink.", Doubt::network}};
  for (const auto& [place, kind] : kPlaces)
    if (constant.starts_with(place)) return kind;
  return Doubt::kernels;
}

// Returns whether sources leave open if one hardware queue serialises reductions.
bool doubts_queue(const Scenario& scenario, const Framework& framework) {
  const Quantity& serialise = framework.host.reductions_serialise;
  return scenario.cluster.cuda_device_max_connections == 1 && serialise.low < 0.5 && serialise.high >= 0.5;
}

}  // namespace

std::string words_of(Doubt doubt) {
  switch (doubt) {
    case Doubt::nothing:
      return "";
    case Doubt::host:
      return "your release's host decides; a 30 s trace settles it";
    case Doubt::interference:
      return "how much kernels and communication slow each other decides; a 30 s trace settles it";
    case Doubt::queue:
      return "whether one hardware queue serialises reductions decides; a 30 s trace settles it";
    case Doubt::profile:
      return "which release or library you run decides; name its profile";
    case Doubt::exchange:
      return "the rate of your exchanges of experts' rows decides; a 30 s trace settles it";
    case Doubt::network:
      return "the rate of your collectives decides; a log of nccl-tests settles it";
    case Doubt::kernels:
      return "the times of your kernels decide; a 30 s trace settles it";
    case Doubt::stacks:
      return "only what two runs of one setting differ by is open; a benchmark of both settles it";
  }
  return "";
}

Doubts::Doubts(const Scenario& scenario, const sim::Platform& platform)
    : platform_(platform), framework_(scenario.framework) {
  sim::Accelerator accelerator = *platform.accelerator;
  const std::vector<Constant> constants = constants_of(accelerator, framework_);
  for (std::size_t i = 0; i < constants.size(); ++i) {
    if (!constants[i].has_interval()) continue;
    const Quantity& quantity = *constants[i].quantity;
    const Doubt kind = kind_of(constants[i].name);
    if (kind == Doubt::host || kind == Doubt::interference) {
      parts_.push_back({kind, i, quantity.low, false, {}});
      parts_.push_back({kind, i, quantity.high, false, {}});
    } else {
      const bool is_high = quantity.high - quantity.value > quantity.value - quantity.low;
      parts_.push_back({kind, i, is_high ? quantity.high : quantity.low, true, {}});
    }
  }
  if (doubts_queue(scenario, framework_)) parts_.push_back({Doubt::queue, 0, 0, false, {}});
  for (const std::string& name : profiles_meant(framework_))
    parts_.push_back({Doubt::profile, 0, 0, false, read_framework_profile(data_file("profiles", name)).framework});
}

std::vector<double> Doubts::logs(const QuickStep& step, double shipped_s) const {
  std::vector<double> logs(parts_.size() + 1, std::log(shipped_s));
  const sim::Costs shipped = step.costs(platform_, framework_);
  parallel_each(std::ssize(parts_), [&](std::int64_t at) {
    const Part& part = parts_[static_cast<std::size_t>(at)];
    double& log = logs[static_cast<std::size_t>(at) + 1];
    if (part.kind == Doubt::queue) {
      Scenario other = step.scenario();
      Quantity& serialise = other.framework.host.reductions_serialise;
      serialise.value = serialise.value >= 0.5 ? 0 : 1;
      log = std::log(QuickStep(other).step_s(platform_, other.framework));
      return;
    }
    sim::Platform platform = platform_;
    Framework framework = part.framework ? *part.framework : framework_;
    if (!part.framework) constants_of(*platform.accelerator, framework)[part.constant].quantity->value = part.value;
    if (const sim::Costs costs = step.costs(platform, framework); costs != shipped)
      log = std::log(step.step_s(platform, framework, {}, &costs));
  });
  return logs;
}

Gain Doubts::gain(const std::vector<double>& from, const std::vector<double>& to) const {
  const double ratio = to[0] - from[0];
  std::array<double, kDoubts> faster{}, slower{};  // by kind, of the logarithm of the ratio
  const auto add = [](double& sum, double change) { sum = std::hypot(sum, change); };
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const auto kind = static_cast<std::size_t>(parts_[i].kind);
    const double change = to[i + 1] - from[i + 1] - ratio;
    if (parts_[i].kind == Doubt::profile) {
      slower[kind] = std::max(slower[kind], change);
      faster[kind] = std::max(faster[kind], -change);
      continue;
    }
    if (parts_[i].is_both || change > 0) add(slower[kind], change);
    if (parts_[i].is_both || change < 0) add(faster[kind], change);
  }
  constexpr auto kStacks = static_cast<std::size_t>(Doubt::stacks), kProfile = static_cast<std::size_t>(Doubt::profile);
  faster[kStacks] = slower[kStacks] = std::hypot(kBetweenContainers, kBetweenContainers);
  double less = 0, more = 0;
  Gain gain;
  double widest = 0;
  for (std::size_t kind = 0; kind < kDoubts; ++kind) {
    if (kind != kProfile) {
      add(less, slower[kind]);
      add(more, faster[kind]);
    }
    if (const double width = slower[kind] + faster[kind]; width > widest) {
      widest = width;
      gain.decides = static_cast<Doubt>(kind);
    }
  }
  gain.saved = -std::expm1(ratio);
  gain.low = -std::expm1(ratio + less + slower[kProfile]);
  gain.high = -std::expm1(ratio - more - faster[kProfile]);
  return gain;
}

}  // namespace stretto::predict
