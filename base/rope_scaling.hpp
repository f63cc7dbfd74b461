#pragma once
#include <array>
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

}  // namespace stretto
