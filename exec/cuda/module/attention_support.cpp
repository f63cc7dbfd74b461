#include "exec/cuda/module/attention_support.hpp"

#include <vector>

#include "exec/cuda/attention_region.hpp"

namespace stretto::cuda {

std::string fault_of_cudnn(std::size_t version, const Attention& work) {
  if (version == 91000 || version == 91001) return "9.10.0 and 9.10.1 compute attention wrongly";
  for (const AttentionRegion& region : regions_of(work)) {
    if (version <= 91500 && work.pass == Pass::dgrad && (region.queries % 128 != 0 || region.keys % 128 != 0))
      return "up to 9.15.0 gradients are wrong where the sequence is no multiple of 128 tokens";
    if (version < 90600 && region.is_causal && region.keys > region.queries &&
        (region.queries % 64 != 0 || region.keys % 64 != 0))
      return "below 9.6.0 causal attention to more keys than queries is for multiples of 64 tokens";
  }
  return "";
}

std::string refusal_of_cudnn(std::size_t version, const Attention& work, std::span<const exec::Operand> operands) {
  if (std::string fault = fault_of_cudnn(version, work); !fault.empty()) return fault;
  if (work.by_document) return "documents have no plan";
  if (work.rules != ScoreRules{}) return "windows, chunks, caps and sinks have no plan";
  if (work.width_of_values() != work.head_dim) return "heads of values must be as wide as those of scores";
  if (work.dropout > 0 && has_parts(work)) return "parts of sequences have no plan with dropout";
  if (operands[0].dtype != Dtype::bf16 || work.head_dim % 8 != 0 || work.head_dim > 256 || work.seq < 64)
    return "only bf16, heads of 8 to 256, 64 tokens and more";
  const std::vector<AttentionRegion> regions = regions_of(work);
  if (regions.empty()) return "no query sees a key";
  for (const AttentionRegion& region : regions)
    if (region.queries < 64 || region.keys < 64)
      return "parts of sequences have a plan where 64 queries and more see 64 keys and more";
  const std::size_t out_at = work.kv_apart ? 2 : 1;
  if (work.pass == Pass::dgrad && operands[out_at + 2].ld != operands[out_at].ld)
    return "the gradient of the output must lie as the output does";
  for (const exec::Operand& operand : operands)
    if (operand.dtype == Dtype::bf16 && operand.ld % 8 != 0) return "rows must be aligned to 16 bytes";
  return "";
}

}  // namespace stretto::cuda
