#pragma once
#include <cstddef>
#include <vector>

namespace stretto::cuda {

// An operation of attention that cuDNN would have run.
struct AttentionLaunch {
  const std::byte* workspace = nullptr;
  const void* stream = nullptr;
};
// While a test points it to a list, the fake cuDNN has a plan for every attention on this thread, and lists what it
// runs.
extern thread_local std::vector<AttentionLaunch>* attention_launches;

}  // namespace stretto::cuda
