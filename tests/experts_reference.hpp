#pragma once
// A transformer with experts or multi-latent attention written down once more, number by number, on a tape that
// differentiates itself: nothing is shared with the kernels, the lowering or the layouts. For tiny models.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "exec/state/model_state.hpp"
#include "model/scenario.hpp"

namespace stretto::testing::experts {

// Reverse mode: every number knows the at most two numbers that it was made from, and its slope by each.
struct Tape {
  struct Node {
    std::int32_t a = -1, b = -1;
    double by_a = 0, by_b = 0;
  };
  std::vector<Node> nodes;
  std::int32_t add(Node node) {
    nodes.push_back(node);
    return static_cast<std::int32_t>(nodes.size()) - 1;
  }
  // Slopes of number `of` by every number.
  std::vector<double> slopes(std::int32_t of) const {
    std::vector<double> slope(nodes.size(), 0);
    slope[std::size_t(of)] = 1;
    for (std::size_t i = nodes.size(); i-- > 0;) {
      if (nodes[i].a >= 0) slope[std::size_t(nodes[i].a)] += slope[i] * nodes[i].by_a;
      if (nodes[i].b >= 0) slope[std::size_t(nodes[i].b)] += slope[i] * nodes[i].by_b;
    }
    return slope;
  }
};
inline Tape& tape() {
  static Tape one;
  return one;
}

struct Number {
  double value = 0;
  std::int32_t at = -1;  // -1: a constant
  Number(double v = 0) : value(v) {}
  Number(double v, Tape::Node node) : value(v), at(tape().add(node)) {}
  static Number variable(double v) { return {v, Tape::Node{}}; }
};
inline Number operator+(const Number& a, const Number& b) { return {a.value + b.value, {a.at, b.at, 1, 1}}; }
inline Number operator-(const Number& a, const Number& b) { return {a.value - b.value, {a.at, b.at, 1, -1}}; }
inline Number operator*(const Number& a, const Number& b) {
  return {a.value * b.value, {a.at, b.at, b.value, a.value}};
}
inline Number operator/(const Number& a, const Number& b) {
  return {a.value / b.value, {a.at, b.at, 1 / b.value, -a.value / (b.value * b.value)}};
}
inline Number exp(const Number& a) { return {std::exp(a.value), {a.at, -1, std::exp(a.value), 0}}; }
inline Number log(const Number& a) { return {std::log(a.value), {a.at, -1, 1 / a.value, 0}}; }
inline Number sqrt(const Number& a) { return {std::sqrt(a.value), {a.at, -1, 0.5 / std::sqrt(a.value), 0}}; }
inline Number tanh(const Number& a) {
  const double t = std::tanh(a.value);
  return {t, {a.at, -1, 1 - t * t, 0}};
}
inline Number sigmoid(const Number& a) { return Number(1) / (Number(1) + exp(Number(0) - a)); }

using Row = std::vector<Number>;

struct Array {
  std::int64_t rows = 0, cols = 0;
  std::vector<Number> values;
  const Number& at(std::int64_t row, std::int64_t col) const { return values[std::size_t(row * cols + col)]; }
};

struct Result {
  double loss = 0;  // of the language model alone
  std::map<std::string, std::vector<double>> gradients;
  double smallest_gap = 1;                           // between what is chosen last and what is not
  std::map<std::string, std::vector<double>> loads;  // by "h.1.": tokens of each expert
};

class Reference {
 public:
  Reference(const Scenario& scenario, const std::vector<exec::FullTensor>& weights)
      : m_(scenario.model), e_(scenario.model.experts) {
    tape().nodes.clear();
    for (const exec::FullTensor& tensor : weights) {
      Array array{tensor.shape[0], tensor.shape[1], {}};
      for (const double value : tensor.values)
        array.values.push_back(is_buffer(tensor.name) ? Number(value) : Number::variable(value));
      arrays_.emplace(tensor.name, std::move(array));
    }
  }

  // Trains on micro-batches, each of several sequences.
  Result run(const std::vector<std::vector<std::vector<std::int32_t>>>& tokens,
             const std::vector<std::vector<std::vector<std::int32_t>>>& targets) {
    Number loss = 0, more = 0;
    double count = 0;
    for (std::size_t b = 0; b < tokens.size(); ++b) {
      std::vector<std::vector<Row>> x;  // [sequence][position]
      for (const auto& sequence : tokens[b]) x.push_back(embedded(sequence));
      for (std::int64_t layer = 0; layer < m_.num_layers; ++layer) more = more + layer_of(layer, x);
      for (std::size_t s = 0; s < x.size(); ++s)
        for (std::size_t p = 0; p < x[s].size(); ++p) {
          const Row logits = times("lm_head.weight", norm("ln_f", x[s][p]));
          Number sum = 0;
          for (std::int64_t v = 0; v < m_.vocab_size; ++v) sum = sum + exp(logits[std::size_t(v)]);
          loss = loss + log(sum) - logits[std::size_t(targets[b][s][p])];
          count += 1;
        }
    }
    loss = loss / Number(count);
    const Number all = loss + more / Number(double(tokens.size()));
    Result result{loss.value, {}, smallest_gap_, {}};
    const std::vector<double> slopes = tape().slopes(all.at);
    result.loads = std::move(loads_);
    for (const auto& [name, array] : arrays_)
      for (std::size_t i = 0; i < array.values.size() && !is_buffer(name); ++i)
        result.gradients[name].push_back(slopes[std::size_t(array.values[i].at)]);
    return result;
  }

 private:
  static bool is_buffer(const std::string& name) { return name.ends_with("router.bias"); }
  const Array& array(const std::string& name) const { return arrays_.at(name); }
  std::vector<Row> embedded(const std::vector<std::int32_t>& tokens) const {
    std::vector<Row> x;
    for (const std::int32_t token : tokens) {
      Row row;
      for (std::int64_t c = 0; c < m_.hidden_size; ++c) row.push_back(array("wte.weight").at(token, c));
      x.push_back(std::move(row));
    }
    return x;
  }
  // Returns rows [first, first + count) of the weight, times x.
  Row times(const std::string& name, const Row& x, std::int64_t first = 0, std::int64_t count = -1) const {
    const Array& w = array(name);
    Row y;
    for (std::int64_t row = first; row < (count < 0 ? w.rows : first + count); ++row) {
      Number sum = 0;
      for (std::size_t c = 0; c < x.size(); ++c) sum = sum + w.at(row, std::int64_t(c)) * x[c];
      y.push_back(sum);
    }
    return y;
  }
  Row norm(const std::string& name, const Row& x) const {
    Number squares = 0;
    for (const Number& v : x) squares = squares + v * v;
    const Number scale = Number(1) / sqrt(squares / Number(double(x.size())) + Number(1e-5));
    Row y;
    for (std::size_t c = 0; c < x.size(); ++c)
      y.push_back(array(name + ".weight").at(0, std::int64_t(c)) * scale * x[c]);
    return y;
  }
  Row turned(const Row& head, std::size_t position) const {
    const std::size_t half = head.size() / 2;
    Row y(head.size());
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = double(position) * std::pow(m_.rotary_base, -2.0 * double(i) / double(head.size()));
      const Number c = std::cos(angle), s = std::sin(angle);
      y[i] = head[i] * c - head[i + half] * s;
      y[i + half] = head[i + half] * c + head[i] * s;
    }
    return y;
  }
  Row mlp_act(const Row& fc1, std::int64_t width) const {
    Row y;
    for (std::int64_t i = 0; i < width; ++i) {
      const Number& g = fc1[std::size_t(i)];
      if (m_.swiglu)
        y.push_back(g * sigmoid(g) * fc1[std::size_t(width + i)]);
      else
        y.push_back(Number(0.5) * g *
                    (Number(1) + tanh(Number(std::sqrt(2 / M_PI)) * (g + Number(0.044715) * g * g * g))));
    }
    return y;
  }

  Row part_of(const Row& row, std::int64_t first, std::int64_t count) const {
    return Row(row.begin() + first, row.begin() + first + count);
  }
  // Neighbours of a rope part turn, as YaRN stretches positions.
  Row turned_neighbours(Row part, std::size_t position) const {
    const YarnScaling& yarn = m_.latent.yarn;
    const double dim = double(part.size()), base = m_.rotary_base, log = std::log(yarn.factor);
    const auto pair_of = [&](double turns) {
      return dim * std::log(double(yarn.original_max_position_embeddings) / (turns * 2 * M_PI)) / (2 * std::log(base));
    };
    const double low = std::max(std::floor(pair_of(yarn.beta_fast)), 0.0),
                 high = std::min(std::ceil(pair_of(yarn.beta_slow)), dim - 1);
    const double factor = (0.1 * yarn.mscale * log + 1) / (0.1 * yarn.mscale_all_dim * log + 1);
    for (std::size_t i = 0; i < part.size(); i += 2) {
      const double share = std::clamp((double(i) / 2 - low) / (high == low ? 0.001 : high - low), 0.0, 1.0),
                   angle = double(position) * std::pow(base, -double(i) / dim) * (share / yarn.factor + 1 - share);
      const Number c = factor * std::cos(angle), s = factor * std::sin(angle), a = part[i], b = part[i + 1];
      part[i] = a * c - b * s;
      part[i + 1] = a * s + b * c;
    }
    return part;
  }
  // Queries, keys and values of every head, each [head][position], of multi-latent attention.
  using Heads = std::vector<std::vector<Row>>;
  std::array<Heads, 3> latent_heads(const std::string& h, const std::vector<Row>& x) const {
    const LatentAttention& of = m_.latent;
    const std::int64_t heads = m_.num_attention_heads, fixed = of.qk_head_dim, rope = of.qk_pos_emb_head_dim,
                       each = fixed + of.v_head_dim;
    std::array<Heads, 3> all;
    for (Heads& one : all) one.resize(std::size_t(heads));
    for (std::size_t p = 0; p < x.size(); ++p) {
      const Row in = norm(h + "ln_1", x[p]), down = times(h + "kv_down.weight", in),
                up = times(h + "kv_up.weight", norm(h + "kv_norm", part_of(down, 0, of.kv_lora_rank))),
                key = turned_neighbours(part_of(down, of.kv_lora_rank, rope), p),
                q = of.q_lora_rank > 0 ? times(h + "q_up.weight", norm(h + "q_norm", times(h + "q_down.weight", in)))
                                       : times(h + "q.weight", in);
      for (std::int64_t a = 0; a < heads; ++a) {
        Row query = part_of(q, a * (fixed + rope), fixed), own_key = part_of(up, a * each, fixed);
        const Row turned = turned_neighbours(part_of(q, a * (fixed + rope) + fixed, rope), p);
        query.insert(query.end(), turned.begin(), turned.end());
        own_key.insert(own_key.end(), key.begin(), key.end());
        all[0][std::size_t(a)].push_back(std::move(query));
        all[1][std::size_t(a)].push_back(std::move(own_key));
        all[2][std::size_t(a)].push_back(part_of(up, a * each + fixed, of.v_head_dim));
      }
    }
    return all;
  }
  void latent_attention(const std::string& h, std::vector<Row>& x) const {
    const auto [queries, keys, values] = latent_heads(h, x);
    const double growth = 0.1 * m_.latent.yarn.mscale_all_dim * std::log(m_.latent.yarn.factor) + 1;
    for (std::size_t q = 0; q < x.size(); ++q) {
      Row out;
      for (std::size_t a = 0; a < queries.size(); ++a) {
        Row weight, sum(values[a][0].size(), Number(0));
        Number all = 0;
        for (std::size_t k = 0; k <= q; ++k) {
          Number score = 0;
          for (std::size_t i = 0; i < keys[a][k].size(); ++i) score = score + queries[a][q][i] * keys[a][k][i];
          weight.push_back(exp(score * Number(growth * growth / std::sqrt(double(keys[a][k].size())))));
          all = all + weight.back();
        }
        for (std::size_t k = 0; k <= q; ++k)
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + weight[k] / all * values[a][k][i];
        out.insert(out.end(), sum.begin(), sum.end());
      }
      const Row added = times(h + "proj.weight", out);
      for (std::size_t c = 0; c < added.size(); ++c) x[q][c] = x[q][c] + added[c];
    }
  }

  void attention(const std::string& h, std::vector<Row>& x) const {
    if (m_.latent.any()) return latent_attention(h, x);
    const std::int64_t d = m_.head_dim(), heads = m_.num_attention_heads, groups = m_.kv_heads();
    std::vector<Row> qkv;
    for (const Row& row : x) qkv.push_back(times(h + "qkv.weight", norm(h + "ln_1", row)));
    const auto head = [&](std::size_t position, std::int64_t first, bool is_turned) {
      Row part(qkv[position].begin() + first, qkv[position].begin() + first + d);
      return is_turned ? turned(part, position) : part;
    };
    for (std::size_t q = 0; q < x.size(); ++q) {
      Row out;
      for (std::int64_t a = 0; a < heads; ++a) {
        const std::int64_t group = a / (heads / groups);
        const Row query = head(q, a * d, true);
        Row weight, sum(std::size_t(d), Number(0));
        Number all = 0;
        for (std::size_t k = 0; k <= q; ++k) {
          const Row key = head(k, heads * d + group * d, true);
          Number score = 0;
          for (std::int64_t i = 0; i < d; ++i) score = score + query[std::size_t(i)] * key[std::size_t(i)];
          weight.push_back(exp(score / Number(std::sqrt(double(d)))));
          all = all + weight.back();
        }
        for (std::size_t k = 0; k <= q; ++k) {
          const Row value = head(k, heads * d + groups * d + group * d, false);
          for (std::int64_t i = 0; i < d; ++i)
            sum[std::size_t(i)] = sum[std::size_t(i)] + weight[k] / all * value[std::size_t(i)];
        }
        out.insert(out.end(), sum.begin(), sum.end());
      }
      const Row added = times(h + "proj.weight", out);
      for (std::size_t c = 0; c < added.size(); ++c) x[q][c] = x[q][c] + added[c];
    }
  }

  // Positions of the largest, of those that may be; of equals the first.
  std::set<std::size_t> best(const Row& values, std::size_t count, const std::set<std::size_t>& may_be) {
    std::vector<std::pair<double, std::size_t>> order;
    for (const std::size_t i : may_be) order.emplace_back(-values[i].value, i);
    std::sort(order.begin(), order.end());
    if (count < order.size()) smallest_gap_ = std::min(smallest_gap_, order[count].first - order[count - 1].first);
    std::set<std::size_t> chosen;
    for (std::size_t i = 0; i < count; ++i) chosen.insert(order[i].second);
    return chosen;
  }
  std::set<std::size_t> all_of(std::size_t count) const {
    std::set<std::size_t> all;
    for (std::size_t i = 0; i < count; ++i) all.insert(i);
    return all;
  }

  // Experts of a token and their probabilities.
  std::map<std::size_t, Number> routed(const std::string& h, const Row& logits) {
    const bool is_sigmoid = e_.moe_router_score_function == RouterScore::sigmoid;
    Row score;
    Number sum = 0;
    for (const Number& x : logits) sum = sum + exp(x);
    for (const Number& x : logits)
      score.push_back(is_sigmoid ? sigmoid(x) : e_.moe_router_pre_softmax ? exp(x) / sum : x);
    Row ranked = score;
    for (std::size_t i = 0; i < ranked.size() && e_.moe_router_enable_expert_bias; ++i)
      ranked[i] = ranked[i] + array(h + "router.bias").at(0, std::int64_t(i));
    std::set<std::size_t> may_be = all_of(logits.size());
    if (e_.moe_router_num_groups > 0) {
      const std::size_t size = logits.size() / std::size_t(e_.moe_router_num_groups),
                        each = std::size_t(e_.moe_router_topk / e_.moe_router_group_topk);
      Row of_group;
      for (std::size_t g = 0; g < std::size_t(e_.moe_router_num_groups); ++g) {
        std::vector<double> members;
        for (std::size_t i = 0; i < size; ++i) members.push_back(ranked[g * size + i].value);
        std::sort(members.rbegin(), members.rend());
        double total = 0;
        for (std::size_t i = 0; i < each; ++i) total += members[i];
        of_group.push_back(total);
      }
      may_be.clear();
      for (const std::size_t g : best(of_group, std::size_t(e_.moe_router_group_topk), all_of(of_group.size())))
        for (std::size_t i = 0; i < size; ++i) may_be.insert(g * size + i);
    }
    const std::set<std::size_t> chosen = best(ranked, std::size_t(e_.moe_router_topk), may_be);
    loads_[h].resize(logits.size());
    for (const std::size_t i : chosen) loads_[h][i] += 1;
    Number of_chosen = 0;
    const bool is_of_chosen = !is_sigmoid && !e_.moe_router_pre_softmax;
    for (const std::size_t i : chosen) of_chosen = of_chosen + (is_of_chosen ? exp(score[i]) : score[i]);
    std::map<std::size_t, Number> weights;
    for (const std::size_t i : chosen) {
      Number p = is_of_chosen ? exp(score[i]) / of_chosen : score[i];
      if (is_sigmoid && chosen.size() > 1) p = p / of_chosen;
      weights.emplace(i, p * Number(e_.moe_router_topk_scaling_factor));
    }
    return weights;
  }

  // Adds the MLP to x; what is returned is the layer's auxiliary losses in this micro-batch.
  Number experts(const std::string& h, std::vector<std::vector<Row>>& x) {
    const std::int64_t width = m_.expert_size(), rows = m_.rows_of_fc1(width), hidden = m_.hidden_size;
    const std::size_t count = std::size_t(e_.num_moe_experts);
    std::vector<std::vector<Row>> share;     // [sequence][position], of all experts
    std::vector<std::vector<double>> loads;  // [sequence]
    Number squares = 0;
    double tokens = 0;
    for (auto& sequence : x) {
      share.emplace_back();
      loads.emplace_back(count, 0);
      for (Row& token : sequence) {
        const Row in = norm(h + "ln_2", token), logits = times(h + "router.weight", in);
        Row added(std::size_t(hidden), Number(0));
        for (const auto& [expert, weight] : routed(h, logits)) {
          Row act = mlp_act(times(h + "experts.fc1.weight", in, std::int64_t(expert) * rows, rows), width);
          const Row out = times(h + "experts.fc2.weight", act, std::int64_t(expert) * hidden, hidden);
          for (std::size_t c = 0; c < added.size(); ++c) added[c] = added[c] + weight * out[c];
        }
        if (e_.has_shared()) {
          const Row act = mlp_act(times(h + "shared.fc1.weight", in), e_.moe_shared_expert_intermediate_size);
          const Row out = times(h + "shared.fc2.weight", act);
          const Number gate = e_.moe_shared_expert_gate ? sigmoid(times(h + "shared.gate.weight", in)[0]) : Number(1);
          for (std::size_t c = 0; c < added.size(); ++c) added[c] = added[c] + gate * out[c];
        }
        for (std::size_t c = 0; c < added.size(); ++c) token[c] = token[c] + added[c];
        Row p;
        Number sum = 0, sum_of_exp = 0;
        for (const Number& logit : logits) {
          p.push_back(e_.moe_router_score_function == RouterScore::sigmoid ? sigmoid(logit) : exp(logit));
          sum = sum + p.back();
          sum_of_exp = sum_of_exp + exp(logit);
        }
        for (Number& one : p) one = one / sum;
        for (const std::size_t i : best(p, std::size_t(e_.moe_router_topk), all_of(count))) loads.back()[i] += 1;
        share.back().push_back(std::move(p));
        squares = squares + log(sum_of_exp) * log(sum_of_exp);
        tokens += 1;
      }
    }
    Number losses = Number(e_.moe_z_loss_coeff / tokens) * squares;
    if (!e_.has_balance_loss()) return losses;
    const bool by_sequence = e_.moe_router_load_balancing_type == LoadBalancing::seq_aux_loss;
    if (!by_sequence)
      for (std::size_t s = 1; s < loads.size(); ++s)
        for (std::size_t i = 0; i < count; ++i) loads[0][i] += loads[s][i];
    if (e_.moe_router_load_balancing_type == LoadBalancing::global_aux_loss) {
      Tally& tally = tallies_[h];
      tally.loads.resize(count);
      tally.micro_batches += 1;
      for (std::size_t i = 0; i < count; ++i) loads[0][i] = (tally.loads[i] += loads[0][i]) / tally.micro_batches;
    }
    const double n = by_sequence ? tokens / double(x.size()) : tokens;
    const double scale = e_.moe_aux_loss_coeff * double(count) / (double(e_.moe_router_topk) * n * n) /
                         (by_sequence ? double(x.size()) : 1);
    for (std::size_t s = 0; s < share.size(); ++s)
      for (const Row& p : share[s])
        for (std::size_t i = 0; i < count; ++i) losses = losses + Number(scale * loads[by_sequence ? s : 0][i]) * p[i];
    return losses;
  }

  Number layer_of(std::int64_t layer, std::vector<std::vector<Row>>& x) {
    const std::string h = "h." + std::to_string(layer) + ".";
    for (std::vector<Row>& sequence : x) attention(h, sequence);
    if (m_.layer(layer).has_experts()) return experts(h, x);
    for (std::vector<Row>& sequence : x)
      for (Row& token : sequence) {
        const Row act = mlp_act(times(h + "fc1.weight", norm(h + "ln_2", token)), m_.ffn_hidden_size);
        const Row added = times(h + "fc2.weight", act);
        for (std::size_t c = 0; c < added.size(); ++c) token[c] = token[c] + added[c];
      }
    return 0;
  }

  const Transformer m_;
  const Experts e_;
  std::map<std::string, Array> arrays_;
  std::map<std::string, std::vector<double>> loads_;
  struct Tally {
    std::vector<double> loads;
    double micro_batches = 0;
  };
  std::map<std::string, Tally> tallies_;  // of the step's micro-batches so far
  double smallest_gap_ = 1;
};

}  // namespace stretto::testing::experts
