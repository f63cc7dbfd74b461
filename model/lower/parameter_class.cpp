#include "model/lower/parameter_class.hpp"

#include "model/lower/parameters.hpp"
#include "model/lower/sharding.hpp"

namespace stretto {

std::vector<ParameterClass> parameter_classes(Schedule&, const Scenario& scenario, const Groups& groups) {
  const Parallel& parallel = scenario.parallel;
  ParameterClass own;
  own.holds = [](const Parameter&) { return true; };
  own.data = groups.dp;
  own.gather = groups.gather;
  own.instances = groups.instances;
  own.shards = parallel.optimizer_shards();
  ParameterClass replicated = own, tied = own;
  replicated.suffix = ".replicated";
  replicated.holds = [tp = groups.tp.size](const Parameter& p) { return is_replicated(p, tp); };
  replicated.tensor = groups.tp;
  replicated.sums_over_tp = parallel.sequence_parallel && groups.tp.exists();
  // Under sequence parallelism these parameters are like other replicated ones.
  ParameterClass of_heads = replicated;
  of_heads.suffix = ".heads";
  of_heads.holds = [tp = groups.tp.size, sums = replicated.sums_over_tp](const Parameter& p) {
    return is_replicated(p, tp) && p.is_for_heads && !sums;
  };
  of_heads.sums_over_tp = groups.tp.exists();
  tied.suffix = ".tied";
  tied.holds = [ties = ties_across_stages(scenario)](const Parameter& p) {
    return ties && (p.name == "wte.weight" || p.name == kTiedHeadWeight);
  };
  tied.is_tied = true;
  std::vector<ParameterClass> classes = {own, std::move(replicated), std::move(of_heads), std::move(tied)};
  if (!scenario.model.experts.any() || !parallel.experts_apart()) return classes;
  // Gradients of experts are sums over the tokens of all ranks that send them some; other ranks have equal experts.
  ParameterClass experts = own;
  experts.suffix = ".experts";
  experts.holds = [](const Parameter& p) { return p.experts > 0; };
  experts.data = groups.edp;
  experts.gather = groups.edp_gather;
  experts.instances = {};
  experts.shards = parallel.shards_optimizer() ? parallel.expert_dp() : 1;
  classes.push_back(std::move(experts));
  return classes;
}

std::size_t class_of(const std::vector<ParameterClass>& classes, const Parameter& parameter) {
  std::size_t c = classes.size() - 1;
  while (!classes[c].holds(parameter)) --c;
  return c;
}

}  // namespace stretto
