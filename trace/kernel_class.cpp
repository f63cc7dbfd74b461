#include "trace/kernel_class.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <string>

namespace stretto::trace {
namespace {

using enum KernelClass;

// Sources of names: public traces and public code.
constexpr const char* kDeepSeek = "deepseek-ai/profile-data, train.json (H800, DualPipe)";
constexpr const char* kHtaA100 =
    "facebookresearch/HolisticTraceAnalysis, tests/data/trace_diff and nccl_parser_config (A100)";
constexpr const char* kHtaV100 = "facebookresearch/HolisticTraceAnalysis, tests/data/df_index_resolver (V100)";
constexpr const char* kTorch = "pytorch/pytorch, aten/src/ATen/native/cuda";
constexpr const char* kTe = "NVIDIA/TransformerEngine, transformer_engine/common";
constexpr const char* kApex = "NVIDIA/apex, csrc";
constexpr const char* kFlash = "Dao-AILab/flash-attention, csrc and hopper";
constexpr const char* kCudnn = "names of cuDNN's engines in profiles of PyTorch and TransformerEngine";
constexpr const char* kCublas = "names of cuBLAS's kernels in profiles of PyTorch (Hopper, Blackwell)";
constexpr const char* kNccl = "NVIDIA/nccl, src/device/generate.py";
constexpr const char* kTriton = "Triton kernels that torch.compile names by the fused operators";

constexpr KernelPattern kPatterns[] = {
    // Communication precedes compute: its names contain words such as reduce and copy.
    {"nccl*allreduce", all_reduce, kHtaA100},
    {"nccl*allgather", all_gather, kNccl},
    {"nccl*reducescatter", reduce_scatter, kNccl},
    {"nccl*alltoall", all_to_all, kNccl},
    {"nccl*sendrecv", send_recv, kHtaA100},
    {"nccl*broadcast", broadcast, kHtaA100},
    {"nccl*reduce", reduce_scatter, kNccl},
    {"ep::*notify_dispatch", dispatch_part, kDeepSeek},
    {"ep::*cached_notify", dispatch_part, kDeepSeek},
    {"ep::*get_dispatch_layout", dispatch_part, kDeepSeek},
    {"ep::*combine", combine, kDeepSeek},
    {"ep::*dispatch", dispatch, kDeepSeek},
    {"hybrid_ep*combine", combine, "deepseek-ai/DeepEP, hybrid-ep branch"},
    {"hybrid_ep*dispatch", dispatch, "deepseek-ai/DeepEP, hybrid-ep branch"},
    {"userbuffers*rs", reduce_scatter, kTe},
    {"userbuffers*ag", all_gather, kTe},
    {"userbuffers_push", send_recv, kTe},
    {"cross_device_reduce", all_reduce, "vllm-project/vllm, csrc/custom_all_reduce.cuh"},
    // Attention precedes GEMMs and norms: its kernels contain "gemm", and FlashAttention's bwd "reduce".
    {"flashattnbwdpreprocess", attention_part, kDeepSeek},
    {"flashattnbwdpostprocess", attention_part, kDeepSeek},
    {"flashattnbwd", attention_backward, kDeepSeek},
    {"flashattnfwdcombine", attention_part, kFlash},
    {"flashattnfwd", attention_forward, kFlash},
    {"flash_bwd_dot_do_o", attention_part, kFlash},
    {"flash_bwd_convert", attention_part, kFlash},
    {"flash_bwd", attention_backward, kFlash},
    {"flash_fwd_splitkv_combine", attention_part, kFlash},
    {"flash_fwd", attention_forward, kDeepSeek},
    {"flashattention*forward", attention_forward, kFlash},
    {"flashattention*backward", attention_backward, kFlash},
    {"sdpa*fprop", attention_forward, kCudnn},
    {"sdpa*bprop", attention_backward, kCudnn},
    {"cudnn*mha*fprop", attention_forward, kCudnn},
    {"cudnn*mha*bprop", attention_backward, kCudnn},
    {"cudnn*compute_dot_do_o", attention_part, kCudnn},
    {"cudnn*convert_dq", attention_part, kCudnn},
    {"fmha_cutlassb", attention_backward, kTorch},
    {"fmha_cutlassf", attention_forward, kTorch},
    {"fmha*bwd", attention_backward, kTorch},
    {"fmha*fwd", attention_forward, kTorch},
    // The optimizer: multi-tensor kernels are named by their functor.
    {"multi_tensor_apply*adam", optimizer, kHtaA100},
    {"fusedadam", optimizer, kTorch},
    {"adamw", optimizer, kTriton},
    {"adam_", optimizer, kApex},
    {"rowwise_adagrad", optimizer, kHtaA100},
    {"multi_tensor_apply*l2norm", gradient_norm, kApex},
    {"multi_tensor_apply*lpnorm", gradient_norm, kTorch},
    {"multi_tensor_apply*scale", elementwise, kApex},
    {"multi_tensor_apply", elementwise, kHtaA100},
    // Norms.
    {"layer_norm*bwd", norm_backward, kDeepSeek},
    {"layer_norm*fwd", norm_forward, kDeepSeek},
    {"rmsnorm*bwd", norm_backward, kTe},
    {"rmsnorm*fwd", norm_forward, kTe},
    {"ln_bwd", norm_backward, kTe},
    {"ln_fwd", norm_forward, kTe},
    {"ln_parallel_residual_bwd", norm_backward, kFlash},
    {"layer_norm_grad", norm_backward, kHtaA100},
    {"gammabetabackward", norm_backward, kHtaA100},
    {"cucomputegradinput", norm_backward, kApex},
    {"cucomputegradgammabeta", norm_backward, kApex},
    {"cucomputepartgradgammabeta", norm_backward, kApex},
    {"cuapplylayernorm", norm_forward, kApex},
    {"cuapplyrmsnorm", norm_forward, kApex},
    {"vectorized_layer_norm_kernel", norm_forward, kHtaA100},
    {"rms_norm*backward", norm_backward, kTriton},
    {"rms_norm", norm_forward, kTriton},
    {"rowwisemoments", norm_forward, kTorch},
    // The loss and softmax.
    {"cross_entropy", cross_entropy, kTe},
    {"nll_loss", cross_entropy, kTorch},
    {"cunn_softmax*logsoftmax", cross_entropy, kTorch},
    {"log_softmax", cross_entropy, kTriton},
    {"softmax", softmax, kTorch},
    // Experts.
    {"topk", router, kDeepSeek},
    {"radix_topk", router, kTorch},
    {"get_fused_mapping", permute, kDeepSeek},
    {"expand_to_fused", permute, kDeepSeek},
    {"reduce_fused", permute, kDeepSeek},
    {"clean_and_count_expert", permute, kDeepSeek},
    {"unpermute", permute, kTe},
    {"permute", permute, kTe},
    // Activations.
    {"swiglu", activation, kDeepSeek},
    {"gated_act", activation, kTe},
    {"dgated", activation, kTe},
    {"dact", activation, kTe},
    {"gelu", activation, kTorch},
    {"silu", activation, kTriton},
    // Positions, embedding, dropout.
    {"rotary", rope, kDeepSeek},
    {"rope", rope, kTe},
    {"split_embedding", embedding, kHtaA100},
    {"embedding", embedding, kTorch},
    {"indexselect", embedding, kTorch},
    {"vectorized_gather", embedding, kTorch},
    {"dropout", dropout, kTorch},
    // Casts and transpositions of fp8 precede GEMMs: one is in a namespace grouped_gemm.
    {"cast", cast, kDeepSeek},
    {"transpose", cast, kDeepSeek},
    {"amax", cast, kTe},
    {"quantize", cast, kTe},
    // Products.
    {"splitkreduce", gemm_reduce, kHtaA100},
    {"reducesplitk", gemm_reduce, kHtaA100},
    {"cublaslt::splitk", gemm_reduce, kCublas},
    {"epilogue::impl", gemm_reduce, kHtaV100},
    {"gemmkernel", gemm, kDeepSeek},
    {"nvjet", gemm, kCublas},
    {"xmma_gemm", gemm, kDeepSeek},
    {"gemm", gemm, kHtaA100},
    {"cijk_", gemm, "facebookresearch/HolisticTraceAnalysis, tests/data/amd_trace (MI250)"},
    {"wgrad", gemm, kHtaA100},
    {"dgrad", gemm, kHtaA100},
    {"fprop", gemm, kHtaA100},
    {"cublas", gemm, kCublas},
    {"gemv", gemm, kCublas},
    // Sorting and gathering.
    {"radixsort", permute, kHtaA100},
    {"devicescan", permute, kHtaA100},
    {"scatter_gather", permute, kDeepSeek},
    {"index_elementwise", permute, kTorch},
    {"catarraybatchedcopy", copy, kHtaA100},
    {"split_with_sizes_copy", copy, kTorch},
    {"chunk_cat", copy, kTorch},
    {"direct_copy_kernel", copy, kDeepSeek},
    {"copy_tensor", copy, kDeepSeek},
    {"memcpy", copy, kDeepSeek},
    {"memset", fill, kDeepSeek},
    {"fillfunctor", fill, kDeepSeek},
    {"bfloat16_copy", copy, kTorch},
    {"reduce_kernel", reduce, kDeepSeek},
    {"triton_red", reduce, kTriton},
    {"triton_per", reduce, kTriton},
    {"devicereduce", reduce, kHtaA100},
    {"elementwise", elementwise, kDeepSeek},
    {"triton_poi", elementwise, kTriton},
    {"pointwise", elementwise, kTorch},
};

constexpr std::array kNames = {"gemm",
                               "gemm_reduce",
                               "attention_forward",
                               "attention_backward",
                               "attention_part",
                               "softmax",
                               "norm_forward",
                               "norm_backward",
                               "activation",
                               "rope",
                               "embedding",
                               "cross_entropy",
                               "dropout",
                               "optimizer",
                               "gradient_norm",
                               "router",
                               "permute",
                               "cast",
                               "copy",
                               "fill",
                               "reduce",
                               "elementwise",
                               "all_gather",
                               "reduce_scatter",
                               "all_reduce",
                               "all_to_all",
                               "send_recv",
                               "dispatch",
                               "combine",
                               "dispatch_part",
                               "broadcast",
                               "other"};
static_assert(kNames.size() == static_cast<std::size_t>(other) + 1);

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

bool fits(std::string_view name, std::string_view parts) {
  while (!parts.empty()) {
    const std::size_t star = std::min(parts.find('*'), parts.size());
    const std::size_t at = name.find(parts.substr(0, star));
    if (at == std::string_view::npos) return false;
    name.remove_prefix(at + star);
    parts.remove_prefix(std::min(star + 1, parts.size()));
  }
  return true;
}

}  // namespace

const char* name_of(KernelClass cls) { return kNames[static_cast<std::size_t>(cls)]; }

bool is_communication(KernelClass cls) { return cls >= all_gather && cls <= broadcast; }

KernelClass class_of_kernel(std::string_view name) {
  const std::string lower = lower_case(name);
  for (const KernelPattern& pattern : kPatterns)
    if (fits(lower, pattern.parts)) return pattern.cls;
  return other;
}

KernelClass class_of_collective(std::string_view name) {
  const std::string lower = lower_case(name);
  for (const auto& [parts, cls] :
       {std::pair{"all*gather", all_gather}, std::pair{"reduce*scatter", reduce_scatter},
        std::pair{"all*reduce", all_reduce}, std::pair{"all*to*all", all_to_all}, std::pair{"broadcast", broadcast},
        std::pair{"send", send_recv}, std::pair{"recv", send_recv}, std::pair{"coalesced", send_recv}})
    if (fits(lower, parts)) return cls;
  return other;
}

KernelPatterns kernel_patterns() { return {std::begin(kPatterns), std::end(kPatterns)}; }

}  // namespace stretto::trace
