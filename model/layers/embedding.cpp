#include "model/layers/layers.hpp"

namespace stretto::layers {

void embedding(Builder& g) {
  const Transformer& m = g.model();
  g.set_module(Module::embedding);
  const Slice out = g.stream(Given::input), embedded = m.hidden_dropout > 0 ? g.branch_result() : out;
  Embedding work{Pass::forward, 0, m.hidden_size, m.padded_vocab_size, m.seq_length};
  work.positions = m.position_embedding_type == PositionEmbedding::learned_absolute;
  work.by_document = work.positions && g.data().resets_positions;
  std::vector<Operand> operands = {
      reads(g.given(Given::tokens)),
      reads(g.parameter("wte.weight", {Dim::vocab, m.padded_vocab_size}, {Dim::none, m.hidden_size}, false))};
  if (work.positions)
    operands.push_back(
        reads(g.parameter("wpe.weight", {Dim::none, m.max_position_embeddings}, {Dim::vocab, m.hidden_size}, false)));
  operands.push_back(writes(embedded));
  if (work.by_document) operands.push_back(reads(g.given(Given::documents)));
  g.add("embedding", "fprop", work, std::move(operands));
  if (m.hidden_dropout > 0)
    g.add("embedding.dropout", "", g.hidden_dropout(DropoutSite::embedding, false),
          {reads(embedded), reads(g.given(Given::dropout_key)), writes(out)});
}

}  // namespace stretto::layers
