#include "exec/kernel_types.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <variant>
#include <vector>

#include "model/schedule/operands.hpp"

namespace stretto::exec {
namespace {

// The floating types that the operands of one operation may have together.
enum class Mix : std::uint8_t {
  one,        // all have one type
  with_sums,  // some have the type of sums and statistics, f32, and the others the type of the step
  any,        // each has its own
};

// The table for GPUs: a kind of work without an overload has kernels for one floating type in all operands.
template <class W>
Mix gpu_mix(const W&) {
  return Mix::one;
}
template <class W>
concept HasSums = std::is_same_v<W, Gemm> || std::is_same_v<W, GroupedGemm> || std::is_same_v<W, Attention> ||
    std::is_same_v<W, AttentionMerge> || std::is_same_v<W, LayerNorm> || std::is_same_v<W, RmsNorm> ||
    std::is_same_v<W, Embedding> || std::is_same_v<W, CrossEntropy> || std::is_same_v<W, VocabStats> ||
    std::is_same_v<W, WeightedActivation>;
template <HasSums W>
Mix gpu_mix(const W&) {
  return Mix::with_sums;
}
template <class W>
concept Converts =
    std::is_same_v<W, Cast> || std::is_same_v<W, LocalReduce> || std::is_same_v<W, AdamW> || std::is_same_v<W, Fill>;
template <Converts W>
Mix gpu_mix(const W&) {
  return Mix::any;
}
Mix gpu_mix(const Elementwise& work) {
  const bool has_sums = work.fn == ElementwiseFn::column_sum || work.fn == ElementwiseFn::accumulate;
  return has_sums ? Mix::with_sums : Mix::one;
}

// The table for the host, which widens bf16 to f32 before it computes (exec/host/kernels/bf16.cpp).
template <class W>
Mix host_mix(const W&) {
  return Converts<W> ? Mix::any : Mix::with_sums;
}

bool computes_in(Dtype dtype, KernelPlace place) {
  return dtype == Dtype::f32 || dtype == Dtype::bf16 || (dtype == Dtype::f64 && place == KernelPlace::host);
}

bool has_kernel(const std::vector<Dtype>& types, Mix mix, KernelPlace place) {
  // Codes stand for numbers only together with their scales, so a kernel that takes them as an operand like others
  // copies them.
  if (std::any_of(types.begin(), types.end(), is_code))
    return std::all_of(types.begin(), types.end(),
                       [&](Dtype type) { return mix == Mix::any || type == types.front(); });
  if (mix == Mix::any) return true;
  const auto widened = [](Dtype type) { return type == Dtype::bf16 ? Dtype::f32 : type; };
  return std::all_of(types.begin(), types.end(), [&](Dtype type) {
    const bool is_one = mix == Mix::one ? type == types.front() : widened(type) == widened(types.front());
    return is_one && computes_in(type, place);
  });
}

}  // namespace

std::string missing_kernel(const Schedule& schedule, KernelPlace place) {
  for (const Operation& operation : schedule.operations) {
    if (is_communication(operation.work)) continue;  // it moves bytes; sums are LocalReduce
    const bool is_linear = std::visit([]<class W>(const W&) { return OfLinearAttention<W>; }, operation.work);
    if (is_linear && place == KernelPlace::gpu)
      return fmt::format("[model] layers with linear attention train on the host only, got {} ({})",
                         describe(operation.work), operation.name);
    const Mix mix = std::visit(
        [&](const auto& work) { return place == KernelPlace::host ? host_mix(work) : gpu_mix(work); }, operation.work);
    const OperandList list = operands_of(operation.work, 1);
    std::vector<Dtype> types;
    for (std::size_t i = 0; i < std::min(operation.accesses.size(), list.operands.size()); ++i) {
      const OperandType type = list.operands[i].type;
      if (type == OperandType::floating || type == OperandType::floating_or_codes)
        types.push_back(schedule.dtype_of(operation.accesses[i].view));
    }
    const bool copies_codes =
        std::holds_alternative<Cast>(operation.work) && std::any_of(types.begin(), types.end(), is_code);
    if (has_kernel(types, copies_codes ? Mix::one : mix, place)) continue;
    std::string names;
    for (const Dtype type : types) names += (names.empty() ? "" : ", ") + std::string(name_of(type));
    return fmt::format("[training] precision: expected operations that {} has kernels for, got {} of {} ({})",
                       place == KernelPlace::host ? "the host" : "a GPU", describe(operation.work), names,
                       operation.name);
  }
  return "";
}

}  // namespace stretto::exec
