#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "tests/draw.hpp"

namespace stretto::testing {

// Returns the text of a scenario with a random layout on published GPUs, of a model whose layers are of its real size;
// not all of them are legal.
inline std::string random_gpu_scenario(std::uint64_t seed) {
  Draw draw(seed * 6364136223846793005ULL + 1);
  struct Base {
    const char *platform, *profile, *model;
    bool has_experts;
  };
  const Base base = draw.one_of<Base>({{"h100-sxm", "nemo-dgxc", "llama3-8b", false},
                                       {"h100-sxm", "nemo-dgxc", "llama3-70b", false},
                                       {"a100-80gb", "megatron-2022", "gpt3-175b", false},
                                       {"b200-sxm", "megatron-core-te", "llama3-8b", false},
                                       {"h100-sxm", "", "llama3-8b", false},
                                       {"h100-sxm", "torchtitan", "llama3-8b", false},
                                       {"h200-sxm", "megatron-bridge-moe", "mixtral-8x7b", true},
                                       {"h100-sxm", "megatron-bridge-moe", "qwen3-30b-a3b", true}});
  const std::int64_t pp = draw.one_of<std::int64_t>({1, 2, 4, 8}), tp = draw.one_of<std::int64_t>({1, 2, 4, 8}),
                     vp = pp > 1 ? draw.one_of<std::int64_t>({1, 1, 2, 3}) : 1,
                     cp = draw.one_of<std::int64_t>({1, 1, 2, 4}), dp = draw.one_of<std::int64_t>({1, 2, 4, 8}),
                     micro_batch = draw.one_of<std::int64_t>({1, 1, 2}),
                     micro_batches = draw.coin() ? pp * draw.between(1, 4) : draw.between(1, 12);
  std::string text = fmt::format("platform = \"{}\"\n", base.platform);
  if (*base.profile != '\0') text += fmt::format("profile = \"{}\"\n", base.profile);
  text += fmt::format("[model]\npreset = \"{}\"\nnum_layers = {}\nseq_length = {}\n", base.model,
                      pp * vp * draw.between(1, 4), draw.one_of<std::int64_t>({2048, 4096}));
  text += fmt::format(
      "[parallel]\ntensor_model_parallel_size = {}\npipeline_model_parallel_size = {}\n"
      "virtual_pipeline_model_parallel_size = {}\ncontext_parallel_size = {}\ndata_parallel_size = {}\n"
      "sequence_parallel = {}\n",
      tp, pp, vp, cp, dp, tp > 1 && draw.between(0, 4) > 0);
  if (base.has_experts)
    text += fmt::format("expert_model_parallel_size = {}\nexpert_tensor_parallel_size = {}\n",
                        draw.one_of<std::int64_t>({1, 2, 4, 8}), draw.coin() ? 1 : tp);
  if (draw.seldom()) text += fmt::format("pipeline_schedule = \"{}\"\n", draw.one_of<const char*>({"zb-h1", "zb-v"}));
  text += fmt::format("[training]\nmicro_batch_size = {}\nglobal_batch_size = {}\nrecompute_granularity = \"{}\"\n",
                      micro_batch, micro_batch * micro_batches * dp,
                      draw.one_of<const char*>({"none", "none", "selective", "full"}));
  text += "[overlap]\n";
  for (const char* knob : {"overlap_grad_reduce", "tp_comm_overlap", "overlap_p2p_comm", "moe_shared_expert_overlap"})
    if (draw.seldom()) text += fmt::format("{} = {}\n", knob, draw.coin());
  return text;
}

}  // namespace stretto::testing
