// Names that people use, for what files call otherwise. A name that is not here is shown as it is.

const kModels: Record<string, string> = {
  "llama2-7b": "Llama 2 7B", "llama2-70b": "Llama 2 70B", "llama3-8b": "Llama 3 8B", "llama3-70b": "Llama 3 70B", "llama3-405b": "Llama 3 405B",
  "gpt2-124m": "GPT-2 124M", "gpt2-355m": "GPT-2 355M", "gpt2-774m": "GPT-2 774M", "gpt2-1558m": "GPT-2 1.5B", "gpt3-175b": "GPT-3 175B",
  "gpt3-175b-1024": "GPT-3 175B, 1,024 A100", "qwen3-0.6b": "Qwen3 0.6B", "qwen3-8b": "Qwen3 8B", "qwen3-30b-a3b": "Qwen3 30B-A3B",
  "qwen3-30b-a3b-ep4": "Qwen3 30B-A3B, ep 4", "qwen3-235b-a22b": "Qwen3 235B-A22B", "qwen3-next-like": "Qwen3-Next-like", "mixtral-8x7b": "Mixtral 8×7B",
  "mixtral-8x22b": "Mixtral 8×22B", "deepseek-v2-lite": "DeepSeek-V2 Lite", "deepseek-v3": "DeepSeek-V3 671B", "deepseek-v3-1024": "DeepSeek-V3 671B",
  "deepseek-v3-256": "DeepSeek-V3 671B, 256 H100", "deepseek-v3-gb200": "DeepSeek-V3 671B, GB200", "moonlight-16b-a3b": "Moonlight 16B-A3B",
};
export const modelName = (name: string): string => kModels[name] ?? name;

const kPlatforms: Record<string, [string, string]> = {  // in full, short
  "a100-40gb": ["A100 SXM 40 GB", "A100 40"], "a100-80gb": ["A100 SXM 80 GB", "A100"], "a800-80gb": ["A800 SXM 80 GB", "A800"],
  "b200-sxm": ["B200 SXM 180 GB", "B200"], "b200-sxm-efa": ["B200 SXM, AWS EFA", "B200 EFA"], "b300-sxm": ["B300 SXM 288 GB", "B300"],
  "gb200-nvl72": ["GB200 NVL72", "GB200"], "gb300-nvl72": ["GB300 NVL72", "GB300"], "gh200-96gb": ["GH200 96 GB", "GH200"],
  "h100-hbm2e-500w": ["H100 96 GB, 500 W", "H100 500 W"], "h100-sxm": ["H100 SXM 80 GB", "H100"], "h100-sxm-efa": ["H100 SXM, AWS EFA", "H100 EFA"],
  "h20-sxm": ["H20 SXM 96 GB", "H20"], "h200-sxm": ["H200 SXM 141 GB", "H200"], "h200-sxm-efa": ["H200 SXM, AWS EFA", "H200 EFA"],
  "h800-sxm": ["H800 SXM 80 GB", "H800"], "l40s": ["L40S 48 GB", "L40S"], "mi300x": ["MI300X 192 GB", "MI300X"], "mi325x": ["MI325X 256 GB", "MI325X"],
  "mi355x": ["MI355X 288 GB", "MI355X"],
};
export const platformName = (name: string): string => kPlatforms[name]?.[0] ?? name;
export const platformShort = (name: string): string => kPlatforms[name]?.[1] ?? name;

const kProfiles: Record<string, string> = {
  "nemo-dgxc": "NeMo", "nemo-dgxc-flash2": "NeMo, FlashAttention 2",
  "nemo-dgxc-lora": "NeMo LoRA", "nemo-fp32-grads": "NeMo, fp32 gradients",
  "megatron-bridge": "Megatron-Bridge", "megatron-bridge-moe": "Megatron-Bridge",
  "megatron-bridge-moe-2026-02": "Megatron-Bridge 26.02",
  "megatron-bridge-moe-library": "Megatron-Bridge library", "megatron-bridge-fsdp": "Megatron-Bridge FSDP",
  "megatron-core-te": "Megatron-LM", "megatron-2021": "Megatron-LM 2021",
  "megatron-2022": "Megatron-LM 2022", "torchtitan": "torchtitan", "torchtitan-2026": "torchtitan 2026",
  "torchtitan-2024-04": "torchtitan 2024", "torchtitan-compile": "torchtitan, compiled",
  "llm-foundry": "LLM Foundry", "meta-llama3": "Meta Llama 3", "fms-fsdp": "FMS FSDP",
  "fms-fsdp-compile": "FMS FSDP, compiled", "megatron-deepspeed-2022": "Megatron-DeepSpeed 2022",
  "aleph-alpha-scaling": "Aleph Alpha", "stretto": "Stretto's own runtime",
};
export const profileName = (name: string): string => kProfiles[name] ?? (name || "no framework");

const kSwitches: Record<string, string> = {
  tp_comm_overlap: "TP collectives under GEMMs", tp_comm_overlap_ag: "All-gather under GEMMs", tp_comm_overlap_rs: "Reduce-scatter under GEMMs",
  tp_comm_overlap_rs_dgrad: "Reduce-scatter under dgrad GEMMs", tp_comm_bulk_dgrad: "Bulk all-gather during dgrad", tp_comm_bulk_wgrad: "Bulk reduce-scatter during wgrad",
  tp_comm_overlap_disable_qkv: "No TP overlap at QKV", tp_comm_overlap_disable_fc1: "No TP overlap at FC1",
  async_tensor_model_parallel_allreduce: "All-reduce during weight gradients", overlap_grad_reduce: "DP reduce-scatter under backward",
  overlap_param_gather: "DP all-gather under forward", overlap_param_gather_with_optimizer_step: "First all-gather with the optimizer",
  align_grad_reduce: "All stages reduce together", align_param_gather: "All stages gather together", grad_reduce_in_fp32: "Reduce gradients in fp32",
  reduce_scatter_with_fp32_accumulation: "Add gradients in fp32, send bf16", fp8_param_gather: "Gather parameters in fp8", overlap_p2p_comm: "PP send/recv under compute",
  batch_p2p_comm: "PP send and recv as one batch", overlap_p2p_comm_warmup_flush: "PP overlap in warm-up and flush", cp_comm_overlap: "CP ring under attention",
  cp_flash_overlap: "CP ring in pieces", defer_embedding_wgrad_compute: "Embedding gradient in the drain", delay_wgrad_compute: "Weight gradients after the all-to-all",
  overlap_moe_expert_parallel_comm: "All-to-all under the next micro-batch", moe_shared_expert_overlap: "Shared expert during the all-to-all",
  high_priority_a2a_comm_stream: "All-to-all first in the queue", ep_flash_overlap: "All-to-all in pieces", fsdp_comm_overlap: "FSDP collectives under compute",
  ep_overlap_early_attn_memory_release: "Free attention memory early", overlap_dispatch_backward_with_experts_wgrad: "Dispatch during expert gradients",
};
export const switchName = (key: string): string => kSwitches[key.slice(key.indexOf(".") + 1)] ?? key.slice(key.indexOf(".") + 1);

const kSizes: Record<string, string> = {
  "parallel.tensor_model_parallel_size": "Tensor parallel", "parallel.pipeline_model_parallel_size": "Pipeline", "parallel.context_parallel_size": "Context parallel",
  "parallel.virtual_pipeline_model_parallel_size": "Chunks a stage", "parallel.expert_model_parallel_size": "Expert parallel", "training.micro_batch_size": "Micro-batch",
  "parallel.expert_tensor_parallel_size": "Tensor parallel of experts", "parallel.pipeline_schedule": "Schedule", "training.recompute_granularity": "Recompute",
  "parallel.data_parallel_sharding_strategy": "Sharding", "parallel.sequence_parallel": "Sequence parallel", "parallel.data_parallel_size": "Data parallel",
  "training.global_batch_size": "Global batch", "model.seq_length": "Sequence length",
};
const kWords: Record<string, string> = { no_shard: "none", optim: "ZeRO-1", optim_grads: "ZeRO-2", optim_grads_params: "ZeRO-3", "": "none", "1f1b": "1F1B" };
export const wordOf = (value: string): string => kWords[value] ?? value;
export const sizeName = (key: string): string => kSizes[key] ?? key.slice(key.indexOf(".") + 1);

// Returns a change of the predictor ("pipeline_model_parallel_size 4 -> 2") in words.
export function changeName(key: string, change: string): string {
  if (key === "training.fp8_recipe") return change;
  const [, from, to] = change.match(/^\S+ (.*) -> (.*)$/) ?? [];
  if (key.startsWith("overlap.")) return `${switchName(key)}: ${to === "true" ? "on" : "off"}`;
  return to === undefined ? change : `${sizeName(key)} ${wordOf(from!)} → ${wordOf(to)}`;
}
const kMachines: Record<string, string> = {
  "products in half of their time": "GEMMs twice as fast", "attention in half of its time": "Attention twice as fast", "twice the rate of memory": "HBM twice as fast",
  "twice the rate of NVLink": "NVLink twice as fast", "twice the rate of the network": "Network twice as fast", "half the latency of links": "Half the latency",
  "a host that issues twice as fast": "CPU twice as fast",
};
export const machineName = (change: string): string => kMachines[change] ?? change;

export const pinLetters = ["A", "B", "C", "D", "E"] as const;
