#pragma once
#include <vector>

#include "model/lower/blocks.hpp"
#include "model/lower/lower.hpp"
#include "model/scenario.hpp"

namespace stretto {

// The learnable arrays of one rank.
struct ModelParameters {
  std::vector<Parameter> parts;  // in registration order, as tensor parallelism cuts them
  ParameterTensors tensors;      // views of the buckets
};

// Cuts the model's parameters, lays the parts out in buckets and adds the buckets' storages. Fills `lowered.buckets`
// and the storages of `lowered.bucket_ops`. Parameters that all ranks of a tensor-parallel group hold alike have
// buckets of their own behind the others: they are reduced, and count in the norm, differently.
ModelParameters add_parameters(Schedule& schedule, const Scenario& scenario, Lowered& lowered);

// Whole buckets as tensors, and the optimizer state of a shard.
struct BucketTensors {
  TensorId parameter = 0, gradient = 0, m = 0, v = 0;
  TensorId low = 0;  // the gradient in bf16, with `casts`
};
std::vector<BucketTensors> add_bucket_tensors(Schedule& schedule, const Lowered& lowered, std::int64_t dp, bool casts);

// Weight decay applies to these elements of the bucket.
std::vector<AdamW::Range> decayed_ranges(const Bucket& bucket, const std::vector<Parameter>& parts);

}  // namespace stretto
