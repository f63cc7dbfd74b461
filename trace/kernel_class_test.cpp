#include "trace/kernel_class.hpp"

#include <catch2/catch.hpp>
#include <set>
#include <string>

namespace stretto::trace {

// Names of kernels in public traces: deepseek-ai/profile-data (H800) and facebookresearch/HolisticTraceAnalysis (A100,
// V100).
TEST_CASE("kernels of public traces have their classes", "[trace]") {
  using enum KernelClass;
  const std::pair<const char*, KernelClass> kernels[] = {
      {"void cutlass::device_kernel<dpsk::grouped_gemm::cuda::fp8_ptp128c::GemmKernel>(Params)", gemm},
      {"sm90_xmma_gemm_bf16f32_bf16f32_f32_nt_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_"
       "cublas",
       gemm},
      {"void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(Params)", gemm},
      {"ampere_sgemm_128x128_tn", gemm},
      {"volta_sgemm_128x32_nt", gemm},
      {"nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNT", gemm},
      {"void splitKreduce_kernel<float, float, float, float, true, false, false>(cublasSplitKParams<float>)",
       gemm_reduce},
      {"void cutlass::device_kernel<flash::FlashAttnBwd<flash::CollectiveMainloopBwd<2>>>(Params)", attention_backward},
      {"void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple<cute::C<64>>>>(Params)", attention_part},
      {"void cutlass::device_kernel<flash::FlashAttnBwdPostprocessConvertdQ<cute::tuple<int>>>(Params)",
       attention_part},
      {"void flash::compute_attn_ws<Flash_fwd_kernel_traits<192, 128, 128, 12>>(Params)", attention_forward},
      {"cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0",
       attention_forward},
      {"cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128_1x1x1_kernel0_0",
       attention_backward},
      {"void layer_norm::ln_fwd_kernel<layer_norm::Kernel_traits<__nv_bfloat16>>(layer_norm::FwdParams)", norm_forward},
      {"void layer_norm::ln_bwd_kernel<layer_norm::Kernel_traits<__nv_bfloat16>>(layer_norm::BwdParams)",
       norm_backward},
      {"void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel<float, float>(long, long)", norm_backward},
      {"void cuda::swiglu_forward_backward_with_weight_impl<__nv_bfloat16>(__nv_bfloat16*)", activation},
      {"rotary_kernel", rope},
      {"void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)", optimizer},
      {"void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(TensorInfo)", router},
      {"void cuda::per_token_cast_to_fp8_with_channels<__nv_bfloat16, 128, false>(__nv_bfloat16 const*)", cast},
      {"void dpsk::grouped_gemm::cuda::utils::transpose<512, 128, 4, 4>(unsigned char const*)", cast},
      {"void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)", fill},
      {"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)", elementwise},
      {"void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda>(int)", copy},
      {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(ReduceOp)", reduce},
      {"Memcpy DtoD (Device -> Device)", copy},
      {"ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", all_reduce},
      {"ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", send_recv},
      {"ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", all_gather},
      {"ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", reduce_scatter},
      {"void dpsk::ep::internode::dispatch<false, 8, false, 8>(int4*, float*)", dispatch},
      {"void dpsk::ep::internode::combine<false, 8, __nv_bfloat16, 8, 2, 16, 24>(int4*)", combine},
      {"void dpsk::ep::internode::cached_notify<false>(int, int)", dispatch_part},
      {"my_kernel", other},
  };
  for (const auto& [name, cls] : kernels) {
    INFO(name);
    CHECK(std::string(name_of(class_of_kernel(name))) == name_of(cls));
  }
  CHECK(class_of_collective("_allgather_base") == all_gather);
  CHECK(class_of_collective("_reduce_scatter_base") == reduce_scatter);
  CHECK(class_of_collective("allreduce_coalesced") == all_reduce);
  CHECK(class_of_collective("all_to_allv") == all_to_all);
  CHECK(class_of_collective("barrier") == other);
}

TEST_CASE("every pattern has a source and can be met", "[trace]") {
  for (const KernelPattern& pattern : kernel_patterns()) {
    INFO(pattern.parts);
    CHECK(std::string(pattern.source).size() > 5);
    // The name that consists of its parts alone: an earlier row may fit it, but then with the same class or a reason.
    std::string name = pattern.parts;
    for (char& c : name)
      if (c == '*') c = '_';
    CHECK(class_of_kernel(name) != KernelClass::other);
  }
}

}  // namespace stretto::trace
