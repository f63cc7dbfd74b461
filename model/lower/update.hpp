#pragma once
#include <optional>
#include <string>
#include <vector>

#include "model/lower/parameter_class.hpp"

namespace stretto {

// The operations of an update, reduce → norm → step → gather, of a bucket or of a unit. The caller names their operands
// and says when they run. `whole` is a tensor that `shards` ranks of the class cut, `own` the rank's shard of it.

// Data that updates of all classes share.
struct UpdateContext {
  LaneId compute = 0;
  View norm_squared, hyper;
};

// Sums gradients over tensor-parallel ranks in place, where each rank has only the terms of its tokens.
Operation sum_over_tp(std::string name, const ParameterClass& of, View gradient);
// Copies `from` in the type of `to`.
Operation cast_gradient(std::string name, const UpdateContext& context, View from, View to);
// Sums `whole` over the ranks of `data`: into `own`, or in place where the optimizer's state has one shard.
Operation reduce_gradient(const std::string& suffix, const ParameterClass& of, View whole, View own);
// Sums `own` across instances of the optimizer.
Operation reduce_instances(std::string name, const ParameterClass& of, View own);
Operation sum_squares(const std::string& suffix, const UpdateContext& context, const ParameterClass& of, View own);
Operation gather_parameters(std::string name, const Group& group, View own, View whole);

// A shard as AdamW uses it; model/ops/adamw.hpp has the operands. With `master` the parameter is only written,
// rounded from the master, unless the master has only the `remainders`.
struct OwnShard {
  View gradient, parameter, m, v;
  std::optional<View> master;
  std::vector<AdamW::Range> decayed;  // ranges of the whole
  bool remainders = false;
};
Operation update_shard(const std::string& suffix, const UpdateContext& context, const ParameterClass& of,
                       OwnShard shard);

}  // namespace stretto
