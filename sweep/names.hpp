#pragma once
#include <string>
#include <vector>

#include "model/scenario/keys.hpp"

namespace stretto::sweep {

// Names of axes. An axis is known by its key in full ("parallel.tensor_model_parallel_size"); people may write the key
// without its section, or a short name ("tp"). Two short names stand for several axes: "layout" and "overlap".

constexpr const char *kTp = "parallel.tensor_model_parallel_size", *kPp = "parallel.pipeline_model_parallel_size",
                     *kVp = "parallel.virtual_pipeline_model_parallel_size", *kCp = "parallel.context_parallel_size",
                     *kEp = "parallel.expert_model_parallel_size", *kEtp = "parallel.expert_tensor_parallel_size",
                     *kDp = "parallel.data_parallel_size", *kMicroBatch = "training.micro_batch_size",
                     *kBatch = "training.global_batch_size", *kRecompute = "training.recompute_granularity",
                     *kSharding = "parallel.data_parallel_sharding_strategy", *kSchedule = "parallel.pipeline_schedule",
                     *kGpus = "gpus", *kPlatform = "platform";
constexpr const char *kLayout = "layout", *kOverlap = "overlap";

// Keys that "layout" stands for, and that are searched where nobody names others.
const std::vector<std::string>& layout_keys();

// Returns the key in full, or kLayout or kOverlap. Throws Error(input) with the nearest spelling, which names `place`.
std::string full_key(const std::string& given, const std::string& place);
// Returns the short name ("tp"), or the key without its section.
std::string short_name(const std::string& key);
// Returns the row of a key in full, which is neither gpus nor platform.
const ScenarioKey& row_of(const std::string& key);

// Returns whether an --over ("tp=2,4") says which layouts are searched.
bool says_layouts(const std::string& over);

}  // namespace stretto::sweep
