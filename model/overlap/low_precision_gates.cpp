#include "model/overlap/low_precision_gates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "model/linear_layers.hpp"

namespace stretto {
namespace {

const char* kConfig = "core/transformer/transformer_config.py:";

class LowPrecisionGates {
 public:
  LowPrecisionGates(const Scenario& scenario, Gates& gates)
      : s_(scenario),
        p_(scenario.training.low_precision),
        rules_(rules_of(p_, scenario.compute_capability)),
        gates_(gates),
        is_fp4_(p_.fp4_format != LowPrecision::Fp4Format::none),
        is_fp8_(p_.fp8_format != LowPrecision::Fp8Format::none) {}

  void run() {
    gates_.of_training("fp4_format", is_fp4_, "fp8_format = none", !is_fp8_, name_of(p_.fp8_format),
                       megatron(kConfig + std::string("1581")));
    for (const auto& [knob, asked] : {std::pair{"fp8_format", is_fp8_}, std::pair{"fp4_format", is_fp4_}})
      format(knob, asked);
    recipes();
    rows_on_the_way();
    devices();
    off();
  }

 private:
  void format(const char* knob, bool asked) {
    const Training& training = s_.training;
    const Parallel& parallel = s_.parallel;
    gates_.of_training(knob, asked, "precision = bf16 or fp32", training.compute_dtype() != Dtype::f64,
                       training.precision, kOwnGate);
    gates_.of_training(knob, asked, "recompute_granularity none, selective or full",
                       training.recompute.granularity != Recompute::Granularity::selective_op, "selective_op", kOwnGate,
                       "it computes gate and up of fc1 apart");
    const std::int64_t tp = parallel.tensor_model_parallel_size;
    const Transformer& model = s_.model;
    std::int64_t tokens = training.micro_batch_size * model.seq_length / parallel.context_parallel_size;
    if (parallel.sequence_parallel) tokens /= tp;
    std::string worst;
    const auto check = [&](const std::string& what, std::int64_t size, std::int64_t align) {
      if (worst.empty() && rules_.is_on() && size % align != 0)
        worst = fmt::format("{} {}, which is no multiple of {}", size, what, align);
    };
    check("tokens of a rank", tokens, rules_.align);
    check("elements of hidden_size", model.hidden_size, rules_.align);
    const LinearCuts cuts{tp, parallel.expert_tp(),
                          model.experts.num_moe_experts / parallel.expert_model_parallel_size};
    for (const LinearLayer& linear : linear_layers(model, cuts)) {
      // The last block of a weight that is whole on every rank may be short.
      const bool is_whole = linear.cut == LinearCut::none && !linear.is_grouped();
      check(fmt::format("columns of {} on a rank", name_of(linear.layer)), linear.out,
            is_whole              ? side_of(rules_.weights)
            : linear.is_grouped() ? std::max(rules_.align, group_rows_of(rules_.weights))
                                  : rules_.align);
      check(fmt::format("rows of {} on a rank", name_of(linear.layer)), linear.in, rules_.align);
    }
    gates_.of_training(knob, asked, "sides of all products that are whole blocks of a scale", worst.empty(), worst,
                       transformer_engine("pytorch/utils.py:614, pytorch/tensor/mxfp8_tensor.py:125"));
  }

  void recipes() {
    const bool is_delayed = rules_.is_delayed();
    const auto& recompute = s_.training.recompute;
    gates_.of_training("first_last_layers_bf16", p_.first_last_layers_bf16, "fp8_recipe other than delayed",
                       !is_delayed, "delayed", megatron(kConfig + std::string("1529")));
    const std::int64_t most = s_.model.num_layers / s_.parallel.pipeline_model_parallel_size;
    gates_.of_training("first_last_layers_bf16", p_.first_last_layers_bf16,
                       "num_layers_at_start_in_bf16 and num_layers_at_end_in_bf16 at most the layers of a stage",
                       std::max(p_.num_layers_at_start_in_bf16, p_.num_layers_at_end_in_bf16) <= most,
                       fmt::format("{} and {}", p_.num_layers_at_start_in_bf16, p_.num_layers_at_end_in_bf16),
                       megatron(kConfig + std::string("1538")));
    gates_.of_training("first_last_layers_bf16", p_.first_last_layers_bf16 && p_.is_on(), "a layer between them",
                       p_.num_layers_at_start_in_bf16 + p_.num_layers_at_end_in_bf16 < s_.model.num_layers, "none",
                       kNothingToActOn, "then no product is of codes");
    gates_.of_training(
        "fp8_recipe = delayed", is_delayed, "recompute_granularity none or selective of the attention core",
        recompute.granularity == Recompute::Granularity::none ||
            (recompute.granularity == Recompute::Granularity::selective &&
             recompute.modules == std::vector{Recompute::Module::core_attn}),
        name_of(recompute.granularity), megatron(kConfig + std::string("2000, of layernorm and moe_act")),
        "products that are computed again need the scales of their first time, which are not kept yet");
    gates_.of_training("reuse_grad_buf_for_mxfp8_param_ag", p_.reuse_grad_buf_for_mxfp8_param_ag, "fp8_recipe = mxfp8",
                       rules_.recipe == LowPrecisionRules::Recipe::mxfp8, name_of(p_.fp8_recipe),
                       megatron("core/optimizer/optimizer_config.py:180"));
    gates_.of_training("reuse_grad_buf_for_mxfp8_param_ag", p_.reuse_grad_buf_for_mxfp8_param_ag,
                       "fp8_param_gather = true", s_.overlap.fp8_param_gather, "false",
                       megatron("core/optimizer/optimizer_config.py:180"));
  }

  // Rows of experts that are sent as codes.
  void rows_on_the_way() {
    using Wire = LowPrecision::WireDtype;
    const Parallel& p = s_.parallel;
    const std::int64_t ranks = s_.model.experts.any() ? p.expert_model_parallel_size : 1;
    const bool is_flex = p.moe_token_dispatcher_type == TokenDispatcher::flex,
               is_nccl = is_flex && p.moe_flex_dispatcher_backend == FlexBackend::ncclep;
    const std::string got = is_flex ? name_of(p.moe_flex_dispatcher_backend) : name_of(p.moe_token_dispatcher_type);
    for (const bool is_backward : {false, true}) {
      const char* knob = is_backward ? "moe_combine_bwd_dtype" : "moe_dispatch_fwd_dtype";
      const bool asked = (is_backward ? p_.moe_combine_bwd_dtype : p_.moe_dispatch_fwd_dtype) == Wire::mxfp8;
      gates_.of_training(knob, asked, "expert_model_parallel_size above 1", ranks > 1, std::to_string(ranks),
                         megatron("core/transformer/moe/token_dispatcher.py:1854"));
      gates_.of_training(
          knob, asked, "moe_token_dispatcher_type flex with moe_flex_dispatcher_backend ncclep", is_nccl, got,
          megatron(kConfig + std::string("1776")),
          "it sends fp8 neither by DeepEP nor by HybridEP (core/transformer/moe/fused_a2a.py:76 and 327)");
      gates_.of_training(knob, asked, "expert_tensor_parallel_size = 1", p.expert_tp() == 1,
                         std::to_string(p.expert_tp()),
                         megatron("core/transformer/moe/experts.py:397, of the operation fuser"));
      gates_.of_training(knob, asked, "fp8_recipe = mxfp8", rules_.recipe == LowPrecisionRules::Recipe::mxfp8,
                         name_of(rules_.recipe), transformer_engine("pytorch/csrc/extensions/cast.cpp:719"),
                         "products take the codes that came, and numbers are not made of them");
      if (is_backward)
        gates_.of_training(knob, asked, "fp8_format = e4m3", p_.fp8_format == LowPrecision::Fp8Format::e4m3,
                           name_of(p_.fp8_format), transformer_engine("pytorch/csrc/extensions/cast.cpp:721"),
                           "gradients are sent in e4m3");
      gates_.of_training(knob, asked, "first_last_layers_bf16 = false", !p_.first_last_layers_bf16, "true", kOwnGate,
                         "products in bf16 would need numbers of the codes that came");
      const auto acts = [&](const char* needs, const GateSource& source, const char* wider) {
        gates_.add({.knob = knob,
                    .needs = needs,
                    .kind = GateKind::acts,
                    .source = source,
                    .wider = wider,
                    .asked = asked,
                    .section = "training"});
      };
      acts("a hidden_size that is a multiple of 512", transformer_engine("pytorch/ep.py:760"),
           "rows of whole blocks are sent");
      acts("moe_grouped_gemm and use_transformer_engine_op_fuser", megatron(kConfig + std::string("1787")),
           "products of experts are grouped always, and take codes");
    }
  }

  void devices() {
    const double has = s_.compute_capability;
    const auto needs = [&](const char* knob, bool asked, double least) {
      gates_.of_training(knob, asked && has > 0, fmt::format("a GPU of compute capability {:.1f} or more", least),
                         has >= least, fmt::format("{:.1f}", has),
                         transformer_engine("pytorch/quantization.py:149 to 188"),
                         "its tensor cores have no such products");
    };
    using Recipe = LowPrecisionRules::Recipe;
    needs("fp8_recipe = blockwise", rules_.recipe == Recipe::blockwise, 9.0);
    needs("fp8_recipe = mxfp8", rules_.recipe == Recipe::mxfp8, 10.0);
    needs("fp8_format", is_fp8_, 8.9);
    needs("fp4_format", is_fp4_, 10.0);
    const auto of_library = [&](const char* knob, bool asked, const char* version, const char* place) {
      gates_.add({.knob = knob,
                  .needs = std::string("TransformerEngine ") + version + " or later",
                  .kind = GateKind::acts,
                  .source = megatron(place),
                  .wider = "a schedule knows no version of the library",
                  .asked = asked});
    };
    of_library("fp8_recipe = mxfp8", rules_.recipe == Recipe::mxfp8, "2.1", "core/fp8_utils.py:770");
    of_library("fp8_recipe = tensorwise", rules_.recipe == Recipe::tensorwise, "2.2", "core/fp8_utils.py:777");
    of_library("fp8_recipe = blockwise", rules_.recipe == Recipe::blockwise, "2.3", "core/fp8_utils.py:781");
    of_library("fp4_format", is_fp4_, "2.7", "core/fp4_utils.py:221");
  }

  void off() {
    const LowPrecision plain;
    const auto off = [&](const char* knob, bool asked, const char* needs, bool open) {
      gates_.add({.knob = knob,
                  .needs = needs,
                  .source = kNothingToActOn,
                  .asked = asked,
                  .open = open,
                  .why = std::string("it needs ") + needs});
    };
    off("fp8_recipe", p_.fp8_recipe != plain.fp8_recipe, "fp8_format", is_fp8_);
    off("first_last_layers_bf16", p_.first_last_layers_bf16, "fp8_format or fp4_format", p_.is_on());
    for (const auto& [knob, asked] :
         {std::pair{"fp8_margin", p_.fp8_margin != plain.fp8_margin},
          std::pair{"fp8_amax_history_len", p_.fp8_amax_history_len != plain.fp8_amax_history_len},
          std::pair{"fp8_amax_compute_algo", p_.fp8_amax_compute_algo != plain.fp8_amax_compute_algo},
          std::pair{"tp_only_amax_red", p_.tp_only_amax_red}})
      off(knob, asked, "fp8_format with fp8_recipe = delayed", rules_.is_delayed());
    const Training& t = s_.training;
    for (const auto& [knob, asked] :
         {std::pair{"gelu_fusion", t.gelu_fusion && !s_.model.swiglu},
          std::pair{"bias_gradient_fusion", t.bias_gradient_fusion && s_.model.add_bias_linear},
          std::pair{"residual_fusion", t.residual_fusion}})
      gates_.add({.knob = knob,
                  .needs = "products of numbers (no fp8_format, no fp4_format)",
                  .source = kOwnGate,
                  .asked = asked,
                  .open = !p_.is_on(),
                  .why = "products are of codes, and what follows them is made of their rounded results"});
  }

  const Scenario& s_;
  const LowPrecision& p_;
  const LowPrecisionRules rules_;
  Gates& gates_;
  const bool is_fp4_, is_fp8_;
};

}  // namespace

void add_low_precision_gates(const Scenario& scenario, Gates& gates) { LowPrecisionGates(scenario, gates).run(); }

}  // namespace stretto
