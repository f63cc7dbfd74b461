#include "model/training_flops.hpp"

#include <map>

#include "model/layers/layers.hpp"
#include "model/passes/passes.hpp"

namespace stretto {
namespace {

// One rank has all of the model, and a micro-batch is one sequence.
Layout layout_of_sequence(const Transformer& model, double document_tokens) {
  Layout layout{.model = model};
  layout.data.masks_documents = document_tokens > 0;
  layout.data.document_tokens = document_tokens;
  layout.tokens = model.seq_length;
  layout.experts.local = model.experts.num_moe_experts;
  return layout;
}

template <class Write>
LayerGraphs derived(const Layout& layout, const Write& write) {
  LayerGraphs graphs;
  Builder builder(graphs, layout.model, layout.data);
  write(builder);
  passes::derive(graphs, layout);
  return graphs;
}

// Calls use(graphs, layers) with the graphs of each kind of layer and the numbers of the layers of this kind.
template <class Use>
void for_each_kind(const Layout& layout, const Use& use) {
  std::map<LayerSpec, std::vector<std::int64_t>> kinds;
  for (std::int64_t layer = 0; layer < layout.model.num_layers; ++layer)
    kinds[layout.model.layer(layer)].push_back(layer);
  for (const auto& [spec, layers] : kinds)
    use(derived(layout, [&kind = spec](Builder& g) { layers::layer(g, kind); }), layers);
}

// Returns the FLOPs of a product of the whole model, and those of linear attention, which are of no pairs of tokens; 0
// for other works.
double product_flops(const Node& node, const LayerGraphs& graphs) {
  const auto rows = [&](std::size_t i) {
    const Slice& slice = node.operands[i].slice;
    return double(slice.rows > 0 ? slice.rows : graphs.of(slice).rows.size);
  };
  const auto cols = [&](std::size_t i) { return double(node.operands[i].slice.cols); };
  const std::size_t result = node.operands.size() - 1;
  if (const auto* product = std::get_if<Gemm>(&node.work))
    return 2 * rows(result) * cols(result) * (product->trans_a ? rows(0) : cols(0));
  if (const auto* product = std::get_if<GroupedGemm>(&node.work))  // each row is of one expert
    return 2 * rows(0) * cols(0) * cols(product->pass == Pass::wgrad ? 1 : result);
  if (std::visit([]<class W>(const W&) { return OfLinearAttention<W>; }, node.work)) return model_flops(node.work);
  return 0;
}

// The forward kernel multiplies twice (QKᵀ, PV), the backward kernel five times (QKᵀ again, dV, dP, dQ, dK), each over
// the part of the square that its blocks touch.
double executed_flops(const Attention& a) {
  const bool is_forward = a.pass == Pass::forward;
  const double widths = double((is_forward ? 1 : 3) * a.head_dim) + double((is_forward ? 1 : 2) * a.width_of_values());
  return 2 * double(a.batch) * double(a.heads) * attention_pairs(a).multiplied * widths;
}

// Unfused attention multiplies all pairs, and does not form QKᵀ again because it has kept the probabilities.
double executed_flops(const Node& node, const LayerGraphs& graphs) {
  if (const auto* attention = std::get_if<Attention>(&node.work)) return executed_flops(*attention);
  if (const auto* product = std::get_if<AttentionProduct>(&node.work))
    return 2 * double(product->score_rows()) * double(product->seq) * double(product->head_dim);
  return product_flops(node, graphs);
}

void add_node(Flops& sum, const Node& node, const LayerGraphs& graphs) {
  sum.hardware += executed_flops(node, graphs);
  const double product = product_flops(node, graphs);
  sum.model += product;
  sum.model_within_documents += product;
  sum.model_full_attention += product;
  const auto* attention = std::get_if<Attention>(&node.work);
  if (attention == nullptr) return;
  Attention whole = *attention;
  whole.by_document = false;
  const double flops = model_flops(whole);
  sum.model += flops;
  sum.model_within_documents += flops * (attention_pairs(*attention).count / attention_pairs(whole).count);
  whole.rules = {};
  sum.model_full_attention += model_flops(whole) * (whole.causal ? 2 : 1);
}

Flops flops_of(const LayerGraphs& graphs) {
  Flops sum;
  for (const std::vector<Node>* nodes : {&graphs.forward, &graphs.backward})
    for (const Node& node : *nodes) add_node(sum, node, graphs);
  return sum;
}

void add_times(Flops& sum, const Flops& more, double times) {
  sum.model += times * more.model;
  sum.model_within_documents += times * more.model_within_documents;
  sum.hardware += times * more.hardware;
  sum.model_full_attention += times * more.model_full_attention;
}

Flops flops_of_layers(const Layout& layout) {
  Flops sum;
  for_each_kind(layout, [&](const LayerGraphs& graphs, const std::vector<std::int64_t>& layers) {
    add_times(sum, flops_of(graphs), double(layers.size()));
  });
  return sum;
}

Flops flops_of_head(const Layout& layout) {
  return flops_of(derived(layout, [](Builder& g) { layers::head(g, g.model().head_weight()); }));
}

}  // namespace

Flops training_flops_per_sequence(const Transformer& model, bool frozen_base, AttentionBackend backend,
                                  double document_tokens) {
  Layout layout = layout_of_sequence(model, document_tokens);
  layout.trains = !frozen_base;
  Flops flops = flops_of_layers(layout);
  Transformer unpadded = model;
  unpadded.padded_vocab_size = model.vocab_size;
  Layout without_padding = layout_of_sequence(unpadded, document_tokens);
  without_padding.trains = !frozen_base;
  add_times(flops, flops_of_head(without_padding), 1);
  if (backend == AttentionBackend::fused && model.padded_vocab_size == model.vocab_size) return flops;
  layout.is_unfused = backend == AttentionBackend::unfused;
  flops.hardware = flops_of_layers(layout).hardware + flops_of_head(layout).hardware;
  return flops;
}

double recompute_flops_per_sequence(const Transformer& model, const Recompute& recompute, AttentionBackend backend,
                                    std::int64_t tp, double document_tokens) {
  if (recompute.granularity == Recompute::Granularity::none) return 0;
  Layout layout = layout_of_sequence(model, document_tokens);
  layout.tp = tp;
  layout.is_unfused = backend == AttentionBackend::unfused;
  layout.recompute = recompute;
  double flops = 0;
  for_each_kind(layout, [&](const LayerGraphs& graphs, const std::vector<std::int64_t>& layers) {
    double parts = 0, whole = 0, inner = 0;
    for (const std::vector<Node>* nodes : {&graphs.again, &graphs.backward})
      for (const Node& node : *nodes)
        if (node.is_recomputed()) parts += executed_flops(node, graphs);
    const std::size_t needed = passes::needed_by_backward(graphs, recompute.whole_layers);
    for (std::size_t i = 0; i < graphs.forward.size(); ++i) {
      const double of_node = executed_flops(graphs.forward[i], graphs);
      whole += of_node;
      if (i < needed) inner += of_node;
    }
    for (const std::int64_t layer : layers) {
      const bool is_last = layer + 1 == model.num_layers || (layer + 1) % recompute.group() == 0;
      flops += !recompute.is_full(layer) ? parts : is_last ? inner : whole;
    }
  });
  return flops;
}

}  // namespace stretto
