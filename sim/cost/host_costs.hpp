#pragma once
#include "model/framework.hpp"
#include "model/scenario.hpp"
#include "sim/cost/cost.hpp"
#include "sim/platform.hpp"

namespace stretto::sim {

// Returns how often Python issues an operation's kind (HostKind): once, or more often for a softmax that the framework
// leaves to PyTorch, for the heads of latent attention and for a router whose kind the profile has no time of, all of
// which are many operations of PyTorch; never for codes, whose launches count.
double issues_of(const Framework& framework, const Schedule& schedule, const Operation& operation);
// Returns how many kernels are launched besides: one for each product in the loop over experts, or one for all of them
// with `fuses_experts`, and those that make codes.
double launches_of(const Operation& operation, bool fuses_experts = false);

// Returns what it takes the process on this CPU to issue the schedule's operations; empty where the profile has no
// host.
HostCosts host_costs(const Schedule& schedule, const Framework& framework, const Training& training, const Cpu& cpu,
                     bool fuses_experts);

}  // namespace stretto::sim
