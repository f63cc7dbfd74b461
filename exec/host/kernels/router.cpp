#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/operand.hpp"
#include "exec/host/kernels/row.hpp"

namespace stretto::host {
namespace {

constexpr double kSmallestSum = 1e-20;  // of sigmoids, Megatron-LM's

template <class T>
T sigmoid_of(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

[[noreturn]] void throw_outside(std::int32_t expert, std::int64_t experts) {
  throw runtime_failure("router: expert " + std::to_string(expert) + " of " + std::to_string(experts));
}

// Softmax of x in `to`; returns log Σ exp x.
template <class T>
T softmax(const T* x, std::int64_t n, T* to) {
  const T top = row_max(x, n);
  std::copy_n(x, n, to);
  const T sum = row_exp(to, n, top);
  row_scale(to, n, T(1) / sum);
  return top + std::log(sum);
}

// Indices of the `count` largest of `values` that `may_be` allows, in ascending order. Of equals the first are taken.
template <class T, class MayBe>
void largest(const std::vector<T>& values, std::int64_t count, MayBe may_be, std::vector<std::int32_t>& chosen) {
  std::vector<std::int32_t>& order = chosen;
  order.clear();
  for (std::size_t i = 0; i < values.size(); ++i)
    if (may_be(i)) order.push_back(static_cast<std::int32_t>(i));
  const auto is_before = [&](std::int32_t a, std::int32_t b) {
    return values[std::size_t(a)] != values[std::size_t(b)] ? values[std::size_t(a)] > values[std::size_t(b)] : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + count, order.end(), is_before);
  order.resize(static_cast<std::size_t>(count));
  std::sort(order.begin(), order.end());
}

template <class T>
class Router {
 public:
  explicit Router(const Route& work) : work_(work), values_(static_cast<std::size_t>(work.experts)) {}

  // `bias` may be null.
  void forward(const T* logits, const T* bias, std::int32_t* indices, T* probabilities) {
    choose(logits, bias);
    std::copy(chosen_.begin(), chosen_.end(), indices);
    const std::size_t k = chosen_.size();
    for (std::size_t j = 0; j < k; ++j) probabilities[j] = score_[j];
    if (work_.score == RouterScore::softmax) {
      if (!work_.pre_softmax) softmax(score_.data(), work_.topk, probabilities);
    } else if (k > 1) {
      const T sum = std::accumulate(score_.begin(), score_.end(), T(0)) + T(kSmallestSum);
      for (std::size_t j = 0; j < k; ++j) probabilities[j] /= sum;
    }
    for (std::size_t j = 0; j < k; ++j) probabilities[j] *= static_cast<T>(work_.scaling);
  }

  void backward(const T* logits, const Operand& indices, std::int64_t row, const T* d_probabilities, T* d_logits) {
    const std::int64_t k = work_.topk, experts = work_.experts;
    const T scaling = static_cast<T>(work_.scaling);
    std::fill_n(d_logits, experts, T(0));
    std::vector<T> score(static_cast<std::size_t>(k)), slope(score);
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(k));
    for (std::int64_t j = 0; j < k; ++j) {
      const std::int32_t e = row_of<std::int32_t>(indices, row)[j];
      if (e < 0 || e >= experts) throw_outside(e, experts);
      chosen[std::size_t(j)] = e;
      score[std::size_t(j)] = logits[e];
    }
    if (work_.score == RouterScore::sigmoid) {
      T sum = T(kSmallestSum), weighted = 0;
      for (std::int64_t j = 0; j < k; ++j) {
        T& s = score[std::size_t(j)];
        s = sigmoid_of(s);
        sum += s;
        weighted += s * d_probabilities[j];
      }
      for (std::int64_t j = 0; j < k; ++j) {
        const T s = score[std::size_t(j)];
        const T d = k > 1 ? (d_probabilities[j] - weighted / sum) / sum : d_probabilities[j];
        d_logits[chosen[std::size_t(j)]] = scaling * d * s * (T(1) - s);
      }
    } else if (work_.pre_softmax) {
      softmax(logits, experts, values_.data());
      T mean = 0;
      for (std::int64_t j = 0; j < k; ++j) mean += values_[std::size_t(chosen[std::size_t(j)])] * d_probabilities[j];
      for (std::int64_t e = 0; e < experts; ++e) d_logits[e] = -scaling * mean * values_[std::size_t(e)];
      for (std::int64_t j = 0; j < k; ++j) {
        const std::int32_t e = chosen[std::size_t(j)];
        d_logits[e] += scaling * values_[std::size_t(e)] * d_probabilities[j];
      }
    } else {
      softmax(score.data(), k, slope.data());
      T mean = 0;
      for (std::int64_t j = 0; j < k; ++j) mean += slope[std::size_t(j)] * d_probabilities[j];
      for (std::int64_t j = 0; j < k; ++j)
        d_logits[chosen[std::size_t(j)]] = scaling * slope[std::size_t(j)] * (d_probabilities[j] - mean);
    }
    if (work_.z_scale == 0) return;
    const T lse = softmax(logits, experts, values_.data());
    const T factor = static_cast<T>(2 * work_.z_scale) * lse;
    for (std::int64_t e = 0; e < experts; ++e) d_logits[e] += factor * values_[std::size_t(e)];
  }

 private:
  // Sets chosen_, and score_ to what probabilities are made of.
  void choose(const T* logits, const T* bias) {
    std::copy_n(logits, work_.experts, values_.begin());
    if (work_.score == RouterScore::sigmoid)
      for (T& value : values_) value = sigmoid_of(value);
    else if (work_.pre_softmax)
      softmax(logits, work_.experts, values_.data());
    ranked_ = values_;
    for (std::size_t e = 0; bias != nullptr && e < ranked_.size(); ++e) ranked_[e] += bias[e];
    const auto any = [](std::size_t) { return true; };
    if (work_.groups == 0) {
      largest(ranked_, work_.topk, any, chosen_);
    } else {
      const std::int64_t size = work_.experts / work_.groups, best = work_.topk / work_.group_topk;
      std::vector<T> of_group(static_cast<std::size_t>(work_.groups));
      for (std::int64_t g = 0; g < work_.groups; ++g) {
        std::vector<T> members(ranked_.begin() + g * size, ranked_.begin() + (g + 1) * size);
        std::partial_sort(members.begin(), members.begin() + best, members.end(), std::greater<T>());
        of_group[std::size_t(g)] = std::accumulate(members.begin(), members.begin() + best, T(0));
      }
      std::vector<std::int32_t> groups;
      largest(of_group, work_.group_topk, any, groups);
      const auto is_in = [&](std::size_t e) {
        return std::binary_search(groups.begin(), groups.end(), static_cast<std::int32_t>(std::int64_t(e) / size));
      };
      largest(ranked_, work_.topk, is_in, chosen_);
    }
    score_.clear();
    for (const std::int32_t e : chosen_) score_.push_back(values_[std::size_t(e)]);
  }

  const Route& work_;
  std::vector<T> values_, ranked_, score_;  // ranked_: what experts are chosen by
  std::vector<std::int32_t> chosen_;
};

// Scores over all experts, which a balance loss is of: softmax, or sigmoids divided by their sum.
template <class T>
T shares(RouterScore score, const T* logits, std::int64_t experts, T* to) {
  if (score == RouterScore::softmax) {
    softmax(logits, experts, to);
    return T(1);
  }
  T sum = T(kSmallestSum);
  for (std::int64_t e = 0; e < experts; ++e) sum += to[e] = sigmoid_of(logits[e]);
  for (std::int64_t e = 0; e < experts; ++e) to[e] /= sum;
  return sum;
}

std::int64_t counts_row(const BalanceLoss& work, std::int64_t row) {
  return work.sequences == 1 ? 0 : place_of_row(work.parts, work.seq, work.first_row.value() + row).sample;
}

template <class T>
void count(const BalanceLoss& work, const Operand& logits, const Operand& counts) {
  for (std::int64_t row = 0; row < counts.rows; ++row) std::fill_n(row_of<T>(counts, row), work.experts, T(0));
  std::vector<std::int32_t> chosen;
  for (std::int64_t row = 0; row < work.rows; ++row) {
    const T* x = row_of<T>(logits, row);
    const std::vector<T> values(x, x + work.experts);  // scores are in their order
    largest(
        values, work.topk, [](std::size_t) { return true; }, chosen);
    for (const std::int32_t e : chosen) row_of<T>(counts, counts_row(work, row))[e] += T(1);
  }
}

template <class T>
void balance_backward(const BalanceLoss& work, const Operand& logits, const Operand& counts, const Operand& d_logits) {
  std::vector<T> share(static_cast<std::size_t>(work.experts));
  for (std::int64_t row = 0; row < work.rows; ++row) {
    const T* x = row_of<T>(logits, row);
    const T* slope = row_of<T>(counts, counts_row(work, row));
    T* to = row_of<T>(d_logits, row);
    const T sum = shares(work.score, x, work.experts, share.data());
    T mean = 0;
    for (std::int64_t e = 0; e < work.experts; ++e) mean += share[std::size_t(e)] * slope[e];
    for (std::int64_t e = 0; e < work.experts; ++e) {
      const T p = share[std::size_t(e)], d = static_cast<T>(work.scale) * (slope[e] - mean);
      // The slope of a sigmoid s = p · sum is s (1 − s).
      to[e] += work.score == RouterScore::softmax ? p * d : p * (T(1) - p * sum) * d;
    }
  }
}

}  // namespace

void run_kernel(const Route& work, std::span<const Operand> operands) {
  const bool is_forward = work.pass == Pass::forward;
  const std::size_t at = work.indices_at();
  assert(operands.size() == at + (is_forward ? 2 : 3) && has_shape(operands[0], work.rows, work.experts));
  assert(at == 1 || (elements_of(operands[1]) == work.experts && operands[1].dtype == operands[0].dtype));
  assert(has_shape(operands[at], work.rows, work.topk) && operands[at].dtype == Dtype::i32);
  assert(has_shape(operands[at + 1], work.rows, work.topk) && operands[at + 1].dtype == operands[0].dtype);
  with_compute_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    Router<T> router(work);
    for (std::int64_t row = 0; row < work.rows; ++row) {
      const T* logits = row_of<T>(operands[0], row);
      if (is_forward)
        router.forward(logits, at > 1 ? data_of<T>(operands[1]) : nullptr, row_of<std::int32_t>(operands[at], row),
                       row_of<T>(operands[at + 1], row));
      else
        router.backward(logits, operands[1], row, row_of<T>(operands[2], row), row_of<T>(operands[3], row));
    }
  });
}

void run_kernel(const BalanceLoss& work, std::span<const Operand> operands) {
  const bool is_forward = work.pass == Pass::forward;
  assert(operands.size() == (is_forward ? 2u : 3u) && has_shape(operands[0], work.rows, work.experts));
  assert(has_shape(operands[1], work.sequences, work.experts) && operands[1].dtype == operands[0].dtype);
  with_compute_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    if (is_forward)
      count<T>(work, operands[0], operands[1]);
    else
      balance_backward<T>(work, operands[0], operands[1], operands[2]);
  });
}

void run_kernel(const MeanCounts& work, std::span<const Operand> operands) {
  assert(operands.size() == 2 && have_one_dtype(operands));
  assert(elements_of(operands[0]) == work.experts && elements_of(operands[1]) == work.experts);
  with_compute_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    T *counts = data_of<T>(operands[0]), *tally = data_of<T>(operands[1]);
    double now = 0, all = 0;
    for (std::int64_t e = 0; e < work.experts; ++e) {
      tally[e] += counts[e];
      now += double(counts[e]);
      all += double(tally[e]);
    }
    for (std::int64_t e = 0; e < work.experts; ++e) counts[e] = static_cast<T>(double(tally[e]) * now / all);
  });
}

void run_kernel(const CountLoads& work, std::span<const Operand> operands) {
  assert(operands.size() == 2 && has_shape(operands[0], work.rows, work.topk) && operands[0].dtype == Dtype::i32);
  assert(elements_of(operands[1]) == work.experts);
  with_compute_type(operands[1].dtype, [&](auto type) {
    using T = decltype(type);
    T* loads = data_of<T>(operands[1]);
    for (std::int64_t row = 0; row < work.rows; ++row)
      for (std::int64_t j = 0; j < work.topk; ++j) {
        const std::int32_t e = row_of<std::int32_t>(operands[0], row)[j];
        if (e < 0 || e >= work.experts) throw_outside(e, work.experts);
        loads[e] += T(1);
      }
  });
}

void run_kernel(const MoveBias& work, std::span<const Operand> operands) {
  assert(operands.size() == 2 && have_one_dtype(operands) && has_shape(operands[0], work.rows, work.experts));
  assert(has_shape(operands[1], work.rows, work.experts));
  with_compute_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    for (std::int64_t row = 0; row < work.rows; ++row) {
      const T* loads = row_of<T>(operands[0], row);
      T* bias = row_of<T>(operands[1], row);
      const T mean = std::accumulate(loads, loads + work.experts, T(0)) / static_cast<T>(work.experts);
      for (std::int64_t e = 0; e < work.experts; ++e)
        bias[e] += static_cast<T>(work.rate) * static_cast<T>((mean > loads[e]) - (mean < loads[e]));
    }
  });
}

}  // namespace stretto::host
