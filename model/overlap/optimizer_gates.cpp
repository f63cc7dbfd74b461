#include "model/overlap/optimizer_gates.hpp"

#include <string>

namespace stretto {

void add_optimizer_gates(const Scenario& scenario, Gates& gates) {
  using P = OptimizerPrecision;
  const P& p = scenario.training.optimizer_precision;
  const Parallel& parallel = scenario.parallel;
  const char* knob = "use_precision_aware_optimizer";
  gates.of_training(knob, p.use_precision_aware_optimizer, "use_distributed_optimizer = true",
                    parallel.shards_optimizer(), "false", megatron("core/optimizer/__init__.py:1057"));
  gates.of_training(knob, p.use_precision_aware_optimizer, "precision = bf16",
                    scenario.training.compute_dtype() == Dtype::bf16, scenario.training.precision, kOwnGate,
                    "parameters in another type have no masters");
  const auto aware = [&](const char* of, bool asked, const char* line) {
    gates.of_training(of, asked, "use_precision_aware_optimizer = true", p.use_precision_aware_optimizer, "false",
                      megatron(std::string("core/optimizer/optimizer_config.py:") + line));
  };
  const bool has_bf16_gradients = p.main_grads_dtype != P::Gradients::fp32;
  aware("main_grads_dtype = bf16", has_bf16_gradients, "470");
  gates.of_training("main_grads_dtype = bf16", has_bf16_gradients, "grad_reduce_in_fp32 = false",
                    !scenario.overlap.grad_reduce_in_fp32, "true", megatron("arguments.py:1209"));
  const bool has_fp16_masters = p.main_params_dtype != P::Parameters::fp32;
  aware("main_params_dtype = fp16", has_fp16_masters, "473");
  gates.of_training("main_params_dtype = fp16", has_fp16_masters, "data_parallel_sharding_strategy no_shard or optim",
                    !parallel.shards_gradients(), name_of(parallel.data_parallel_sharding_strategy),
                    megatron("arguments.py:3687"), "Megatron-FSDP's masters have a type of their own");
  gates.of_training("main_params_dtype = fp16", has_fp16_masters, "fp8_param_gather = false",
                    !scenario.overlap.fp8_param_gather, "true", megatron("core/optimizer/distrib_optimizer.py:405"),
                    "shards of codes have no such masters");
  aware("exp_avg_dtype", p.exp_avg_dtype != P::Moment::fp32, "476");
  aware("exp_avg_sq_dtype", p.exp_avg_sq_dtype != P::Moment::fp32, "479");
}

}  // namespace stretto
