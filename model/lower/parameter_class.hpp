#pragma once
#include <functional>
#include <string>
#include <vector>

#include "model/lower/groups.hpp"
#include "model/transformer.hpp"

namespace stretto {

// A class of parameters: all whose gradients are summed over the same ranks and held by the same ranks. Every bucket
// and every FSDP unit is of one class. Parameters with another group of ranks, such as experts, are one more class in
// the list.
struct ParameterClass {
  std::string suffix;                           // suffix for names of units and of gradient sums
  std::function<bool(const Parameter&)> holds;  // tests a whole parameter, or a rank's cut of it
  // Ranks that have equal parameters: inside an instance of the optimizer, for gathers of units, across instances.
  Group data, gather, instances;
  // Tensor-parallel ranks that have equal parameters. With `sums_over_tp` each has only the gradients of its tokens or
  // heads, which must be summed.
  Group tensor;
  bool sums_over_tp = false;
  bool is_tied = false;     // the first and the last pipeline stage have equal parameters,
  Group tied;               // whose gradients this group sums; lower_plain() makes the group
  std::int64_t shards = 1;  // shards of the optimizer's state: data.size, or 1 where every rank has all of it

  bool reduces() const { return data.exists(); }
  Expr shard() const { return shards > 1 ? data.place : Expr(0); }  // the shard that the rank updates
  // Returns how many ranks have equal shards; the norm counts the shard once.
  std::int64_t copies() const { return data.size * instances.size / shards * tensor.size * tied.size; }
};

// Returns the classes of a model, in the order of their buckets: parameters that tensor parallelism cuts; parameters
// that all tensor-parallel ranks hold; among these the ones that ranks use only for their own heads; a tied embedding,
// whose copies are on two stages; and experts, where they do not lie on the ranks as dense layers do.
std::vector<ParameterClass> parameter_classes(Schedule& schedule, const Scenario& scenario, const Groups& groups);

// Returns the index of the last class that holds the parameter.
std::size_t class_of(const std::vector<ParameterClass>& classes, const Parameter& parameter);

}  // namespace stretto
