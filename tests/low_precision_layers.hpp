#pragma once
// A layer's linear products in low precision, as a schedule computed them: for tests that compare them with plain ones.
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "exec/host/kernels/codes.hpp"
#include "tests/cases.hpp"
#include "tests/plain_codes.hpp"
#include "tests/training.hpp"

namespace stretto::testing {

enum class LowRecipe : std::uint8_t { delayed, tensorwise, blockwise, mxfp8, nvfp4 };
inline const char* name_of(LowRecipe recipe) {
  constexpr const char* kNames[] = {"delayed", "tensorwise", "blockwise", "mxfp8", "nvfp4"};
  return kNames[static_cast<int>(recipe)];
}
inline const std::vector<LowRecipe> kLowRecipes = {LowRecipe::delayed, LowRecipe::tensorwise, LowRecipe::blockwise,
                                                   LowRecipe::mxfp8, LowRecipe::nvfp4};
// Emulated codes are slow: the fast suite and builds with a sanitizer take fewer cases.
inline bool is_fast() { return is_fast_suite() || kIsSanitized; }
inline void set_recipe(Scenario& scenario, LowRecipe recipe, bool hybrid = true) {
  LowPrecision& low = scenario.training.low_precision;
  scenario.training.precision = "bf16";
  if (recipe == LowRecipe::nvfp4) {
    low.fp4_format = LowPrecision::Fp4Format::e2m1;
    return;
  }
  low.fp8_format = hybrid ? LowPrecision::Fp8Format::hybrid : LowPrecision::Fp8Format::e4m3;
  low.fp8_recipe = static_cast<LowPrecision::Fp8Recipe>(recipe);
}

// A model whose blocks of every scale are whole on four tensor-parallel ranks.
inline Scenario low_precision_scenario(LowRecipe recipe, const Layout& layout, std::int64_t global_batch = 1,
                                       bool llama = false) {
  Scenario scenario = tiny_scenario(1, "plain", "bf16", global_batch, 1);
  set_recipe(scenario, recipe);
  const std::int64_t unit = rules_of(scenario.training.low_precision, 0).align;
  Transformer& model = scenario.model;
  model = {1, 4 * unit, 4, 4 * unit, 4 * unit, 4 * unit, 31, 31};
  if (llama) model = in_llama_style(model);
  model.padded_vocab_size = (model.vocab_size + layout.tp - 1) / layout.tp * layout.tp;
  scenario.parallel = {.data_parallel_size = layout.dp,
                       .tensor_model_parallel_size = layout.tp,
                       .sequence_parallel = layout.sequence_parallel};
  scenario.parallel.context_parallel_size = layout.cp;
  scenario.parallel.pipeline_model_parallel_size = layout.pp;
  scenario.parallel.virtual_pipeline_model_parallel_size = layout.vp;
  scenario.parallel.pipeline_schedule = layout.schedule;
  model.num_layers = layout.pp * layout.vp;
  return scenario;
}

struct NumberMatrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<float> values;
};
// Returns the numbers of a matrix, or those for which the codes of one stand that has scales of 32 along its rows.
inline NumberMatrix numbers_of(const host::Operand& operand) {
  if (operand.dtype == Dtype::e4m3) {
    NumberMatrix matrix{operand.rows, operand.cols * 32 / 33, {}};
    matrix.values.resize(static_cast<std::size_t>(matrix.rows * matrix.cols));
    host::decode(host::codes_of(operand, Scaling::mx, ScaledAlong::rows, matrix.rows, matrix.cols), 0, matrix.rows,
                 matrix.values.data());
    return matrix;
  }
  NumberMatrix matrix{operand.rows, operand.cols, {}};
  for (std::int64_t r = 0; r < operand.rows; ++r)
    for (std::int64_t c = 0; c < operand.cols; ++c)
      matrix.values.push_back(operand.dtype == Dtype::bf16
                                  ? to_float(static_cast<const Bf16*>(operand.data)[r * operand.ld + c])
                                  : static_cast<const float*>(operand.data)[r * operand.ld + c]);
  return matrix;
}

// The matrices that a step quantised and multiplied. An operation is "qkv.quantise_x" or "fc1.dgrad".
struct SeenProducts {
  struct Seen {
    NumberMatrix matrix;  // x of a Quantise, C of a product
    NumberMatrix bias;
    float scale = 1;  // of a Quantise with one scale
  };
  std::map<std::tuple<std::string, std::int64_t, int>, Seen> of;  // operation, rank, layer; the last one
  const Seen& at(const std::string& operation, std::int64_t rank, int layer) const {
    return of.at({operation, rank, layer});
  }
  // Groups of rows, or of weights, are matrices of their own: "experts.fc1.dgrad#2" is that of the third one.
  void see(const Schedule& schedule, const BoundProgram& program, const BoundOp& op,
           std::span<const host::Operand> operands) {
    const Work& work = program.works[op.op];
    Seen seen;
    const auto add_groups = [&](const GroupedRows& groups, const host::Operand& matrix, const host::Operand* offsets,
                                const float* scales) {
      const NumberMatrix all = numbers_of(matrix);
      for (std::int64_t g = 0; g < groups.groups; ++g) {
        const auto at = [&](std::int64_t group) -> std::int64_t {
          return offsets ? static_cast<const std::int32_t*>(offsets->data)[group] : groups.rows / groups.groups * group;
        };
        NumberMatrix part{at(g + 1) - at(g), all.cols, {}};
        part.values.assign(all.values.begin() + at(g) * all.cols, all.values.begin() + at(g + 1) * all.cols);
        of[{schedule.operations[op.op].name + "#" + std::to_string(g), program.rank, op.layer}] = {
            std::move(part), {}, scales ? scales[g] : 1};
      }
    };
    if (const auto* quantise = std::get_if<Quantise>(&work); quantise != nullptr && quantise->groups > 0)
      return add_groups(quantise->grouped(), operands[0],
                        quantise->equal ? nullptr : &operands[rule_of(quantise->scaling).has_factor ? 2 : 1],
                        quantise->scaling == Scaling::tensor ? static_cast<const float*>(operands[1].data) : nullptr);
    if (const auto* gemm = std::get_if<GroupedGemm>(&work); gemm != nullptr && gemm->has_codes()) {
      const bool is_wgrad = gemm->pass == Pass::wgrad;
      return add_groups(is_wgrad ? gemm->grouped_weights() : gemm->grouped(), operands.back(),
                        is_wgrad || gemm->equal ? nullptr : &operands[2], nullptr);
    }
    if (const auto* quantise = std::get_if<Quantise>(&work)) {
      seen.matrix = numbers_of(operands[0]);
      if (quantise->scaling == Scaling::tensor) seen.scale = *static_cast<const float*>(operands[1].data);
    } else if (const auto* gemm = std::get_if<Gemm>(&work); gemm != nullptr && gemm->has_codes()) {
      seen.matrix = numbers_of(operands[gemm->c_index()]);
      if (gemm->bias) seen.bias = numbers_of(operands[2]);
    } else {
      return;
    }
    of[{schedule.operations[op.op].name, program.rank, op.layer}] = std::move(seen);
  }
};

inline void add_experts(Scenario& scenario, bool is_shared = true) {
  Transformer& model = scenario.model;
  model.experts.num_moe_experts = 4;
  model.experts.moe_router_topk = 2;
  model.experts.moe_ffn_hidden_size = model.hidden_size / 2;
  if (is_shared) model.experts.moe_shared_expert_intermediate_size = model.hidden_size;
}

// Rows of experts go to their ranks as codes of mxfp8: those of tokens, or the gradients of the experts' results, or
// both.
inline void send_codes(Scenario& scenario, bool rows, bool gradients) {
  using Wire = LowPrecision::WireDtype;
  LowPrecision& low = scenario.training.low_precision;
  low.fp8_format = LowPrecision::Fp8Format::e4m3;
  low.moe_dispatch_fwd_dtype = rows ? Wire::mxfp8 : Wire::bf16;
  low.moe_combine_bwd_dtype = gradients ? Wire::mxfp8 : Wire::bf16;
  scenario.parallel.moe_token_dispatcher_type = TokenDispatcher::flex;
  scenario.parallel.moe_flex_dispatcher_backend = FlexBackend::ncclep;
}

// Trains with the serial executor; `observe` is called after every computation with the number of the step.
template <class Observe>
void train_observed(const Scenario& scenario, const Schedule& schedule, int steps, Observe observe) {
  const MemoryPlan plan = plan_memory(schedule);
  require_verified(schedule, &plan);
  serial::SerialExecutor executor(schedule, plan);
  const exec::MemoryOf memory_of = [&](std::int64_t rank) -> host::RankMemory& { return executor.memory(rank); };
  exec::initialise_state(schedule, scenario, memory_of);
  const exec::TokenSource tokens = tiny_tokens(scenario.model.vocab_size);
  for (int step = 0; step < steps; ++step) {
    exec::write_batch(schedule, scenario, tokens, step, memory_of);
    exec::write_hyper(schedule, scenario, step, memory_of);
    executor.observe([&](const BoundProgram& program, const BoundOp& op, std::span<const host::Operand> operands) {
      observe(step, program, op, operands);
    });
    executor.run(1, static_cast<std::uint64_t>(step) + 1);
  }
}

}  // namespace stretto::testing
