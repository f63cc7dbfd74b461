#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/schedule/work.hpp"

namespace stretto::cuda {

// An operation of attention that cuDNN would have run.
struct AttentionLaunch {
  Pass pass = Pass::forward;
  const std::byte* workspace = nullptr;
  const void* stream = nullptr;
};
// What attention with dropout would have drawn its masks by.
struct AttentionSeed {
  Pass pass = Pass::forward;
  std::int64_t seed = 0, offset = 0;
};
// While a test points it to a list, the fake cuDNN has a plan for every attention on this thread, and lists what it
// runs.
extern thread_local std::vector<AttentionLaunch>* attention_launches;
// Then, when not null: gets those of every run, those of graphs too.
extern thread_local std::vector<AttentionSeed>* attention_seeds;
// Then, when not null: whether it has one for this attention.
extern thread_local bool (*fake_cudnn_has_plan)(const Attention& work);

}  // namespace stretto::cuda
