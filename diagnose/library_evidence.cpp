#include <algorithm>
#include <cctype>

#include "diagnose/evidence.hpp"

namespace stretto::diagnose {
namespace {

// A library, by a part of the lower-case names of its kernels in public traces (trace/kernel_class.cpp has the
// sources), and the profile of the framework that is known by it. A later row of profiles wins over an earlier one:
// torch.compile's kernels stand in a step with eager ones, and TransformerEngine's with both.
struct Library {
  const char* part;
  const char* words;
  const char* profile;
};
constexpr Library kLibraries[] = {
    {"at::native", "PyTorch's eager kernels", "torchtitan"},
    {"triton_poi_fused", "torch.compile", "torchtitan-compile"},
    {"triton_red_fused", "torch.compile", "torchtitan-compile"},
    {"triton_per_fused", "torch.compile", "torchtitan-compile"},
    {"transformer_engine::", "TransformerEngine", "megatron-core-te"},
    {"deep_ep::", "DeepEP", ""},
    {"hybrid_ep", "DeepEP's hybrid-ep", ""},
    {"groupproblemshape", "CUTLASS's grouped products", ""},
    {"grouped_gemm", "grouped products of experts", ""},
    {"groupedgemm", "grouped products of experts", ""},
    {"deep_gemm::", "DeepGEMM", ""},
    {"cudnn_generated", "cuDNN's attention", ""},
    {"flash::flash_", "FlashAttention 2", ""},
    {"flash::flashattn", "FlashAttention 3", ""},
};

}  // namespace

void add_library(Evidence& seen, const std::string& kernel) {
  std::string lower = kernel;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto place = [](const std::string& profile) {
    return std::find_if(std::begin(kLibraries), std::end(kLibraries),
                        [&](const Library& l) { return profile == l.profile; });
  };
  for (const Library& library : kLibraries) {
    if (lower.find(library.part) == std::string::npos) continue;
    if (std::find(seen.libraries.begin(), seen.libraries.end(), library.words) == seen.libraries.end())
      seen.libraries.emplace_back(library.words);
    if (library.profile[0] != '\0' && (seen.profile.empty() || &library > &*place(seen.profile)))
      seen.profile = library.profile;
  }
}

}  // namespace stretto::diagnose
