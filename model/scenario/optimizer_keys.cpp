#include "model/scenario/section_keys.hpp"

namespace stretto {
namespace {

using S = Scenario&;

bool is_aware(const Scenario& s) { return s.training.optimizer_precision.use_precision_aware_optimizer; }

}  // namespace

std::vector<ScenarioKey> optimizer_keys() {
  return {
      {.name = "use_precision_aware_optimizer",
       .field = [](S s) -> Field { return &s.training.optimizer_precision.use_precision_aware_optimizer; },
       .range = "needs `precision` `\"bf16\"` and `use_distributed_optimizer`; not executed on GPUs yet",
       .meaning =
           "types of the optimizer's numbers may be given. A master in fp32 is the parameter in bf16 and 16 more "
           "bits, 2 bytes in place of 4, unless gradients are sharded too, parameters are gathered in fp8, or "
           "products are of codes by another recipe than `\"delayed\"` ([training.md](training.md))",
       .megatron = {.name = "--use-precision-aware-optimizer", .given = true, .absent = false},
       .record = Record::identity_since},
      {.name = "main_grads_dtype",
       .field = [](S s) -> Field { return WordField::of(s.training.optimizer_precision.main_grads_dtype); },
       .range = "`\"bf16\"` needs `use_precision_aware_optimizer`",
       .meaning =
           "type in which gradients are reduced: `\"bf16\"` is `grad_reduce_in_fp32 = false`. Frameworks add them "
           "up in that type too; here they are added up in fp32 and rounded before they are reduced",
       .megatron = {"--main-grads-dtype"},
       .acts = is_aware,
       .record = Record::setting},
      {.name = "main_params_dtype",
       .field = [](S s) -> Field { return WordField::of(s.training.optimizer_precision.main_params_dtype); },
       .range = "`\"fp16\"` needs `use_precision_aware_optimizer`, and is predicted alone",
       .meaning = "type of masters; fp16 has one scale a tensor",
       .megatron = {"--main-params-dtype"},
       .acts = is_aware,
       .record = Record::identity_since},
      {.name = "exp_avg_dtype",
       .field = [](S s) -> Field { return WordField::of(s.training.optimizer_precision.exp_avg_dtype); },
       .range =
           "others than `\"fp32\"` need `use_precision_aware_optimizer`; `\"fp16\"` and `\"fp8\"` are predicted alone",
       .meaning =
           "type in which the first moment is kept: it is widened, updated in fp32 and rounded to nearest, ties to "
           "even. fp16 and fp8 have one scale a tensor",
       .megatron = {"--exp-avg-dtype"},
       .acts = is_aware,
       .record = Record::identity_since},
      {.name = "exp_avg_sq_dtype",
       .field = [](S s) -> Field { return WordField::of(s.training.optimizer_precision.exp_avg_sq_dtype); },
       .range = "as that of `exp_avg_dtype`",
       .meaning = "type in which the second moment is kept",
       .megatron = {"--exp-avg-sq-dtype"},
       .acts = is_aware,
       .record = Record::identity_since},
  };
}

}  // namespace stretto
