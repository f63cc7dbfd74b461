#include <Eigen/Dense>
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <vector>

#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/operand.hpp"

// LinearAttention by chunks of kLinearChunk tokens (arXiv 2412.06464, section 3; arXiv 2405.21060, section 6). With G
// the sums of the decays in a chunk, L_ij = e^(G_i − G_j) for j ≤ i and S the state before the chunk:
//   delta    (I + A) N = β V − β e^G K S,   A_ij = β_i (k_i · k_j) L_ij below the diagonal;   else N = β V
//   O = scale · (e^G Q S + P N),            P_ij = (q_i · k_j) L_ij
//   S ← e^(G_C) S + Kᵀ e^(G_C − G) N
namespace stretto::host {
namespace {

template <class T>
using Dense = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using Vector = Eigen::Array<T, Eigen::Dynamic, 1>;
template <class T>
using Rows = Eigen::Map<Dense<T>, 0, Eigen::OuterStride<>>;

// The part of an operand that a head has in some tokens.
template <class T>
Rows<T> part_of(const Operand& o, std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) {
  return {row_of<T>(o, row) + col, rows, cols, Eigen::OuterStride<>(o.ld)};
}

// q or k of a key head in a chunk, divided by its length with unit_keys.
template <class T>
struct Keys {
  Dense<T> x;
  Vector<T> inverse;  // of the length; empty: not divided

  Keys(const Rows<T>& raw, bool is_unit) : x(raw) {
    if (!is_unit) return;
    inverse = (x.rowwise().squaredNorm().array() + T(1e-6)).rsqrt();
    x.array().colwise() *= inverse;
  }
  // Adds the gradient of the raw numbers.
  void add_gradient(const Dense<T>& dx, Rows<T> to) const {
    if (inverse.size() == 0) {
      to += dx;
      return;
    }
    const Vector<T> along = (dx.array() * x.array()).rowwise().sum();
    to.array() += (dx.array() - x.array().colwise() * along).colwise() * inverse;
  }
};

// One chunk of one head, from the state before it.
template <class T>
struct StateChunk {
  const LinearAttention& work;
  const Keys<T>&q, &k;
  Dense<T> v, lower, a, products, n, from_state;  // lower: L; from_state: K S
  Vector<T> rate, sums, grown, left;              // G, e^G and e^(G_C − G)

  StateChunk(const LinearAttention& w, const Keys<T>& queries, const Keys<T>& keys, const Rows<T>& values,
             const Rows<T>& rates, const Rows<T>& decays, const Dense<T>& state)
      : work(w), q(queries), k(keys), v(values), rate(rates.col(0).array()), sums(decays.col(0).array()) {
    const Eigen::Index count = v.rows();
    for (Eigen::Index i = 1; i < count; ++i) sums(i) += sums(i - 1);
    grown = sums.exp();
    left = (sums(count - 1) - sums).exp();
    lower.setZero(count, count);
    for (Eigen::Index i = 0; i < count; ++i)
      for (Eigen::Index j = 0; j <= i; ++j) lower(i, j) = std::exp(sums(i) - sums(j));
    n = (v.array().colwise() * rate).matrix();
    if (!work.delta) return;
    a = k.x * k.x.transpose();
    a.array() *= lower.array().colwise() * rate;
    a.template triangularView<Eigen::Upper>().setZero();
    from_state = k.x * state;
    n.array() -= from_state.array().colwise() * (rate * grown);
    a.template triangularView<Eigen::UnitLower>().solveInPlace(n);
  }
  void multiply_queries() { products = ((q.x * k.x.transpose()).array() * lower.array()).matrix(); }
  void move(Dense<T>& state) const {
    const Dense<T> kept = (k.x.array().colwise() * left).matrix();
    state = grown(grown.size() - 1) * state + kept.transpose() * n;
  }
};

template <class T>
class Recurrence {
 public:
  Recurrence(const LinearAttention& work, std::span<const Operand> operands)
      : w_(work), o_(operands), of_(work.skip ? 6 : 5) {}

  void forward() const {
    for_heads([&](std::int64_t sample, std::int64_t head) {
      Dense<T> state = Dense<T>::Zero(w_.key_dim, w_.value_dim);
      for (std::int64_t begin = 0; begin < w_.seq; begin += kLinearChunk) {
        const Place at = place(sample, head, begin);
        const Keys<T> q(keys(0, at), w_.unit_keys), k(keys(1, at), w_.unit_keys);
        StateChunk<T> chunk(w_, q, k, values(2, at), numbers(3, at), numbers(4, at), state);
        chunk.multiply_queries();
        Rows<T> out = values(of_, at);
        out = (q.x * state).eval();
        out.array().colwise() *= chunk.grown;
        out = (T(w_.scale) * (out + chunk.products * chunk.n)).eval();
        if (w_.skip) out += data_of<T>(o_[5])[head] * chunk.v;
        chunk.move(state);
      }
    });
  }

  void dgrad() const {
    for (const std::size_t of_keys : {of_ + 1, of_ + 2})
      part_of<T>(o_[of_keys], 0, w_.rows(), 0, w_.key_cols()).setZero();
    std::vector<Dense<T>> states;  // before each chunk
    for_heads([&](std::int64_t sample, std::int64_t head) {
      states.assign(1, Dense<T>::Zero(w_.key_dim, w_.value_dim));
      for (std::int64_t begin = 0; begin + kLinearChunk < w_.seq; begin += kLinearChunk) {
        const Place at = place(sample, head, begin);
        const Keys<T> k(keys(1, at), w_.unit_keys);
        const StateChunk<T> chunk(w_, k, k, values(2, at), numbers(3, at), numbers(4, at), states.back());
        Dense<T> next = states.back();
        chunk.move(next);
        states.push_back(std::move(next));
      }
      Dense<T> d_state = Dense<T>::Zero(w_.key_dim, w_.value_dim);
      for (std::size_t i = states.size(); i-- > 0;)
        add_gradients(place(sample, head, static_cast<std::int64_t>(i) * kLinearChunk), states[i], d_state);
    });
  }

  void wgrad() const {
    T* const d_skip = data_of<T>(o_[2]);
    for (std::int64_t head = 0; head < w_.heads; ++head) {
      const auto v = part_of<T>(o_[0], 0, w_.rows(), head * w_.value_dim, w_.value_dim),
                 d_out = part_of<T>(o_[1], 0, w_.rows(), head * w_.value_dim, w_.value_dim);
      d_skip[head] += (v.array() * d_out.array()).sum();
    }
  }

 private:
  struct Place {
    std::int64_t row, rows, head, key_head;
  };
  template <class Fn>
  void for_heads(Fn fn) const {
    for (std::int64_t sample = 0; sample < w_.batch; ++sample)
      for (std::int64_t head = 0; head < w_.heads; ++head) fn(sample, head);
  }
  Place place(std::int64_t sample, std::int64_t head, std::int64_t begin) const {
    return {sample * w_.seq + begin, std::min(kLinearChunk, w_.seq - begin), head, head / (w_.heads / w_.key_heads)};
  }
  Rows<T> keys(std::size_t operand, const Place& at) const {
    return part_of<T>(o_[operand], at.row, at.rows, at.key_head * w_.key_dim, w_.key_dim);
  }
  Rows<T> values(std::size_t operand, const Place& at) const {
    return part_of<T>(o_[operand], at.row, at.rows, at.head * w_.value_dim, w_.value_dim);
  }
  Rows<T> numbers(std::size_t operand, const Place& at) const {
    return part_of<T>(o_[operand], at.row, at.rows, at.head, 1);
  }

  // Adds the chunk's gradients from that of its output and that of the state after it, `d_state`, which becomes that of
  // the state before it.
  void add_gradients(const Place& at, const Dense<T>& state, Dense<T>& d_state) const {
    const Keys<T> q(keys(0, at), w_.unit_keys), k(keys(1, at), w_.unit_keys);
    StateChunk<T> c(w_, q, k, values(2, at), numbers(3, at), numbers(4, at), state);
    c.multiply_queries();
    const Rows<T> d_out = values(of_, at);
    const Dense<T> d_o = T(w_.scale) * d_out;
    const Eigen::Index last = c.v.rows() - 1;
    const T kept = c.grown(last);

    Dense<T> d_products = d_o * c.n.transpose();
    d_products.template triangularView<Eigen::StrictlyUpper>().setZero();
    const Dense<T> of_scores = (d_products.array() * c.lower.array()).matrix();
    Dense<T> of_sums = (d_products.array() * c.products.array()).matrix();  // its row adds to dG, its column takes away
    const Dense<T> d_grown = (d_o.array().colwise() * c.grown).matrix();
    Dense<T> dq = of_scores * k.x + d_grown * state.transpose();
    Dense<T> dk = of_scores.transpose() * q.x;
    Vector<T> d_sums = (d_grown.array() * (q.x * state).array()).rowwise().sum();

    const Dense<T> k_left = (k.x.array().colwise() * c.left).matrix(), into_state = k_left * d_state;
    Dense<T> dn = c.products.transpose() * d_o + into_state;
    dk += ((c.n * d_state.transpose()).array().colwise() * c.left).matrix();
    const Vector<T> of_left = (into_state.array() * c.n.array()).rowwise().sum();
    d_sums -= of_left;
    d_sums(last) += of_left.sum() + kept * (d_state.array() * state.array()).sum();
    d_state = kept * d_state + (q.x.transpose() * d_grown).eval();

    Vector<T> d_rate;
    if (w_.delta) {
      c.a.transpose().template triangularView<Eigen::UnitUpper>().solveInPlace(dn);
      Dense<T> da = -dn * c.n.transpose();
      da.template triangularView<Eigen::Upper>().setZero();
      of_sums.array() += da.array() * c.a.array();
      const Dense<T> of_keys = (da.array() * c.lower.array()).matrix();  // times β: the gradient of K Kᵀ
      d_rate = (of_keys.array() * (k.x * k.x.transpose()).array()).rowwise().sum();
      const Dense<T> scaled = (of_keys.array().colwise() * c.rate).matrix();
      dk += scaled * k.x + scaled.transpose() * k.x;
      d_rate += (dn.array() * (c.v.array() - c.from_state.array().colwise() * c.grown)).rowwise().sum();
      const Dense<T> of_state = (dn.array().colwise() * (c.rate * c.grown)).matrix();
      dk -= of_state * state.transpose();
      d_state -= k.x.transpose() * of_state;
      d_sums -= (of_state.array() * c.from_state.array()).rowwise().sum();
    } else {
      d_rate = (dn.array() * c.v.array()).rowwise().sum();
    }
    d_sums += of_sums.rowwise().sum().array() - of_sums.colwise().sum().transpose().array();

    q.add_gradient(dq, keys(of_ + 1, at));
    k.add_gradient(dk, keys(of_ + 2, at));
    Rows<T> dv = values(of_ + 3, at);
    dv = (dn.array().colwise() * c.rate).matrix();
    if (w_.skip) dv += data_of<T>(o_[5])[at.head] * d_out;
    numbers(of_ + 4, at) = d_rate.matrix();
    for (Eigen::Index i = last; i-- > 0;) d_sums(i) += d_sums(i + 1);
    numbers(of_ + 5, at) = d_sums.matrix();
  }

  const LinearAttention& w_;
  std::span<const Operand> o_;
  std::size_t of_;  // index of `o`, or of `do`
};

}  // namespace

void run_kernel(const LinearAttention& work, std::span<const Operand> operands) {
  assert(have_one_dtype(operands));
  with_compute_type(operands[0].dtype, [&](auto type) {
    const Recurrence<decltype(type)> recurrence(work, operands);
    if (work.pass == Pass::forward) return recurrence.forward();
    if (work.pass == Pass::dgrad) return recurrence.dgrad();
    recurrence.wgrad();
  });
}

}  // namespace stretto::host
