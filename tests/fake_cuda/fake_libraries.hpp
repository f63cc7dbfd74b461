#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/schedule/work.hpp"

namespace stretto::cuda {

// An attention operation that cuDNN would have run.
struct AttentionLaunch {
  Pass pass = Pass::forward;
  const std::byte* workspace = nullptr;
  const void* stream = nullptr;
};
// The seed from which attention with dropout would have drawn its masks.
struct AttentionSeed {
  Pass pass = Pass::forward;
  std::int64_t seed = 0, offset = 0;
};
// While a test points it to a list, the fake cuDNN has a plan for every attention on this thread, and lists its runs.
extern thread_local std::vector<AttentionLaunch>* attention_launches;
// While it also points to a list: gets the seeds of every run, including runs of graphs.
extern thread_local std::vector<AttentionSeed>* attention_seeds;
// While it is also set: returns whether there is a plan for this attention.
extern thread_local bool (*fake_cudnn_has_plan)(const Attention& work);

}  // namespace stretto::cuda
