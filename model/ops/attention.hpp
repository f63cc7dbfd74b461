#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "model/ops/expr.hpp"
#include "model/ops/operand_list.hpp"
#include "model/ops/pass.hpp"
#include "model/ops/sequence_parts.hpp"

namespace stretto {

// Causal attention multiplies blocks of this many queries with the keys up to the block's last query, so it executes
// causal_attention_share(seq) of the seq × seq square: between a half and all of it.
constexpr std::int64_t kAttentionQueryBlock = 64;
double causal_attention_share(std::int64_t seq);

// Rules for the scores of a query of causal attention, which has score s_j with key j. All are of the scaled scores.
struct ScoreRules {
  std::int64_t window = 0;   // a query sees this many keys, its own and those right before it; 0: all before it
  std::int64_t chunk = 0;    // it sees only keys of its own run of this many positions, from 0 on (Llama 4)
  double cap = 0;            // s becomes cap · tanh(s / cap) (Gemma 2, arXiv 2408.00118); 0: it stays
  bool has_sink = false;     // the softmax divides by Σ exp(s_j) + exp(b), with one b a head (GPT-OSS's sinks)
  bool learns_sink = false;  // b is an operand; without it b is 0 ("off-by-one")

  bool limits_keys() const { return window > 0 || chunk > 0; }
  // Returns the position of the first key that a query sees.
  constexpr std::int64_t first_key(std::int64_t position) const {
    std::int64_t first = chunk > 0 ? position / chunk * chunk : 0;
    if (window > 0 && position + 1 - window > first) first = position + 1 - window;
    return first;
  }
  static constexpr std::array kFields = {"window", "chunk", "cap", "has_sink", "learns_sink"};
  bool operator==(const ScoreRules&) const = default;
};

// Softmax attention, per head of `head_dim`, causal when set; scale score_scale/sqrt(head_dim). qkv is [T, Q], Q =
// (heads + 2·kv_heads)·head_dim: for token t the row holds q of all heads, then k of all kv heads, then v; head h takes
// columns h·head_dim… of its segment. Heads of v and out are value_dim wide, unless it is 0, and then H = heads ·
// value_dim and Q = (heads + kv_heads)·head_dim + kv_heads·value_dim. Query head h attends with kv head h / (heads /
// kv_heads) (grouped queries, Ainslie et al., arXiv 2305.13245); dk and dv are sums over the query heads of the group.
// forward: qkv R, out[T,H] W, lse[batch·heads, tokens of a sequence] W (log-sum-exp of the scaled scores of a query).
// dgrad:   qkv R, out R, lse R, dout[T,H] R, dqkv[T,Q] W.
// With dropout > 0 the last operand is key R. Dropout's row is head · seq + query and its column the key; the rank has
// heads [first_head, first_head + heads) of the model.
//
// `seq` is the length of the whole sequence. Queries and keys may be different parts of it. With kv_apart, k and v come
// from another operand, kv[keys, 2·kv_heads·head_dim], k before v, which follows qkv; k and v of qkv are then not used,
// and dq[queries,H] and dkv[keys, …] replace dqkv. Positions in the sequence decide which keys a query attends to.
// Where a query sees none of the keys, out is 0 and lse −∞. The gradient takes out and lse over all keys of the
// sequence; its results are what these keys add to dq, and their dkv from these queries.
//
// by_document, only with causal: a query attends to keys of its own document only. Costs follow from the mean number of
// tokens of a document; 0: as if each sequence were one document.
//
// Rules other than ScoreRules{} are of causal attention to keys of one operand with q. lse has the sink in it. With
// learns_sink, sinks[1,heads] R come before documents, and in the gradient dsinks[1,heads] A follow them.
struct Attention {
  Pass pass = Pass::forward;
  std::int64_t batch = 0, heads = 0, kv_heads = 0, seq = 0, head_dim = 0;
  bool causal = true;
  double dropout = 0;
  Expr first_head = 0;
  SequenceParts queries = {}, keys = {};
  bool kv_apart = false;  // value_dim is 0
  std::int64_t value_dim = 0;
  double score_scale = 1;
  bool by_document = false;
  double document_tokens = 0;
  ScoreRules rules = {};

  std::int64_t width_of_values() const { return value_dim > 0 ? value_dim : head_dim; }
  std::int64_t out_cols() const { return heads * width_of_values(); }
  std::int64_t kv_cols() const { return kv_heads * (head_dim + width_of_values()); }
  std::int64_t qkv_cols() const { return heads * head_dim + kv_cols(); }
  // Tokens of a micro-batch that are held as queries or keys: `tokens` of each sequence.
  std::int64_t query_tokens() const { return queries.tokens(seq); }
  std::int64_t key_tokens() const { return keys.tokens(seq); }
  static constexpr const char* kKind = "attention";
  static constexpr std::array kFields = {
      "pass",      "batch",       "heads",       "kv_heads",        "seq",  "head_dim",
      "causal",    "dropout",     "first_head",  "queries",         "keys", "kv_apart",
      "value_dim", "score_scale", "by_document", "document_tokens", "rules"};
  bool operator==(const Attention&) const = default;
};
// Pairs of a query and a key of one head of one sequence. `count` are the pairs that count, below the diagonal when
// causal; `multiplied` are those that a kernel with blocks of kAttentionQueryBlock queries multiplies. Places that
// depend on the rank are taken at coordinate 0: under context parallelism all ranks have equally many pairs. Pairs of
// one document are those to be expected if each token ends its document with probability 1 / document_tokens; under
// context parallelism ranks then differ, and the numbers are the first rank's.
struct AttentionPairs {
  double count = 0, multiplied = 0;
};
AttentionPairs attention_pairs(const Attention& attention);

// Combines the attention of `parts` passes over different keys: out = Σ_i exp(lse_i − lse) · outs_i, lse = log Σ_i
// exp(lse_i) (FlashAttention's rescaling, arXiv 2205.14135, in one sum). A pass that saw no key of a query has lse −∞
// and adds nothing. outs[parts · batch · tokens, H] R, lses[parts · batch · heads, tokens] R, out[batch · tokens, H] W,
// lse[batch · heads, tokens] W. `tokens` are those of one sequence, in `held` parts of it (SequenceParts::count).
struct AttentionMerge {
  std::int64_t parts = 1, batch = 0, heads = 0, tokens = 0, head_dim = 0, held = 1;

  // Returns the row of a token of a sequence, in `out` or in one of `outs`.
  std::int64_t row_of(std::int64_t sample, std::int64_t token) const {
    const std::int64_t each = tokens / held;
    return (token / each * batch + sample) * each + token % each;
  }

  static constexpr const char* kKind = "attention_merge";
  static constexpr std::array kFields = {"parts", "batch", "heads", "tokens", "head_dim", "held"};
  bool operator==(const AttentionMerge&) const = default;
};

// Copies kv[rows, 2·kv_heads·head_dim] out of a packed qkv. qkv R, kv W. Operands are whole, as Rope's are, so that the
// verifier sees one contiguous range for each.
struct PackKv {
  std::int64_t rows = 0, heads = 0, kv_heads = 0, head_dim = 0;

  std::int64_t q_cols() const { return heads * head_dim; }
  std::int64_t kv_cols() const { return 2 * kv_heads * head_dim; }
  static constexpr const char* kKind = "pack_kv";
  static constexpr std::array kFields = {"rows", "heads", "kv_heads", "head_dim"};
  bool operator==(const PackKv&) const = default;
};

// Sums a packed dqkv from the results of several passes: dq is the sum of `parts` matrices, dkv that of one or two.
// dq[parts · rows, H] R, dkv R, (another dkv R when `sums` is 2), dqkv W.
struct JoinQkv {
  std::int64_t parts = 1, sums = 1, rows = 0, heads = 0, kv_heads = 0, head_dim = 0;

  std::int64_t q_cols() const { return heads * head_dim; }
  std::int64_t kv_cols() const { return 2 * kv_heads * head_dim; }
  static constexpr const char* kKind = "join_qkv";
  static constexpr std::array kFields = {"parts", "sums", "rows", "heads", "kv_heads", "head_dim"};
  bool operator==(const JoinQkv&) const = default;
};

// Cuts the columns of x[rows, (heads + 2·kv_heads)·head_dim] (q, k, v of all heads, as Attention has them; with
// kv_heads 0 the output of attention) by heads: group g of `groups` has its share of each of q, k and v, as rows [g ·
// rows, (g + 1) · rows) of y[groups · rows, columns / groups]. forward: x R, y W.   backward, which joins them again: y
// R, x W.
struct SplitHeads {
  Pass pass = Pass::forward;
  std::int64_t groups = 1, rows = 0, heads = 0, kv_heads = 0, head_dim = 0;

  std::int64_t cols() const { return (heads + 2 * kv_heads) * head_dim; }
  static constexpr const char* kKind = "split_heads";
  static constexpr std::array kFields = {"pass", "groups", "rows", "heads", "kv_heads", "head_dim"};
  bool operator==(const SplitHeads&) const = default;
};

OperandList operands(const Attention& work);
OperandList operands(const AttentionMerge& work);
OperandList operands(const PackKv& work);
OperandList operands(const JoinQkv& work);
OperandList operands(const SplitHeads& work);
std::string sizes_text(const Attention& work);
std::string sizes_text(const AttentionMerge& work);
std::string sizes_text(const SplitHeads& work);
double counted_flops(const Attention& work);

}  // namespace stretto
