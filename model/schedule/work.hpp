#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/rope_scaling.hpp"
#include "model/schedule/expert_work.hpp"
#include "model/schedule/expr.hpp"
#include "model/schedule/fields.hpp"
#include "model/schedule/linear_work.hpp"
#include "model/schedule/low_precision_work.hpp"
#include "model/schedule/pass.hpp"
#include "model/schedule/sequence_parts.hpp"

namespace stretto {

// The work of an operation. Each kind lists its operands in order; an operation's accesses follow that order exactly. R
// = read, W = write (old contents ignored), A = accumulate (reads the old contents and adds to or updates them).
// Matrices are row-major. T = tokens of a micro-batch (micro_batch_size × sequence), H = hidden, F = ffn, V =
// vocabulary.
//
// Each kind lists its fields once (model/schedule/fields.hpp); JSON, hash and evaluation follow from the list. An Expr
// field depends on the rank's place: it names axes of the mesh, never coordinates of a call, and decides no size.
// bind() evaluates it, so simulator and executors read value().

// C[m,n] (W: =, A: +=) op(A)[m,k] · op(B)[k,n] (+ bias[n] on every row). Stored shapes: A is [m,k], or [k,m] when
// trans_a; B is [k,n], or [n,k] when trans_b. With an epilogue of GELU or the residual, Y[m,n] is that sum, and C,
// which is only written, is computed from Y:
//   gelu           X = Y, C = gelu(Y); X is saved for the gradient
//   gelu_backward  C = Y · gelu'(X), elementwise
//   bias_gradient  C as without an epilogue; X[1,m] += sums over k of op(A): A is the gradient of a sum with a bias
//   residual       C = X + Y; X and C do not overlap. Product, bias and X are summed in f32 when they are bf16, and
//                  rounded once; a separate addition would read the product rounded.
//   gelu_backward_bias_gradient  C = Y · gelu'(X), and S[1,n] += sums over the rows of C: S is the gradient of the bias
//                  that was added before the GELU
//
// With scalings A and B are codes with their scales (model/schedule/low_precision_work.hpp), of the stored shapes above
// and scaled along k: along the rows of A and of B with trans_b, along the columns of A with trans_a and of B. Codes
// are multiplied as the numbers that they stand for; scales of blocks apply within the sum, which is in f32, and the
// tensors' factors, inverse_a · inverse_b, to the sum, before bias, epilogue and rounding. split_accumulation: sums are
// in f32 throughout, where Hopper's tensor cores otherwise keep fewer bits (CUBLASLT_MATMUL_DESC_FAST_ACCUM = 0).
// Operands: A R, B R, (bias[1,n] R when `bias`), (X W with gelu, R with gelu_backward, gelu_backward_bias_gradient and
// residual, A with bias_gradient), (S A with gelu_backward_bias_gradient), (inverse_a[1,1] f32 R, inverse_b[1,1] f32 R
// where scalings have factors), C W|A. C has the type of the step or a wider one.
enum class GemmEpilogue : std::uint8_t {
  none,
  gelu,
  gelu_backward,
  bias_gradient,
  residual,
  gelu_backward_bias_gradient,
};
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false, bias = false;
  GemmEpilogue epilogue = GemmEpilogue::none;
  Scaling scaling_a = Scaling::none, scaling_b = Scaling::none;
  bool split_accumulation = false;

  bool has_codes() const { return scaling_a != Scaling::none; }
  bool has_factors() const { return rule_of(scaling_a).has_factor; }
  // Index of X among the operands.
  std::size_t x_index() const { return bias ? 3 : 2; }
  bool sums_columns() const { return epilogue == GemmEpilogue::gelu_backward_bias_gradient; }  // the work has S
  std::size_t s_index() const { return x_index() + 1; }
  std::size_t inverse_index() const {
    return x_index() + (epilogue == GemmEpilogue::none ? 0 : sums_columns() ? 2 : 1);
  }
  std::size_t c_index() const { return inverse_index() + (has_factors() ? 2 : 0); }
  static constexpr const char* kKind = "gemm";
  static constexpr std::array kFields = {"m",    "n",        "k",         "trans_a",   "trans_b",
                                         "bias", "epilogue", "scaling_a", "scaling_b", "split_accumulation"};
  bool operator==(const Gemm&) const = default;
};
const char* name_of(GemmEpilogue epilogue);  // "none", "gelu", …

// Dropout (Srivastava et al., JMLR 2014) of probability p multiplies each element by 0 or by 1 / (1 − p). The choice is
// a pure function of (key, site, sample, row, column), all of them places in the whole model: neither the layout nor
// the order of execution changes it, and the gradient draws the choice again and does not keep it. Philox4x32-10
// (base/rng.hpp) of counter {column / 4, row, sample, site} gives 32 bits for each of four columns; an element is kept
// when its bits are at least p·2³². key[1,3] i32: the 64-bit key of a step and layer, low half first, and the first
// sample of the micro-batch in the step's global batch.
enum class DropoutSite : std::uint32_t { attention, embedding, residual_1, residual_2 };
const char* name_of(DropoutSite site);  // "attention", …
constexpr std::int64_t kDropoutKeyWords = 3;
constexpr const char* kDropoutKey = "dropout.key";  // name of the input tensor, [layer][micro-batch]

// Causal attention multiplies blocks of this many queries with the keys up to the block's last query, so it executes
// causal_attention_share(seq) of the seq × seq square: between a half and all of it.
constexpr std::int64_t kAttentionQueryBlock = 64;
double causal_attention_share(std::int64_t seq);

// Documents are runs of tokens of a sequence that end with a token of their own. A work with `by_document` reads, as
// its last operand unless it says otherwise, documents[batch, seq] i32 R: for each position of each whole sequence of
// the micro-batch, whatever part of it the rank has, the position of the first token of its document.
constexpr const char* kDocuments = "documents";  // name of the input tensor, by micro-batch

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

  std::int64_t width_of_values() const { return value_dim > 0 ? value_dim : head_dim; }
  std::int64_t out_cols() const { return heads * width_of_values(); }
  std::int64_t kv_cols() const { return kv_heads * (head_dim + width_of_values()); }
  std::int64_t qkv_cols() const { return heads * head_dim + kv_cols(); }
  // Tokens of a micro-batch that are held as queries or keys: `tokens` of each sequence.
  std::int64_t query_tokens() const { return queries.tokens(seq); }
  std::int64_t key_tokens() const { return keys.tokens(seq); }
  static constexpr const char* kKind = "attention";
  static constexpr std::array kFields = {
      "pass",       "batch",   "heads", "kv_heads", "seq",       "head_dim",    "causal",      "dropout",
      "first_head", "queries", "keys",  "kv_apart", "value_dim", "score_scale", "by_document", "document_tokens"};
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

// One product of unfused attention, batched over samples and heads; qkv and heads are as in Attention. Scores and
// probabilities are [batch·heads·seq, seq], row (sample · heads + head) · seq + query; q, k and v are columns of qkv,
// and dq, dk and dv have the same columns as matrices of their own. Every query is multiplied with every key: Softmax
// sets masked pairs to 0. scale = 1/sqrt(head_dim). dk and dv are sums over the query heads of a group.
// scores:  qkv R, scores W.                          scale · q · kᵀ
// context: probabilities R, qkv R, out[T,H] W.       P · v
// dv:      probabilities R, dout[T,H] R, dv W.       Pᵀ · dout
// dp:      dout[T,H] R, qkv R, dprobabilities W.     dout · vᵀ
// dq:      dscores R, qkv R, dq[T,H] W.              scale · dS · k
// dk:      dscores R, qkv R, dk W.                   scale · dSᵀ · q
enum class AttentionFactor : std::uint8_t { scores, context, dv, dp, dq, dk };
const char* name_of(AttentionFactor product);  // "attention_scores", …
struct AttentionProduct {
  AttentionFactor product = AttentionFactor::scores;
  std::int64_t batch = 0, heads = 0, kv_heads = 0, seq = 0, head_dim = 0;
  bool causal = true;  // half of the product counts as the model's (model_flops); all of it is multiplied

  std::int64_t score_rows() const { return batch * heads * seq; }
  static constexpr std::array kFields = {"product", "batch", "heads", "kv_heads", "seq", "head_dim", "causal"};
  bool operator==(const AttentionProduct&) const = default;
};

// Softmax of rows of scores. With `causal` the row of query q = row mod cols sees the keys 0 … q; others get 0. With
// by_document it sees those of its document only; each sequence then has `heads` squares of scores.
// forward: scores[rows,cols] R, probabilities W, (documents R with by_document).
// dgrad:   probabilities R, gradient A (in: of the probabilities; out: of the scores).
struct Softmax {
  Pass pass = Pass::forward;
  std::int64_t rows = 0, cols = 0;
  bool causal = true;
  bool by_document = false;
  std::int64_t heads = 1;  // of a sequence, with by_document

  std::int64_t seen(std::int64_t row) const { return causal ? row % cols + 1 : cols; }
  static constexpr const char* kKind = "softmax";
  static constexpr std::array kFields = {"pass", "rows", "cols", "causal", "by_document", "heads"};
  bool operator==(const Softmax&) const = default;
};

// Rotary position embedding (Su et al., arXiv 2104.09864), in place on q and k of a qkv as in Attention; v stays.
// Halves are rotated, as Llama in Hugging Face and Megatron-LM do it: with d = head_dim, elements i and i + d/2 of a
// head are a pair that is turned by the angle p · f, where f = base^(−2i/d), changed by `scaling`, and p is the row's
// position in the sequence (`parts` of it are held), or with by_document in its document. forward: qkv[rows, Q] A,
// (documents R). dgrad: dqkv[rows, Q] A (turned back), (documents R).
// The operand is the whole qkv although v is not touched, so that the verifier sees one contiguous range.
struct Rope {
  Pass pass = Pass::forward;
  std::int64_t rows = 0, heads = 0, kv_heads = 0, seq = 0, head_dim = 0;
  double base = 10000;
  SequenceParts parts = {};
  RopeScaling scaling = {};
  bool by_document = false;

  static constexpr const char* kKind = "rope";
  static constexpr std::array kFields = {"pass",     "rows", "heads", "kv_heads", "seq",
                                         "head_dim", "base", "parts", "scaling",  "by_document"};
  bool operator==(const Rope&) const = default;
};

// The heads of multi-latent attention (LatentAttention), from products that hold a head's [nope, value] side by side
// and one key of `rope` elements that all heads share. Queries are [nope, rope] a head, and so are keys, [heads] of
// them before the values in kv. Neighbours 2i and 2i + 1 of a rope part are a pair, as in DeepSeek's weights; both are
// turned by the angle p · f, where p is the row's position, row mod seq, or with by_document its position in its
// document, and f = yarn.frequency(i), and multiplied by yarn.of_elements().
// forward: up[rows, heads·(nope+value)] R, key[rows, rope] R, q[rows, heads·(nope+rope)] A, kv[rows,
//          heads·(nope+rope+value)] W.
// dgrad:   dkv R, dq A (turned back), dup W, dkey W (the sum over the heads, turned back).
struct LatentHeads {
  Pass pass = Pass::forward;
  std::int64_t rows = 0, heads = 0, seq = 0, nope = 0, rope = 0, value = 0;
  double base = 10000;
  YarnScaling yarn = {};
  bool by_document = false;

  std::int64_t q_cols() const { return heads * (nope + rope); }
  std::int64_t up_cols() const { return heads * (nope + value); }
  std::int64_t kv_cols() const { return q_cols() + heads * value; }
  static constexpr const char* kKind = "latent_heads";
  static constexpr std::array kFields = {"pass", "rows",  "heads", "seq",  "nope",
                                         "rope", "value", "base",  "yarn", "by_document"};
  bool operator==(const LatentHeads&) const = default;
};

// LayerNorm over the last dimension (Ba et al., arXiv 1607.06450). With `heads` above 1 every
// row of x, y, dx, dy and stats holds this many heads side by side, each with a norm of its own and all with one gamma
// and beta: x is [rows, heads·cols], stats [rows, heads·2].
// forward: x[rows,cols] R, gamma[1,cols] R, beta[1,cols] R, y W, stats[rows,2] W (mean, reciprocal standard deviation).
// dgrad:   dy R, x R, stats R, gamma R, dx W|A (A: dx already has the residual branch's gradient, and is added to).
// wgrad:   dy R, x R, stats R, dgamma A, dbeta A.
// backward: dy R, x R, stats R, gamma R, dgamma A, dbeta A, dx W|A.
struct LayerNorm {
  Pass pass = Pass::forward;
  std::int64_t rows = 0, cols = 0, heads = 1;
  double epsilon = 1e-5;

  std::int64_t all_rows() const { return rows * heads; }
  static constexpr const char* kKind = "layernorm";
  static constexpr std::array kFields = {"pass", "rows", "cols", "heads", "epsilon"};
  bool operator==(const LayerNorm&) const = default;
};

// RMSNorm over the last dimension (Zhang & Sennrich, arXiv 1910.07467):
// y = r · x ∘ gamma, r = 1/sqrt(mean(x²) + epsilon). `heads` as in LayerNorm: stats are [rows, heads].
// forward: x[rows,cols] R, gamma[1,cols] R, y W, stats[rows,1] W (r).
// dgrad:   dy R, x R, stats R, gamma R, dx W|A (as LayerNorm).
// wgrad:   dy R, x R, stats R, dgamma A.
// backward: dy R, x R, stats R, gamma R, dgamma A, dx W|A.
struct RmsNorm {
  Pass pass = Pass::forward;
  std::int64_t rows = 0, cols = 0, heads = 1;
  double epsilon = 1e-5;

  std::int64_t all_rows() const { return rows * heads; }
  static constexpr const char* kKind = "rmsnorm";
  static constexpr std::array kFields = {"pass", "rows", "cols", "heads", "epsilon"};
  bool operator==(const RmsNorm&) const = default;
};

// gelu:            x R, y W.   tanh approximation as GPT-2.
// gelu_backward:   dy R, x R, dx W.
// add:             a R, b R, c W.
// column_sum:      dy[rows,cols] R, db[1,cols] A.   (bias gradients)
// bias_add:        a R, b R, bias[1,cols] R, c W.   c = a + (b + bias)
// swiglu:          gate R, up R, y W.   y = silu(gate) ∘ up, silu(g) = g · sigmoid(g) (Shazeer, arXiv 2002.05202).
// swiglu_backward: dy R, gate R, up R, dx[rows,2·cols] W.   dx = [dgate, dup]
// accumulate:      a R, c A.   c += a
enum class ElementwiseFn : std::uint8_t {
  gelu,
  gelu_backward,
  add,
  column_sum,
  bias_add,
  swiglu,
  swiglu_backward,
  accumulate,
};
const char* name_of(ElementwiseFn fn);  // "gelu", …
struct Elementwise {
  ElementwiseFn fn = ElementwiseFn::add;
  std::int64_t rows = 0, cols = 0;

  static constexpr std::array kFields = {"fn", "rows", "cols"};
  bool operator==(const Elementwise&) const = default;
};

// forward: (a[rows,cols] R when `residual`), b R, (bias[1,cols] R when `bias`), key R, c W, (mask W when `keeps_mask`).
//          c = a + dropout(b + bias)
// dgrad:   dc R, key R (mask R when `keeps_mask`), db W.   db = dropout(dc)
// Dropout's row is the token's position in its sequence of `seq` tokens; `parts` of it are held. The rank has tokens
// [first_row, first_row + rows) of the micro-batch (all, or its own with sequence parallelism). A sample may also be
// another matrix of `seq` rows here, and `rows_before` of them lie before this rank's: the queries of the rank's heads.
// mask[rows, ⌈cols/4⌉] i32: one byte for each element, 1 where it is kept, the first element in the lowest bits.
struct Dropout {
  Pass pass = Pass::forward;
  std::int64_t rows = 0, cols = 0, seq = 0;
  double probability = 0;
  DropoutSite site = DropoutSite::embedding;
  bool bias = false, residual = false;
  Expr first_row = 0;
  Expr rows_before = 0;
  bool keeps_mask = false;
  SequenceParts parts = {};

  std::int64_t mask_cols() const { return (cols + 3) / 4; }
  static constexpr const char* kKind = "dropout";
  static constexpr std::array kFields = {"pass", "rows",     "cols",      "seq",         "probability", "site",
                                         "bias", "residual", "first_row", "rows_before", "keeps_mask",  "parts"};
  bool operator==(const Dropout&) const = default;
};

// forward: tokens[rows,1] i32 R, wte[vocab,cols] R, wpe[max_seq,cols] R, x[rows,cols] W.
// wgrad:   tokens R, dx R, dwte A, dwpe A.
// The position of a row is its position in a sequence of `seq` tokens (`parts` of it are held), or with by_document
// its position in its document; the last operand is then documents. Without `positions`
// wpe and dwpe are no operands, and x has only the rows of wte. With shards > 1, shard number t holds rows
// [t·vocab/shards, …) of wte and columns [t·cols/shards, …) of wpe: x is then the shard's term of the sum over all
// shards, 0 for other shards' tokens (vocab-parallel, Megatron-LM).
struct Embedding {
  Pass pass = Pass::forward;
  std::int64_t rows = 0, cols = 0, vocab = 0, seq = 0;
  bool positions = true;
  std::int64_t shards = 1;
  Expr shard = 0;
  SequenceParts parts = {};
  bool by_document = false;

  static constexpr const char* kKind = "embedding";
  static constexpr std::array kFields = {"pass",      "rows",   "cols",  "vocab", "seq",
                                         "positions", "shards", "shard", "parts", "by_document"};
  bool operator==(const Embedding&) const = default;
};

// Softmax cross-entropy and its gradient, in place. logits[rows,cols] A (on return: scale · (softmax − onehot)),
// targets[rows,1] i32 R, loss[1,1] f64 A (+= scale / shards · Σ nll). `scale` is 1 / tokens of the global batch, so
// that gradients and losses of all ranks and micro-batches simply add up. Columns from `classes` on are padding: the
// softmax leaves them out and their gradient is 0. With shards > 1 each rank has a slice of the vocabulary
// (Megatron-LM's vocab-parallel cross-entropy), classes [first_class, first_class + cols), and stats[shards, 3·rows] R,
// VocabStats of all shards, precedes loss. With `masked` a row whose target is kNoTarget counts for nothing and gets
// the gradient 0, and weight[1,1] f64 R, before loss, multiplies `scale`: tokens of the global batch over those that
// count.
constexpr std::int32_t kNoTarget = -1;
constexpr const char* kLossWeight = "loss.weight";  // name of the input tensor
struct CrossEntropy {
  std::int64_t rows = 0, cols = 0, classes = 0;
  double scale = 1;
  std::int64_t shards = 1;
  Expr first_class = 0;
  bool masked = false;

  static constexpr const char* kKind = "cross_entropy";
  static constexpr std::array kFields = {"rows", "cols", "classes", "scale", "shards", "first_class", "masked"};
  bool operator==(const CrossEntropy&) const = default;
};

// The statistics of one slice of the vocabulary, from first_class on, for the softmax of each row. logits[rows,cols] R,
// targets[rows,1] i32 R, stats[3,rows] W contiguous: max, Σ exp(logit − max), logit of the target or 0 when the target
// lies in another slice. `masked` as in CrossEntropy.
struct VocabStats {
  std::int64_t rows = 0, cols = 0, classes = 0;
  Expr first_class = 0;
  bool masked = false;

  static constexpr const char* kKind = "vocab_stats";
  static constexpr std::array kFields = {"rows", "cols", "classes", "first_class", "masked"};
  bool operator==(const VocabStats&) const = default;
};

// ---- of all models ----

// dst W.
struct Fill {
  std::int64_t elements = 0;
  double value = 0;

  static constexpr const char* kKind = "fill";
  static constexpr std::array kFields = {"elements", "value"};
  bool operator==(const Fill&) const = default;
};

// src R, dst W; element types are those of the tensors (f32/f64 ↔ bf16, round to nearest even; equal types, of codes
// too: a copy).
struct Cast {
  std::int64_t elements = 0;

  static constexpr const char* kKind = "cast";
  static constexpr std::array kFields = {"elements"};
  bool operator==(const Cast&) const = default;
};

// Casts to fp8 and back, with a scale for each block of kScaleBlock elements: x ≈ 2^(scale − 127) · value. The value is
// an e4m3 and the scale a byte, the smallest power of two for which no value of the block exceeds the largest e4m3, 448
// (the MXFP8 of the OCP microscaling specification, with scales rounded up as in Mishra et al., arXiv 2506.08027). A
// shard is its `elements` values, then its scales (base/fp8.hpp). forward: x[1, shards·elements] R, packed[1,
// shards·packed()] e4m3 W.   backward, which casts back: packed R, x W.
constexpr std::int64_t kScaleBlock = 32;
struct ScaledCast {
  Pass pass = Pass::forward;
  std::int64_t shards = 1, elements = 0;  // elements of a shard: a multiple of kScaleBlock

  static std::int64_t packed_bytes(std::int64_t elements) { return elements + elements / kScaleBlock; }
  std::int64_t packed() const { return packed_bytes(elements); }
  static constexpr const char* kKind = "scaled_cast";
  static constexpr std::array kFields = {"pass", "shards", "elements"};
  bool operator==(const ScaledCast&) const = default;
};

// parts[parts,elements] R, sum[1,elements] W: the sum of the rows, in order, in f32 where the parts are bf16. The sum
// may have a wider type. (The reduction of a reduce-scatter whose parts were sent one by one.)
struct LocalReduce {
  std::int64_t parts = 1, elements = 0;

  static constexpr const char* kKind = "local_reduce";
  static constexpr std::array kFields = {"parts", "elements"};
  bool operator==(const LocalReduce&) const = default;
};

// x[1,elements] R, sum[1,1] f64 A: sum += Σ x² / copies. The squared global gradient norm is accumulated bucket by
// bucket; an element that several ranks hold counts once.
struct SumSquares {
  std::int64_t elements = 0;
  std::int64_t copies = 1;

  static constexpr const char* kKind = "sum_squares";
  static constexpr std::array kFields = {"elements", "copies"};
  bool operator==(const SumSquares&) const = default;
};

// AdamW (Loshchilov & Hutter, arXiv 1711.05101) on one shard of a bucket, with global-norm clipping included: g is
// multiplied by min(1, clip / (norm + 1e-6)) (Megatron's and PyTorch's clip_grad_norm_), norm = sqrt(norm_squared).
// grad[1,elements] R, norm_squared[1,1] f64 R, hyper[1,8] f64 R, param A, m A, v A. hyper = {lr, beta1, beta2, eps,
// weight_decay, clip (0 = off), 1 − beta1^t, 1 − beta2^t}. `decayed` are the ranges of the *bucket* [begin, end) to
// which weight decay applies (matrices, not biases and norms); the shard covers [shard · elements, (shard + 1) ·
// elements) of it. With `master` the last operand is the master parameters, A: they are updated, and param W is their
// rounded copy. m, v and master may have types of their own: each is widened, updated in the type of the gradient and
// rounded to nearest, ties to even. With `remainders` too the last operand is i16, the lower halves of masters in f32
// whose upper halves, rounded to nearest with ties away from zero, are param A in bf16 (store_param_remainders of
// Megatron-LM d98e8a64; AdamFunctorMasterParamRemainder of TransformerEngine d0067d0, common/multi_tensor/adam.cu).
struct AdamW {
  std::int64_t elements = 0;
  struct Range {
    std::int64_t begin = 0, end = 0;
    bool operator==(const Range&) const = default;
  };
  std::vector<Range> decayed;
  std::int64_t shards = 1;
  bool master = false;
  Expr shard = 0;
  bool remainders = false;

  static constexpr const char* kKind = "adamw";
  static constexpr std::array kFields = {"elements", "decayed", "shards", "master", "shard", "remainders"};
  bool operator==(const AdamW&) const = default;
};

// all_gather:     own shard R, whole buffer W.     Where the two overlap, the shard is slice `rank` of the whole.
// reduce_scatter: whole buffer R, own shard W.     Sum in rank order 0,1,…,n−1 whatever the shard, accumulated in the
//                 element type (bf16: in f32, rounded once), so results do not depend on timing. Or the maximum.
// all_reduce:     whole buffer A.                  Sum in rank order, or the maximum.
// all_to_all:     whole buffer R, whole buffer W.  Slice j of rank i becomes slice i of rank j.
// dispatch:       rows R, (offsets R), received W. An all-to-all whose slices are as long as `offsets` says: rows of
//                 experts, sorted by expert, go to the ranks that have the experts, and lie there by rank (see Rows).
//                 Without `experts` slices are equal, and there is no operand `offsets`.
// combine:        received R, (offsets R), rows W. The way back.
enum class CollectiveKind : std::uint8_t { all_gather, reduce_scatter, all_reduce, all_to_all, dispatch, combine };
const char* name_of(CollectiveKind kind);  // "all_gather", …
// Returns the kind that moves as many bytes between the same members: all_to_all of dispatch and combine.
CollectiveKind like_equal_slices(CollectiveKind kind);

// One phase of a collective's data movement, which all members must have ended before the next phase begins. Every
// member gets one slice of the whole from every member, itself included: the giver's own slice, or the getter's. The
// getter reduces the slices in the order of members, all to one place, or copies them. model/schedule/parcel.hpp has
// the numbers.
struct CollectivePhase {
  enum class Slice : std::uint8_t { of_giver, of_getter } source, target;
  bool reduces = false;
  bool from_result = false;  // givers give from the result of the previous phase
};

// The properties of a kind of collective that its executors and checkers need. A member gives its shard or the whole
// buffer, and gets its shard or the whole.
struct CollectiveRule {
  const char* name = "?";
  bool gives_shard = false, gets_shard = false;
  bool one_buffer = false;  // input and result are one operand, A
  bool of_rows = false;     // it moves rows of experts: dispatch and combine
  int phases = 0;
  std::array<CollectivePhase, 2> phase = {};

  bool reduces() const { return phase[0].reduces; }  // otherwise it only copies
  // Returns whether the shard may be a slice of the whole; a kind with two whole buffers needs two separate ones.
  bool in_place() const { return one_buffer || gives_shard != gets_shard; }
};
CollectiveRule rule_of(CollectiveKind kind);

// How a reduce-scatter or an all-reduce combines the members' elements. The maximum is defined for numbers: where one
// element is NaN the result is any of them (NCCL's ncclMax). ring_sum is the sum that goes round a ring: it begins with
// the member after the one whose slice it is, ends with that one, and is rounded to the element's type at each. NCCL's
// rings sum so, whatever is asked for; only the host can do either.
enum class Reduction : std::uint8_t { sum, max, ring_sum };
const char* name_of(Reduction reduction);  // "sum", "max", "ring_sum"

// A collective: the members of the group meet (rendezvous), transfer, and complete together.
struct Collective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  std::uint32_t communicator = 0;        // index into Schedule::communicators
  std::int64_t elements = 0;             // elements of the whole buffer; divisible by the group size unless all_reduce
  Reduction reduction = Reduction::sum;  // others only for kinds that reduce
  // For dispatch and combine, whose `elements` are those of a member's rows of `cols` elements, sorted by expert. With
  // `experts` data says how much goes where: member m has as many of the `experts` as every other, from m · experts /
  // members on, and room for `capacity` elements of the rows of all members that go there, by member and then by
  // expert. offsets[members, experts + 1] i32: the first of each member's rows of each expert, then all.
  std::int64_t experts = 0, cols = 0, capacity = 0;
  std::int64_t copies = 0;  // rows that a token has; several may go to one member

  bool by_rows() const { return rule_of(kind).of_rows && experts > 0; }
  static constexpr std::array kFields = {"kind",    "communicator", "elements", "reduction",
                                         "experts", "cols",         "capacity", "copies"};
  bool operator==(const Collective&) const = default;
};

// One message to or from the member of a communicator that is `offset` places after this one in the ring of members.
// The n-th send from one member to another meets the other's n-th receive from it, in issue order on both sides. Bytes
// move when both have started (a posted receive means that its buffer is free), and both complete together. send:
// buffer R.  receive: buffer W.
struct PointToPoint {
  bool is_send = false;
  std::uint32_t communicator = 0;
  Expr offset = 1;
  std::int64_t elements = 0;

  static constexpr std::array kFields = {"is_send", "communicator", "offset", "elements"};
  bool operator==(const PointToPoint&) const = default;
};

using Work = std::variant<Gemm, Attention, AttentionProduct, Softmax, AttentionMerge, SplitHeads, PackKv, JoinQkv, Rope,
                          LatentHeads, LayerNorm, RmsNorm, Elementwise, Dropout, Route, BalanceLoss, MeanCounts,
                          CountLoads, MoveBias, SortTokens, Permute, CountRows, SortByExpert, GroupedGemm,
                          WeightedActivation, GateRows, ShortConv, LinearGates, LinearAttention, GatedNorm, Embedding,
                          CrossEntropy, VocabStats, Fill, Cast, ScaledCast, Amax, UpdateScale, Quantise, TransposeCodes,
                          LocalReduce, SumSquares, AdamW, Collective, PointToPoint>;

// A work of the router or of experts.
template <class W>
concept OfExperts = std::is_same_v<W, Route> || std::is_same_v<W, BalanceLoss> || std::is_same_v<W, MeanCounts> ||
    std::is_same_v<W, CountLoads> || std::is_same_v<W, MoveBias> || std::is_same_v<W, SortTokens> ||
    std::is_same_v<W, Permute> || std::is_same_v<W, CountRows> || std::is_same_v<W, SortByExpert> ||
    std::is_same_v<W, GroupedGemm> || std::is_same_v<W, WeightedActivation> || std::is_same_v<W, GateRows>;
inline bool is_of_experts(const Work& work) {
  return std::visit([]<class W>(const W&) { return OfExperts<W>; }, work);
}

// A work of low precision.
inline bool has_codes(const Work& work) {
  const auto* gemm = std::get_if<Gemm>(&work);
  const auto* grouped = std::get_if<GroupedGemm>(&work);
  return gemm != nullptr ? gemm->has_codes() : grouped != nullptr && grouped->has_codes();
}
inline bool is_of_low_precision(const Work& work) {
  return std::visit([]<class W>(const W&) { return OfLowPrecision<W>; }, work);
}

bool is_communication(const Work& work);
std::uint32_t communicator_of(const Work& work);  // communicator of a communication
const char* kind_of(const Work& work);            // "gemm", "attention", …
std::string describe(const Work& work);           // "gemm 512x768x256 tn"
// Multiply-adds × 2 of products and attention (causal halves it), and what frameworks count of linear attention; 0 for
// other kinds.
double model_flops(const Work& work);

// Returns whether the work of a rank depends on its coordinate on the axis.
bool depends_on(const Work& work, Coord axis);
// Returns the work of the rank at these coordinates, with every Expr a constant.
Work evaluate(const Work& work, const Coordinates& at);

// Returns a fused work (a GEMM with an epilogue, both gradients of a norm) as the works that it stands for, which run
// one after the other. An executor without a fused kernel runs these, and the simulator prices them. Empty: the work is
// not fused.
struct Part {
  Work work;
  struct Operand {
    std::size_t index = 0;  // index into the operands of the fused work
    bool is_read = false;   // this part reads the operand, whatever the fused work does with it
  };
  std::vector<Operand> operands;
};
std::vector<Part> parts_of(const Work& work);

}  // namespace stretto
