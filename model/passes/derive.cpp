#include <cassert>

#include "model/passes/check.hpp"
#include "model/passes/passes.hpp"

namespace stretto::passes {

void derive(LayerGraphs& graphs, const Layout& layout) {
  share_context(graphs, layout);
  unfuse_attention(graphs, layout);
  share_experts(graphs, layout);
  share_tensor(graphs, layout);  // before gradients: those of what enters and leaves are Megatron-LM's sums and gathers
  differentiate(graphs, layout);
  settle(graphs, layout);
  fuse(graphs, layout);  // before weight gradients are split off, and what is kept together is repeated together
  halve_gates(graphs, layout);
  order(graphs, layout);
  precision(graphs, layout);  // before weight gradients are split off, which read codes
  split_weights(graphs,
                layout);  // before modules are repeated at the first node of a section
  recompute(graphs, layout);
  regather(graphs, layout);  // in the final order
  mark_kept(graphs, layout);
  freeze(graphs, layout);
#if defined(_GLIBCXX_ASSERTIONS)
  assert(problems_of(graphs, layout).empty());  // of what runs: a frozen base has no weight gradients
#endif
  name_numbers(graphs, layout);
}

}  // namespace stretto::passes
