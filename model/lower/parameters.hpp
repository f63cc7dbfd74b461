#pragma once
#include <optional>
#include <vector>

#include "model/lower/blocks.hpp"
#include "model/lower/lower.hpp"
#include "model/scenario.hpp"

namespace stretto {

// The learnable arrays of all ranks.
struct ModelParameters {
  // parameters as tensor parallelism cuts them, chunk after chunk, each in registration order
  std::vector<Parameter> parts;
  ParameterTensors tensors;  // views of the buckets
  std::vector<bool> in_fp8;  // [bucket] it is gathered in fp8
};

// Name of the last stage's copy of a tied embedding's weight.
constexpr const char* kTiedHeadWeight = "head.wte.weight";
// Returns whether the head's weight is the embedding's, but on another stage.
bool ties_across_stages(const Scenario& scenario);

// The distribution of an array's initial elements: normal(mean, deviation). All styles use GPT-2's: matrices normal(0,
// init_method_std), the projections into the residual stream scaled by 1/sqrt(2 · layers); norm weights 1; biases 0.
struct Initial {
  double mean = 0, deviation = 0;
};
Initial initial_of(const Parameter& parameter, const Scenario& scenario);

// Adds the model's arrays, one for all layers that have it. Returns a piece without a place for each of `all`, the
// uncut parameters.
std::vector<StatePiece> add_model_arrays(StateMap& state, const std::vector<Parameter>& all, const Scenario& scenario);

// Cuts the model's parameters, lays them out in buckets and adds the buckets' storages. Fills `lowered.buckets`, the
// storages of `lowered.bucket_ops` and the schedule's state map, except its optimizer state. Every model chunk has
// buckets of its own, and a stage's buckets run from its last chunk to its first; only the first chunk of the first
// stage is cut into several buckets (Megatron-LM: elsewhere communication is cut by the chunks themselves). Parameters
// that all ranks of a tensor-parallel group hold, and a tied embedding, have buckets of their own after the others,
// because they are reduced, and count in the norm, differently (ParameterClass). With fp8_param_gather the weights of
// the layers' linear products (qkv, proj, fc1, fc2) come first, in buckets of their own, which are gathered in fp8; all
// other parameters are gathered in bf16. Megatron-LM does so too: TransformerEngine keeps only those four in fp8 ("Each
// dense layer has 4 GEMM weights: qkv, proj, fc1, fc2", tests/unit_tests/test_fp8_param.py), and parameters of another
// type have a buffer of their own (core/distributed/distributed_data_parallel.py, param_and_grad_dtype_to_params). A
// frozen base has no gradients.
ModelParameters add_parameters(Schedule& schedule, const Scenario& scenario, Lowered& lowered);

// The tensors of a bucket: the whole buffers, and the optimizer state of a shard, which is added to the state map.
struct BucketTensors {
  TensorId parameter = 0, gradient = 0, m = 0, v = 0;
  std::optional<TensorId> low;  // the gradient in bf16, in which it is reduced
  // terms of the gradient's shard in bf16, from all ranks that have one; buckets share the memory
  std::optional<TensorId> parts;
  std::optional<TensorId> fp8_shard, fp8;  // parameters as ScaledCast packs them, where they are gathered in fp8
  std::optional<TensorId> master;  // the parameters that the optimizer updates, where computation uses rounded ones
};
std::vector<BucketTensors> add_bucket_tensors(Schedule& schedule, const Scenario& scenario, const Lowered& lowered,
                                              const ModelParameters& parameters);

// Returns the ranges of the bucket to which weight decay applies.
std::vector<AdamW::Range> decayed_ranges(const Bucket& bucket, const std::vector<Parameter>& parts);

}  // namespace stretto
