#include "model/recompute.hpp"

#include "base/values_of.hpp"

namespace stretto {

const char* name_of(Recompute::Granularity granularity) {
  return name_in({"none", "selective", "selective_op", "full"}, granularity);
}
const char* name_of(Recompute::Method method) { return name_in({"uniform", "block"}, method); }
const char* name_of(Recompute::Module module) {
  return name_in({"core_attn", "mla_up_proj", "layernorm", "moe_act", "mlp", "shared_experts", "moe"}, module);
}

}  // namespace stretto
