#pragma once
#include <functional>
#include <string>
#include <vector>

#include "model/lower/groups.hpp"
#include "model/transformer.hpp"

namespace stretto {

// Parameters whose gradients take one way: which ranks sum them, and which ranks have them. Every bucket and every FSDP
// unit is of one class. Parameters that another group of ranks shares, such as experts, are a class more in the list.
struct ParameterClass {
  std::string suffix;                           // on names of units and of sums of gradients
  std::function<bool(const Parameter&)> holds;  // of a whole parameter, or of its part on a rank
  // Ranks that have the same parameters: inside an instance of the optimizer, for gathers of units, across instances.
  Group data, gather, instances;
  // Tensor-parallel ranks that have the same parameters; with `sums_alike` each has the gradients of its tokens or
  // heads only.
  Group alike;
  bool sums_alike = false;
  bool is_tied = false;     // the first and the last pipeline stage have the same parameters,
  Group tied;               // and sum their gradients; lower_plain() makes this group
  std::int64_t shards = 1;  // of the optimizer's state: data.size, or 1 where every rank has all of it

  bool reduces() const { return data.exists(); }
  Expr shard() const { return shards > 1 ? data.place : Expr(0); }  // the one that the rank updates
  // Ranks that have the same shard: it counts in the norm once.
  std::int64_t copies() const { return data.size * instances.size / shards * alike.size * tied.size; }
};

// Classes of a dense model, in the order in which their buckets lie: what tensor parallelism cuts; what all
// tensor-parallel ranks hold alike; of these what ranks use for their own heads; a tied embedding, of which two stages
// have a copy.
std::vector<ParameterClass> parameter_classes(Schedule& schedule, const Scenario& scenario, const Groups& groups);

// The last class that holds the parameter, as an index.
std::size_t class_of(const std::vector<ParameterClass>& classes, const Parameter& parameter);

}  // namespace stretto
