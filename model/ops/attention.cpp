#include "model/ops/attention.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "model/ops/documents.hpp"
#include "model/ops/dropout.hpp"
#include "model/ops/sizes_text.hpp"

namespace stretto {

double causal_attention_share(std::int64_t seq) {
  double multiplied = 0;
  for (std::int64_t begin = 0; begin < seq; begin += kAttentionQueryBlock) {
    const std::int64_t end = std::min(begin + kAttentionQueryBlock, seq);
    multiplied += double(end - begin) * double(end);
  }
  return multiplied / (double(seq) * double(seq));
}

namespace {

// Sums over pairs of positions of r^distance, the probability that both are in one document, where each token ends its
// document with probability 1 − r = 1 / mean.
class OneDocument {
 public:
  // Documents of fewer tokens count as if they had two.
  explicit OneDocument(double mean) : mean_(std::max(mean, 2.0)), log_r_(std::log1p(-1 / mean_)) {}
  double power(double exponent) const { return std::exp(exponent * log_r_); }
  double sum(double n) const { return -std::expm1(n * log_r_) * mean_; }  // 1 + r + … + r^(n − 1)
  // Keys before a query, of the `n` that are there, that it sees: r + … + r^n.
  double before(double n) const { return power(1) * sum(n); }
  // Pairs of n queries with these and earlier ones as keys: Σ (n − d) r^d.
  double below_diagonal(double n) const { return mean_ * (n - before(n)); }
  // Keys of a run of `n` that a query sees which is `distance` positions after the run's first.
  double seen(double distance, double n) const { return power(distance - (n - 1)) * sum(n); }

 private:
  double mean_, log_r_;
};

// Adds the pairs of a run of queries with a run of keys at or before it.
void add_pairs(AttentionPairs& pairs, const OneDocument& documents, const SequenceRun& q, const SequenceRun& k) {
  const double keys = double(k.length);
  const bool is_own = k.position == q.position;
  const auto distance = double(q.position - k.position);
  pairs.count += is_own ? documents.below_diagonal(double(q.length))
                        : documents.seen(distance, keys) * documents.sum(double(q.length));
  // A block multiplies all keys from the document of its first query on.
  for (std::int64_t begin = 0; begin < q.length; begin += kAttentionQueryBlock) {
    const auto rows = double(std::min(kAttentionQueryBlock, q.length - begin)), at = double(begin);
    pairs.multiplied += rows * (is_own ? documents.before(at) + rows : documents.seen(distance + at, keys));
  }
}

// Returns the pairs under rules that let a query see fewer keys, of whole sequences. A block multiplies all keys from
// the first one that its first query sees.
AttentionPairs limited_pairs(const Attention& attention) {
  const ScoreRules& rules = attention.rules;
  std::optional<OneDocument> documents;
  if (attention.by_document && attention.document_tokens > 0) documents.emplace(attention.document_tokens);
  const auto seen = [&](std::int64_t keys) { return documents ? documents->sum(double(keys)) : double(keys); };
  AttentionPairs pairs;
  for (std::int64_t begin = 0; begin < attention.seq; begin += kAttentionQueryBlock) {
    const std::int64_t end = std::min(begin + kAttentionQueryBlock, attention.seq);
    for (std::int64_t query = begin; query < end; ++query) pairs.count += seen(query + 1 - rules.first_key(query));
    pairs.multiplied += double(end - begin) * (seen(begin + 1 - rules.first_key(begin)) + double(end - begin - 1));
  }
  return pairs;
}

}  // namespace

AttentionPairs attention_pairs(const Attention& attention) {
  if (attention.rules.limits_keys()) return limited_pairs(attention);
  SequenceParts queries = attention.queries, keys = attention.keys;
  queries.first = queries.first.eval({});
  keys.first = keys.first.eval({});
  AttentionPairs pairs;
  for (const SequenceRun& q : runs_of(queries, attention.seq, 1, 0))
    for (const SequenceRun& k : runs_of(keys, attention.seq, 1, 0)) {
      if (attention.by_document && attention.document_tokens > 0) {
        if (k.position <= q.position) add_pairs(pairs, OneDocument(attention.document_tokens), q, k);
        continue;
      }
      const double all = double(q.length) * double(k.length), n = double(q.length);
      if (!attention.causal || k.position < q.position) {
        pairs.count += all;
        pairs.multiplied += all;
      } else if (k.position == q.position) {  // chunks have one length, so they are equal
        pairs.count += n * (n + 1) / 2;
        pairs.multiplied += all * causal_attention_share(q.length);
      }
    }
  return pairs;
}

OperandList operands(const Attention& a) {
  using namespace operand_specs;
  if (a.batch < 1 || a.heads < 1 || a.kv_heads < 1 || a.seq < 1 || a.head_dim < 1)
    return bad("dimensions must be positive");
  if (a.heads % a.kv_heads != 0) return bad("kv_heads must divide heads");
  for (const SequenceParts& parts : {a.queries, a.keys})
    if (const std::string problem = problem_of(parts, a.seq); !problem.empty()) return bad(problem);
  if (a.queries.of != a.keys.of) return bad("queries and keys must be parts of one sequence");
  if (!a.kv_apart && a.queries != a.keys) return bad("queries and keys of one operand must be the same tokens");
  if (a.value_dim < 0 || (a.kv_apart && a.value_dim > 0))
    return bad("values of another width are in one operand with q");
  const std::int64_t tokens = a.batch * a.query_tokens(), out = a.out_cols(), hidden = a.heads * a.head_dim;
  const std::int64_t keys = a.batch * a.key_tokens(), kv = a.kv_cols();
  const bool is_forward = a.pass == Pass::forward;
  if (has_wgrad(a.pass)) return bad("attention has no weights");
  OperandList list;
  list.operands.push_back({"qkv", "R", tokens, a.qkv_cols()});
  if (a.kv_apart) list.operands.push_back({"kv", "R", keys, kv});
  list.operands.push_back({"out", is_forward ? "W" : "R", tokens, out});
  list.operands.push_back({"lse", is_forward ? "W" : "R", a.batch * a.heads, a.query_tokens()});
  if (!is_forward) {
    list.operands.push_back({"dout", "R", tokens, out});
    if (!a.kv_apart) list.operands.push_back({"dqkv", "W", tokens, a.qkv_cols()});
    if (a.kv_apart) list.operands.push_back({"dq", "W", tokens, hidden});
    if (a.kv_apart) list.operands.push_back({"dkv", "W", keys, kv});
  }
  if (!(a.dropout >= 0 && a.dropout < 1)) return bad("dropout must be a probability below 1");
  if (a.dropout > 0) list.operands.push_back(vector_of("key", "R", kDropoutKeyWords, Type::i32));
  if (a.by_document && !a.causal) return bad("documents are of causal attention");
  if (!(a.document_tokens >= 0)) return bad("document_tokens must not be negative");
  if (a.rules != ScoreRules{} && (!a.causal || a.kv_apart))
    return bad("rules of scores are of causal attention to keys of one operand with q");
  if (a.rules.window < 0 || a.rules.chunk < 0 || !(a.rules.cap >= 0)) return bad("rules must not be negative");
  if (a.rules.learns_sink && !a.rules.has_sink) return bad("a sink that is learned must be there");
  if (a.rules.learns_sink) list.operands.push_back(vector_of("sinks", "R", a.heads));
  if (a.rules.learns_sink && !is_forward) list.operands.push_back(vector_of("dsinks", "A", a.heads));
  if (a.by_document) list.operands.push_back(documents_of(a.batch, a.seq));
  return list;
}

OperandList operands(const AttentionMerge& m) {
  using namespace operand_specs;
  if (m.parts < 1 || m.batch < 1 || m.heads < 1 || m.tokens < 1 || m.head_dim < 1)
    return bad("dimensions must be positive");
  if (m.held < 1 || m.tokens % m.held != 0) return bad("held must divide tokens");
  const std::int64_t rows = m.batch * m.tokens, hidden = m.heads * m.head_dim;
  return {{{"outs", "R", m.parts * rows, hidden},
           {"lses", "R", m.parts * m.batch * m.heads, m.tokens},
           {"out", "W", rows, hidden},
           {"lse", "W", m.batch * m.heads, m.tokens}},
          ""};
}

OperandList operands(const PackKv& p) {
  using namespace operand_specs;
  if (p.rows < 1 || p.heads < 1 || p.kv_heads < 1 || p.head_dim < 1) return bad("dimensions must be positive");
  return {{{"qkv", "R", p.rows, p.q_cols() + p.kv_cols()}, {"kv", "W", p.rows, p.kv_cols()}}, ""};
}

OperandList operands(const JoinQkv& j) {
  using namespace operand_specs;
  if (j.parts < 1 || j.rows < 1 || j.heads < 1 || j.kv_heads < 1 || j.head_dim < 1)
    return bad("dimensions must be positive");
  if (j.sums != 1 && j.sums != 2) return bad("dkv is one matrix or the sum of two");
  OperandList list{{{"dq", "R", j.parts * j.rows, j.q_cols()}}, ""};
  for (std::int64_t i = 0; i < j.sums; ++i) list.operands.push_back({"dkv", "R", j.rows, j.kv_cols()});
  list.operands.push_back({"dqkv", "W", j.rows, j.q_cols() + j.kv_cols()});
  return list;
}

OperandList operands(const SplitHeads& h) {
  using namespace operand_specs;
  if (h.groups < 1 || h.rows < 1 || h.heads < 1 || h.kv_heads < 0 || h.head_dim < 1)
    return bad("dimensions must be positive");
  if (h.heads % h.groups != 0 || h.kv_heads % h.groups != 0) return bad("groups must divide heads and kv_heads");
  if (h.pass != Pass::forward && h.pass != Pass::backward) return bad("it has a way there and a way back");
  const OperandSpec x{"x", h.pass == Pass::forward ? "R" : "W", h.rows, h.cols()};
  const OperandSpec y{"y", h.pass == Pass::forward ? "W" : "R", h.groups * h.rows, h.cols() / h.groups};
  if (h.pass == Pass::forward) return {{x, y}, ""};
  return {{y, x}, ""};
}

std::string sizes_text(const Attention& a) {
  return std::string(name_of(a.pass)) + " batch " + std::to_string(a.batch) + heads_text(a.heads, a.kv_heads) +
         " seq " + std::to_string(a.seq) + " dim " + std::to_string(a.head_dim) +
         (a.value_dim > 0 ? " values " + std::to_string(a.value_dim) : "") + (a.causal ? " causal" : "") +
         (a.dropout > 0 ? " dropout" : "") + (a.by_document ? " by document" : "") +
         (a.rules.window > 0 ? " window " + std::to_string(a.rules.window) : "") +
         (a.rules.chunk > 0 ? " chunks of " + std::to_string(a.rules.chunk) : "") + (a.rules.cap > 0 ? " capped" : "") +
         (a.rules.has_sink ? " sink" : "") + parts_text(" queries ", a.queries) + parts_text(" keys ", a.keys);
}

std::string sizes_text(const AttentionMerge& m) {
  return std::to_string(m.parts) + " parts batch " + std::to_string(m.batch) + heads_text(m.heads, m.heads) +
         " tokens " + std::to_string(m.tokens) + " dim " + std::to_string(m.head_dim);
}

std::string sizes_text(const SplitHeads& h) {
  return std::string(name_of(h.pass)) + " " + dims(h.rows, h.cols()) + " by " + std::to_string(h.groups);
}

double counted_flops(const Attention& a) {
  // Attention has two matmuls forward (QKᵀ, PV) and four in the gradient (dV, dP, dQ, dK), half of them of seq × seq
  // × head_dim and half as wide as the values. A kernel may recompute QKᵀ in the backward pass, which is not counted.
  const double matmuls = a.pass == Pass::forward ? 2 : 4;
  // Half of all pairs count where some are masked: under context parallelism the parts of a sequence are cut so that
  // each has its share of that half.
  const double full = matmuls * 2.0 * double(a.batch) * double(a.heads) * double(a.query_tokens()) *
                      double(a.key_tokens()) * double(a.head_dim + a.width_of_values()) / 2;
  if (a.rules.limits_keys())  // counted pair by pair, as Megatron-Bridge does (flop_utils.py)
    return full * attention_pairs(a).count / (double(a.seq) * double(a.seq));
  return a.causal ? full / 2 : full;
}

}  // namespace stretto
