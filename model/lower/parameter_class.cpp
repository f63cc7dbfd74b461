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
  replicated.alike = groups.tp;
  replicated.sums_alike = parallel.sequence_parallel && groups.tp.exists();
  // Under sequence parallelism these parameters are like other replicated ones.
  ParameterClass of_heads = replicated;
  of_heads.suffix = ".heads";
  of_heads.holds = [tp = groups.tp.size, sums = replicated.sums_alike](const Parameter& p) {
    return is_replicated(p, tp) && p.is_for_heads && !sums;
  };
  of_heads.sums_alike = groups.tp.exists();
  tied.suffix = ".tied";
  tied.holds = [ties = ties_across_stages(scenario)](const Parameter& p) {
    return ties && (p.name == "wte.weight" || p.name == kTiedHeadWeight);
  };
  tied.is_tied = true;
  return {std::move(own), std::move(replicated), std::move(of_heads), std::move(tied)};
}

std::size_t class_of(const std::vector<ParameterClass>& classes, const Parameter& parameter) {
  std::size_t c = classes.size() - 1;
  while (!classes[c].holds(parameter)) --c;
  return c;
}

}  // namespace stretto
