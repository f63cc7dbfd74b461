#include "model/lower/parameters.hpp"

#include <map>
#include <string>

#include "model/lower/builder.hpp"
#include "model/lower/sharding.hpp"

namespace stretto {
namespace {

// Buckets of the parts for which `replicated` holds; entries are indices into `parts`.
void add_buckets(const std::vector<Parameter>& parts, bool replicated, std::int64_t tp, std::int64_t bucket_size,
                 std::int64_t dp, std::vector<Bucket>& buckets) {
  std::vector<Parameter> chosen;
  std::vector<std::size_t> index;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (is_replicated(parts[i], tp) != replicated) continue;
    chosen.push_back(parts[i]);
    index.push_back(i);
  }
  for (Bucket& bucket : make_buckets(chosen, bucket_size, dp)) {
    for (BucketEntry& entry : bucket.entries) entry.parameter = index[entry.parameter];
    bucket.replicated = replicated;
    buckets.push_back(std::move(bucket));
  }
}

}  // namespace

ModelParameters add_parameters(Schedule& schedule, const Scenario& scenario, Lowered& lowered) {
  const std::int64_t dp = scenario.parallel.data_parallel_size, tp = scenario.parallel.tensor_model_parallel_size;
  ModelParameters result;
  for (const Parameter& whole : parameters(scenario.model)) result.parts.push_back(part_of(whole, tp));
  std::int64_t bucket_size = 0;  // one bucket
  if (scenario.overlap.overlap_grad_reduce && dp > 1)
    bucket_size = scenario.overlap.bucket_size > 0 ? scenario.overlap.bucket_size : default_bucket_size(dp);
  for (const bool replicated : {false, true})
    add_buckets(result.parts, replicated, tp, bucket_size, dp, lowered.buckets);

  struct Family {
    const Parameter* shape = nullptr;
    std::vector<TensorPlace> parameter, gradient;
  };
  std::map<std::string, Family> families;
  for (std::size_t b = 0; b < lowered.buckets.size(); ++b) {
    const std::string suffix = ".b" + std::to_string(b);
    const Bucket& bucket = lowered.buckets[b];
    BucketOps ops;
    ops.parameter =
        add_storage(schedule, "parameters" + suffix, schedule.compute_dtype, BufferKind::parameter, bucket.elements);
    ops.gradient =
        add_storage(schedule, "gradients" + suffix, schedule.compute_dtype, BufferKind::gradient, bucket.elements);
    lowered.bucket_ops.push_back(ops);
    for (const BucketEntry& entry : bucket.entries) {
      const Parameter& p = result.parts[entry.parameter];
      Family& family = families[p.name];
      family.shape = &p;
      const std::size_t count = p.layer < 0 ? 1 : static_cast<std::size_t>(scenario.model.num_layers);
      family.parameter.resize(count);
      family.gradient.resize(count);
      family.parameter[p.layer < 0 ? 0 : p.layer] = {ops.parameter, entry.offset};
      family.gradient[p.layer < 0 ? 0 : p.layer] = {ops.gradient, entry.offset};
    }
  }
  for (auto& [name, family] : families) {
    result.tensors.parameter[name] =
        add_placed_tensor(schedule, name, family.shape->rows, family.shape->cols, std::move(family.parameter));
    result.tensors.gradient[name] =
        add_placed_tensor(schedule, "grad." + name, family.shape->rows, family.shape->cols, std::move(family.gradient));
  }
  return result;
}

std::vector<BucketTensors> add_bucket_tensors(Schedule& schedule, const Lowered& lowered, std::int64_t dp, bool casts) {
  std::vector<BucketTensors> result;
  for (std::size_t b = 0; b < lowered.buckets.size(); ++b) {
    const std::string suffix = ".b" + std::to_string(b);
    const std::int64_t elements = lowered.buckets[b].elements, shard = elements / dp;
    BucketTensors t;
    t.parameter =
        add_placed_tensor(schedule, "bucket.parameter" + suffix, 1, elements, {{lowered.bucket_ops[b].parameter, 0}});
    t.gradient =
        add_placed_tensor(schedule, "bucket.gradient" + suffix, 1, elements, {{lowered.bucket_ops[b].gradient, 0}});
    if (casts)
      t.low = add_tensor(schedule, "bucket.gradient_bf16" + suffix, Dtype::bf16, BufferKind::workspace, 1, elements);
    t.m = add_tensor(schedule, "adam.m" + suffix, schedule.compute_dtype, BufferKind::optimizer_state, 1, shard);
    t.v = add_tensor(schedule, "adam.v" + suffix, schedule.compute_dtype, BufferKind::optimizer_state, 1, shard);
    result.push_back(t);
  }
  return result;
}

std::vector<AdamW::Range> decayed_ranges(const Bucket& bucket, const std::vector<Parameter>& parts) {
  std::vector<AdamW::Range> ranges;
  for (const BucketEntry& entry : bucket.entries)
    if (parts[entry.parameter].decayed)
      ranges.push_back({entry.offset, entry.offset + parts[entry.parameter].elements()});
  return ranges;
}

}  // namespace stretto
