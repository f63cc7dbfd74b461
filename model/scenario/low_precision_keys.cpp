#include "model/scenario/section_keys.hpp"

namespace stretto {
namespace {

using S = Scenario&;

bool acts(const Scenario& s) { return s.training.low_precision.is_on(); }
bool is_fp8(const Scenario& s) { return s.training.low_precision.fp8_format != LowPrecision::Fp8Format::none; }
bool is_fp4(const Scenario& s) { return s.training.low_precision.fp4_format != LowPrecision::Fp4Format::none; }
bool is_mx(const Scenario& s) {
  return is_fp8(s) && s.training.low_precision.fp8_recipe == LowPrecision::Fp8Recipe::mxfp8 && s.model.experts.any();
}
bool leaves_layers(const Scenario& s) { return acts(s) && s.training.low_precision.first_last_layers_bf16; }
bool exchanges_codes(const Scenario& s) {
  return is_fp8(s) && s.model.experts.any() && s.parallel.expert_model_parallel_size > 1;
}
bool is_delayed(const Scenario& s) { return rules_of(s.training.low_precision, s.compute_capability).is_delayed(); }

}  // namespace

std::vector<ScenarioKey> low_precision_keys() {
  return {
      {.name = "fp8_format",
       .field = [](S s) -> Field { return WordField::of(s.training.low_precision.fp8_format); },
       .also = {"fp8"},
       .range = "needs `precision` `\"bf16\"` or `\"fp32\"`",
       .meaning =
           "products of the layers' linear layers (qkv, proj, fc1, fc2), forward and backward, are of codes of 8 "
           "bits, more closely spaced where numbers are small ([low-precision.md](low-precision.md)): all of "
           "4 bits of exponent, or with `\"hybrid\"` gradients of outputs of 5 bits, which `mxfp8` and `blockwise` "
           "allow too. Embedding, head, norms, attention, biases and the residual stream stay as `precision` "
           "says",
       .megatron = {.name = "--fp8-format", .words = {{"e4m3", "e4m3"}, {"hybrid", "hybrid"}, {"None", "none"}}},
       .acts = is_fp8,
       .record = Record::identity_since},
      {.name = "fp8_recipe",
       .field = [](S s) -> Field { return WordField::of(s.training.low_precision.fp8_recipe); },
       .range = "acts with `fp8_format`; a GPU of compute capability 8.9, with `\"blockwise\"` 9.0 and with "
                "`\"mxfp8\"` 10.0",
       .meaning = "scales of codes: of a tensor, from the largest magnitudes of earlier passes; of a tensor, from its "
                  "own; of 128 numbers along the axis of the sum, weights of 128 × 128 (DeepSeek-V3); of 32 numbers, "
                  "powers of two (MXFP8)",
       .megatron = {"--fp8-recipe"},
       .acts = is_fp8,
       .record = Record::identity_since},
      {.name = "fp8_margin",
       .field = [](S s) -> Field { return &s.training.low_precision.fp8_margin; },
       .bounds = {.min = -64, .max = 64},
       .range = "acts with `\"delayed\"`",
       .meaning = "scales are smaller by 2^margin",
       .megatron = {"--fp8-margin"},
       .acts = is_delayed,
       .record = Record::identity_since},
      {.name = "fp8_amax_history_len",
       .field = [](S s) -> Field { return &s.training.low_precision.fp8_amax_history_len; },
       .bounds = {.min = 1, .max = 1 << 16},
       .unit = "passes",
       .range = "acts with `\"delayed\"`",
       .meaning = "passes whose largest magnitudes are kept",
       .megatron = {"--fp8-amax-history-len"},
       .acts = is_delayed,
       .record = Record::identity_since},
      {.name = "fp8_amax_compute_algo",
       .field = [](S s) -> Field { return WordField::of(s.training.low_precision.fp8_amax_compute_algo); },
       .range = "acts with `\"delayed\"`",
       .meaning = "which of them decides: that of the last pass, or the largest",
       .megatron = {"--fp8-amax-compute-algo"},
       .acts = is_delayed,
       .record = Record::identity_since},
      {.name = "fp8_wgrad",
       .field = [](S s) -> Field { return &s.training.low_precision.fp8_wgrad; },
       .range = "must be `true`",
       .meaning = "weight gradients are products of codes too",
       .megatron = {.name = "--no-fp8-wgrad", .given = false, .absent = true},
       .acts = is_fp8,
       .record = Record::none},
      {.name = "tp_only_amax_red",
       .field = [](S s) -> Field { return &s.training.low_precision.tp_only_amax_red; },
       .range = "acts with `\"delayed\"`",
       .meaning = "largest magnitudes are those of the ranks of tensor and context parallelism alone, and each replica "
                  "has scales of its own",
       // TransformerConfig has it, the command line does not (arguments.py:2335 at d98e8a64).
       .megatron = {},
       .acts = is_delayed,
       .record = Record::none},
      {.name = "first_last_layers_bf16",
       .field = [](S s) -> Field { return &s.training.low_precision.first_last_layers_bf16; },
       .range = "not with `\"delayed\"`",
       .meaning = "layers at both ends of the model multiply as `precision` says",
       .megatron = {.name = "--first-last-layers-bf16", .given = true, .absent = false},
       .acts = acts,
       .record = Record::identity_since},
      {.name = "num_layers_at_start_in_bf16",
       .field = [](S s) -> Field { return &s.training.low_precision.num_layers_at_start_in_bf16; },
       .bounds = {.min = 0, .max = 1 << 14},
       .range = "acts with `first_last_layers_bf16`; at most the layers of a stage",
       .meaning = "of the first layers",
       .megatron = {"--num-layers-at-start-in-bf16"},
       .acts = leaves_layers,
       .record = Record::identity_since},
      {.name = "num_layers_at_end_in_bf16",
       .field = [](S s) -> Field { return &s.training.low_precision.num_layers_at_end_in_bf16; },
       .bounds = {.min = 0, .max = 1 << 14},
       .range = "acts with `first_last_layers_bf16`; at most the layers of a stage",
       .meaning = "of the last layers",
       .megatron = {"--num-layers-at-end-in-bf16"},
       .acts = leaves_layers,
       .record = Record::identity_since},
      {.name = "reuse_grad_buf_for_mxfp8_param_ag",
       .field = [](S s) -> Field { return &s.training.low_precision.reuse_grad_buf_for_mxfp8_param_ag; },
       .range = "needs `\"mxfp8\"` and `fp8_param_gather`",
       .meaning = "parameters are gathered in bf16, in the buffer of their gradients, and then become codes in both "
                  "copies",
       .megatron = {.name = "--reuse-grad-buf-for-mxfp8-param-ag", .given = true, .absent = false},
       .acts = is_fp8,
       .record = Record::none},
      {.name = "fp4_format",
       .field = [](S s) -> Field { return WordField::of(s.training.low_precision.fp4_format); },
       .also = {"fp4"},
       .range = "needs `precision` `\"bf16\"` or `\"fp32\"`; not with `fp8_format`; a GPU of compute capability 10.0",
       .meaning = "as `fp8_format`, with codes of 4 bits",
       .megatron = {.name = "--fp4-format", .words = {{"e2m1", "e2m1"}, {"None", "none"}}},
       .acts = is_fp4,
       .record = Record::identity_since},
      {.name = "fp4_recipe",
       .field = [](S s) -> Field { return WordField::of(s.training.low_precision.fp4_recipe); },
       .range = "acts with `fp4_format`",
       .meaning = "NVFP4 (arXiv 2509.25149): scales of 16 numbers in e4m3, and one of the tensor; factors of weight "
                  "gradients after a Hadamard transform; gradients of outputs rounded stochastically",
       .megatron = {"--fp4-recipe"},
       .acts = is_fp4,
       .record = Record::identity_since},
      {.name = "fp4_param_gather",
       .field = [](S s) -> Field { return &s.training.low_precision.fp4_param_gather; },
       .range = "off: gathers of parameters in fp4 are not modelled yet",
       .meaning = "parameters are gathered as codes; until then in bf16",
       .megatron = {.name = "--fp4-param-gather", .given = true, .absent = false},
       .acts = is_fp4,
       .record = Record::none},
      {.name = "fp8_dot_product_attention",
       .field = [](S s) -> Field { return &s.training.fp8_dot_product_attention; },
       .range = "needs `fp8_format`; acts in predictions",
       .meaning = "attention multiplies codes, with casts of its operands and results (TransformerEngine's "
                  "DotProductAttention "
                  "in fp8). It is predicted, and refused where a step is executed",
       // TransformerConfig has it, the command line does not (arguments.py:2333 at d98e8a64).
       .megatron = {},
       .acts = is_fp8,
       .record = Record::none},
      {.name = "use_transformer_engine_op_fuser",
       .field = [](S s) -> Field { return &s.training.use_transformer_engine_op_fuser; },
       .range = "acts in predictions of experts with `\"mxfp8\"`",
       .meaning = "the activation between the products of experts, its gradient, and the casts of what both write are "
                  "parts of these products' kernels (TransformerEngine's fused grouped MLP)",
       .megatron = {.name = "--use-transformer-engine-op-fuser", .given = true, .absent = false},
       .acts = is_mx,
       .record = Record::none},
      {.name = "fp8_transposes",
       .field = [](S s) -> Field { return &s.training.low_precision.fp8_transposes; },
       .by_default = "true on a platform whose GPUs have a compute capability below 10.0",
       .range = "acts with recipes other than `\"mxfp8\"`",
       .meaning = "products take their factors only in rows along the axis of the sum, as cuBLASLt's fp8 before "
                  "Blackwell, so transposed copies of codes are made and kept. Results are the same",
       .megatron = {},
       .says_how = false,
       .acts = acts,
       .record = Record::none},
      {.name = "moe_dispatch_fwd_dtype",
       .field = [](S s) -> Field { return WordField::of(s.training.low_precision.moe_dispatch_fwd_dtype); },
       .range = "`\"mxfp8\"` needs `fp8_recipe` `\"mxfp8\"`, `moe_token_dispatcher_type` `\"flex\"` and "
                "`moe_flex_dispatcher_backend` `\"ncclep\"`",
       .meaning = "rows of experts that go to the ranks of the experts, forward: numbers, or codes with their scales, "
                  "which the sender makes and products of `experts.fc1` read",
       .megatron = {"--moe-dispatch-fwd-dtype"},
       .acts = exchanges_codes,
       .record = Record::identity_since},
      {.name = "moe_combine_bwd_dtype",
       .field = [](S s) -> Field { return WordField::of(s.training.low_precision.moe_combine_bwd_dtype); },
       .range = "as `moe_dispatch_fwd_dtype`, and `fp8_format` `\"e4m3\"`",
       .meaning = "gradients of the experts' results that go to the ranks of the experts, backward: numbers, or codes "
                  "with their "
                  "scales, which the sender makes",
       .megatron = {"--moe-combine-bwd-dtype"},
       .acts = exchanges_codes,
       .record = Record::identity_since},
  };
}

}  // namespace stretto
