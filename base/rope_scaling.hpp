#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace stretto {

// How rotary positions are stretched to sequences longer than those of pre-training: `applied_to` changes the
// frequency, in radians per token, at which a pair of elements turns. At most one of the two ways is in use.
struct RopeScaling {
  // Linear scaling: positions are divided by this factor (Chen et al., arXiv 2306.15595; "linear" in Hugging Face's
  // transformers, --rotary-seq-len-interpolation-factor in Megatron-LM). 1: no scaling.
  double interpolation_factor = 1;
  // Llama 3.1's scaling (_compute_llama3_parameters in modeling_rope_utils.py of Hugging Face's transformers,
  // --use-rope-scaling in Megatron-LM). With L = original_max_position_embeddings, pairs that turn less than
  // low_freq_factor times in L tokens are slowed by `factor`, pairs that turn more than high_freq_factor times keep
  // their speed, and the slowing is interpolated between the two. factor 1: no scaling.
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;
  std::int64_t original_max_position_embeddings = 8192;

  bool is_linear() const { return interpolation_factor != 1; }
  bool is_llama3() const { return factor != 1; }
  // The function is constexpr so that a GPU's kernel may call it.
  constexpr double applied_to(double frequency) const {
    if (factor != 1) {
      constexpr double kTurn = 6.283185307179586;
      const double turns = double(original_max_position_embeddings) * frequency / kTurn;
      const double kept = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
      frequency *= kept <= 0 ? 1 / factor : kept >= 1 ? 1 : (1 - kept) / factor + kept;
    }
    return frequency / interpolation_factor;
  }

  static constexpr std::array kFields = {"interpolation_factor", "factor", "low_freq_factor", "high_freq_factor",
                                         "original_max_position_embeddings"};
  bool operator==(const RopeScaling&) const = default;
};

// YaRN (Peng et al., arXiv 2309.00071) as multi-latent attention has it (yarn_rotary_pos_embedding.py and
// multi_latent_attention.py of Megatron-LM, modeling_deepseek_v3.py of Hugging Face's transformers). With L =
// original_max_position_embeddings, pairs that turn more than beta_fast times in L tokens keep their speed, pairs that
// turn less than beta_slow times are slowed by `factor`, and the slowing goes over linearly by the number of the pair.
// Besides, scores are multiplied by a power of a factor that grows with log(factor).
struct YarnScaling {
  double factor = 1;  // 1: no scaling
  double beta_fast = 32, beta_slow = 1;
  double mscale = 1, mscale_all_dim = 0;
  std::int64_t original_max_position_embeddings = 4096;

  // Returns the angle, in radians per token, by which pair `i` of a rope part of `dim` elements turns.
  double frequency(std::int64_t i, std::int64_t dim, double base) const {
    const double plain = std::pow(base, -2.0 * double(i) / double(dim));
    if (factor == 1) return plain;
    const auto pair_that_turns = [&](double times) {
      constexpr double kTurn = 6.283185307179586;
      return double(dim) * std::log(double(original_max_position_embeddings) / (times * kTurn)) / (2 * std::log(base));
    };
    const double last = double(dim) - 1, low = std::clamp(std::floor(pair_that_turns(beta_fast)), 0.0, last);
    double high = std::clamp(std::ceil(pair_that_turns(beta_slow)), 0.0, last);
    if (high == low) high += 0.001;
    const double slowed = std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
    return plain / factor * slowed + plain * (1 - slowed);
  }
  // Return the factors of turned elements and of scores.
  double of_elements() const { return growth(mscale) / growth(mscale_all_dim); }
  double of_scores() const { return growth(mscale_all_dim) * growth(mscale_all_dim); }

  static constexpr std::array kFields = {"factor", "beta_fast",      "beta_slow",
                                         "mscale", "mscale_all_dim", "original_max_position_embeddings"};
  bool operator==(const YarnScaling&) const = default;

 private:
  double growth(double scale) const { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; }
};

}  // namespace stretto
