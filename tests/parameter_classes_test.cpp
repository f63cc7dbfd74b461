// Tests of a second class of parameters, over a group of its own, like future experts: buckets, units, shards and norms
// follow from the list of classes.
#include <catch2/catch.hpp>
#include <set>

#include "model/overlap/gates.hpp"
#include "model/schedule/derive.hpp"
#include "tests/training.hpp"

namespace stretto::testing {
namespace {

// Makes weights of the MLP a class of their own, over the same ranks with another communicator on another lane.
std::vector<ParameterClass> with_mlp_class(Schedule& schedule, const Scenario& scenario, const Groups& groups) {
  std::vector<ParameterClass> classes = parameter_classes(schedule, scenario, groups);
  ParameterClass mlp = classes.front();
  mlp.suffix = ".mlp";
  mlp.holds = [](const Parameter& p) { return p.name == "fc1.weight" || p.name == "fc2.weight"; };
  const auto add_like = [&](const Group& like, const std::string& name) {
    if (!like.exists()) return like;
    const std::vector<Coord> axes = schedule.communicators[like.communicator].axes;
    return add_group(schedule, name, axes, add_communication_lane(schedule, name));
  };
  mlp.data = add_like(groups.dp, "mlp");
  mlp.gather = add_like(groups.gather, "mlp.gather");
  mlp.instances = add_like(groups.instances, "mlp.instances");
  classes.push_back(mlp);
  return classes;
}

Schedule build_with(ClassesOf classes_of, const Scenario& scenario, const std::string& mode) {
  Lowered lowered = lower_plain(scenario, classes_of);
  const OverlapMode& overlap = find_overlap_mode(mode);
  if (overlap.rewrite) overlap.rewrite(lowered, scenario, gates_of(scenario));
  derive_waits(lowered.schedule, lowered.free);
  return std::move(lowered.schedule);
}

Trained train_classes(ClassesOf classes_of, const Scenario& scenario, const std::string& mode, bool threaded) {
  const Schedule schedule = build_with(classes_of, scenario, mode);
  const MemoryPlan plan = plan_memory(schedule);
  require_verified(schedule, &plan);
  return train_schedule(schedule, plan, scenario, 3, threaded);
}

}  // namespace

TEST_CASE("a second class of parameters, over a group of its own, trains what one class trains") {
  struct Case {
    Layout layout;
    Sharding sharding = Sharding::optim;
    std::int64_t instances = 1;
    std::string mode = "plain";
    std::string precision = "fp64";
  };
  const Case cases[] = {
      {{4, 1}},
      {{2, 1}, Sharding::no_shard},
      {{2, 1}, Sharding::optim, 1, "overlap_param_gather", "bf16"},
      {{4, 1}, Sharding::optim, 2, "overlap_grad_reduce"},
      {{2, 2, true}, Sharding::optim, 1, "overlap_param_gather"},
      {{2, 2, true, 2}, Sharding::optim, 1, "overlap_grad_reduce"},
      {{2, 1}, Sharding::optim_grads},
      {{4, 1}, Sharding::optim_grads_params, 2, "fsdp_comm_overlap"},
      {{2, 2, true}, Sharding::optim_grads_params, 1, "fsdp_comm_overlap", "bf16"},
      {{2, 1, false, 2}, Sharding::optim_grads_params, 1, "fsdp_comm_overlap"},
  };
  Cases some;
  for (const Case& c : cases)
    for (const bool threaded : {false, true}) {
      if (!some.takes_next()) continue;
      INFO(c.layout.text() << ", " << name_of(c.sharding) << ", " << c.mode << (threaded ? ", threads" : ""));
      Scenario scenario = layout_scenario(c.layout, c.mode, true, c.precision);
      scenario.parallel.data_parallel_sharding_strategy = c.sharding;
      scenario.parallel.num_distributed_optimizer_instances = c.instances;
      scenario.training.clip_grad = 0;  // the norm is summed in another order
      const Trained one = train_classes(parameter_classes, scenario, c.mode, threaded),
                    two = train_classes(with_mlp_class, scenario, c.mode, threaded);
      CHECK(two.losses == one.losses);
      CHECK(same_bits(two.gradients, one.gradients));
      CHECK(same_bits(two.parameters, one.parameters));
      for (std::size_t step = 0; step < one.norms.size(); ++step)
        CHECK(two.norms[step] == Approx(one.norms[step]).epsilon(1e-12));
    }
}

TEST_CASE("buckets of a second class are reduced and gathered by its group alone") {
  const Scenario scenario = layout_scenario({4, 1}, "overlap_grad_reduce", false);
  const Lowered lowered = lower_plain(scenario, with_mlp_class);
  std::set<std::size_t> met;
  for (std::size_t b = 0; b < lowered.buckets.size(); ++b) {
    const ParameterClass& of = lowered.classes[lowered.buckets[b].parameter_class];
    met.insert(lowered.buckets[b].parameter_class);
    for (const OpId op : {lowered.bucket_ops[b].reduction, lowered.bucket_ops[b].all_gather}) {
      const Operation& operation = lowered.schedule.operations[op];
      CHECK(operation.lane == of.data.lane);
      CHECK(communicator_of(operation.work) == of.data.communicator);
    }
  }
  CHECK(met == std::set<std::size_t>{0, lowered.classes.size() - 1});  // with_mlp_class adds the last one
}

}  // namespace stretto::testing
