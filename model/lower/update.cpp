#include "model/lower/update.hpp"

#include <utility>

#include "model/lower/builder.hpp"

namespace stretto {
namespace {

std::int64_t elements_of(const View& view) { return view.rows * view.cols; }

}  // namespace

Operation sum_over_tp(std::string name, const ParameterClass& of, View gradient) {
  const std::int64_t elements = elements_of(gradient);
  return collective_operation(std::move(name), of.tensor, CollectiveKind::all_reduce, elements, Phase::grad_sync,
                              {accumulate(std::move(gradient))});
}

Operation cast_gradient(std::string name, const UpdateContext& context, View from, View to) {
  return {std::move(name),
          Cast{elements_of(from)},
          context.compute,
          Phase::grad_sync,
          {read(std::move(from)), write(std::move(to))}};
}

Operation reduce_gradient(const std::string& suffix, const ParameterClass& of, View whole, View own) {
  const std::int64_t elements = elements_of(whole);
  if (of.shards == 1)
    return collective_operation("dp.all_reduce" + suffix, of.data, CollectiveKind::all_reduce, elements,
                                Phase::grad_sync, {accumulate(std::move(whole))});
  return collective_operation("dp.reduce_scatter" + suffix, of.data, CollectiveKind::reduce_scatter, elements,
                              Phase::grad_sync, {read(std::move(whole)), write(std::move(own))});
}

Operation reduce_instances(std::string name, const ParameterClass& of, View own) {
  const std::int64_t elements = elements_of(own);
  return collective_operation(std::move(name), of.instances, CollectiveKind::all_reduce, elements, Phase::grad_sync,
                              {accumulate(std::move(own))});
}

Operation sum_squares(const std::string& suffix, const UpdateContext& context, const ParameterClass& of, View own) {
  return {"norm.sum_squares" + suffix,
          SumSquares{elements_of(own), of.copies()},
          context.compute,
          Phase::optimizer,
          {read(std::move(own)), accumulate(context.norm_squared)}};
}

Operation gather_parameters(std::string name, const Group& group, View own, View whole) {
  const std::int64_t elements = elements_of(whole);
  return collective_operation(std::move(name), group, CollectiveKind::all_gather, elements, Phase::param_sync,
                              {read(std::move(own)), write(std::move(whole))});
}

Operation update_shard(const std::string& suffix, const UpdateContext& context, const ParameterClass& of,
                       OwnShard shard) {
  AdamW work{elements_of(shard.m), std::move(shard.decayed), of.shards, shard.master.has_value(),
             of.shard(),           shard.remainders};
  std::vector<Access> accesses = {
      read(shard.gradient), read(context.norm_squared),
      read(context.hyper),  shard.master && !shard.remainders ? write(shard.parameter) : accumulate(shard.parameter),
      accumulate(shard.m),  accumulate(shard.v)};
  if (shard.master) accesses.push_back(accumulate(*shard.master));
  return {"adamw" + suffix, std::move(work), context.compute, Phase::optimizer, std::move(accesses)};
}

}  // namespace stretto
