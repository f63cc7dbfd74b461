#include "sim/cost/features.hpp"

#include <catch2/catch.hpp>

#include "model/lower/builder.hpp"

namespace stretto::sim {
namespace {

struct Built {
  Schedule schedule;
  std::string key(const Work& work, std::initializer_list<Dtype> operands, std::int64_t elements = 8,
                  AccessMode mode = AccessMode::write) {
    Operation operation{"op" + std::to_string(schedule.operations.size()), work, 0, Phase::forward, {}};
    for (const Dtype dtype : operands) {
      const TensorId tensor = add_tensor(schedule, "t" + std::to_string(schedule.tensors.size()), dtype,
                                         BufferKind::workspace, 1, elements);
      operation.accesses.push_back({mode, whole(schedule, tensor)});
    }
    return work_cost(schedule, operation).key;
  }
};

}  // namespace

TEST_CASE("in mixed precision a cost's key says what is written, where that varies", "[sim]") {
  Built mixed;
  mixed.schedule.compute_dtype = Dtype::bf16;
  using enum Dtype;
  CHECK(mixed.key(Fill{8}, {bf16}) == "fill_bf16");
  CHECK(mixed.key(Fill{8}, {f32}) == "fill_f32_bf16");
  CHECK(mixed.key(Cast{8}, {f32, bf16}) == "cast_bf16");
  CHECK(mixed.key(Cast{8}, {bf16, f32}) == "cast_f32_bf16");
  CHECK(mixed.key(Cast{8}, {bf16, bf16}) == "copy_bf16");
  CHECK(mixed.key(Cast{8}, {f32, f32}) == "copy_f32_bf16");
  CHECK(mixed.key(Gemm{2, 2, 2}, {bf16, bf16, bf16}) == "gemm_nn_bf16");
  CHECK(mixed.key(Gemm{2, 2, 2, true}, {bf16, bf16, f32}, 8, AccessMode::accumulate) == "gemm_tn_acc_f32_bf16");
  CHECK(mixed.key(LocalReduce{2, 4}, {f32, f32}) == "local_reduce_f32_bf16");
  CHECK(mixed.key(LocalReduce{2, 4}, {bf16, f32}) == "local_reduce_f32_bf16");
  CHECK(mixed.key(ScaledCast{Pass::forward, 1, 64}, {bf16, e4m3}) == "cast_bf16");
  CHECK(mixed.key(ScaledCast{Pass::backward, 2, 64}, {e4m3, bf16}) == "cast_bf16");
  CHECK(mixed.key(Elementwise{ElementwiseFn::add, 1, 8}, {bf16, bf16, bf16}) == "add_bf16");
  CHECK(mixed.key(Elementwise{ElementwiseFn::column_sum, 1, 8}, {bf16, f32}) == "column_sum_f32_bf16");
}

TEST_CASE("a GEMM with an epilogue has its own cost, and those of its parts where nothing has epilogues", "[sim]") {
  Schedule schedule;
  const auto tensor = [&] {
    return whole(schedule, add_tensor(schedule, "t" + std::to_string(schedule.tensors.size()), Dtype::f32,
                                      BufferKind::workspace, 4, 4));
  };
  const Operation fused{"fc1.fprop",
                        Gemm{4, 4, 4, false, true, true, GemmEpilogue::gelu},
                        0,
                        Phase::forward,
                        {read(tensor()), read(tensor()), read(tensor()), write(tensor()), write(tensor())}};
  const WorkCost forward = work_cost(schedule, fused);
  CHECK(forward.key == "gemm_nt_bias_gelu_f32");
  REQUIRE(forward.parts.size() == 2);
  CHECK(forward.parts[0].key == "gemm_nt_bias_f32");
  CHECK(forward.parts[1].key == "gelu_f32");
  const Operation backward{"fc2.dgrad",
                           Gemm{4, 4, 4, false, false, false, GemmEpilogue::gelu_backward},
                           0,
                           Phase::dgrad,
                           {read(tensor()), read(tensor()), read(tensor()), write(tensor())}};
  const WorkCost gradient = work_cost(schedule, backward);
  CHECK(gradient.key == "gemm_nn_gelu_backward_f32");
  CHECK(gradient.parts[0].key == "gemm_nn_f32");
  CHECK(gradient.parts[1].key == "gelu_backward_f32");
  Operation with_bias = backward;
  std::get<Gemm>(with_bias.work).epilogue = GemmEpilogue::gelu_backward_bias_gradient;
  with_bias.accesses.insert(with_bias.accesses.end() - 1, accumulate(tensor()));
  const WorkCost summed = work_cost(schedule, with_bias);
  CHECK(summed.key == "gemm_nn_gelu_backward_bias_gradient_f32");
  REQUIRE(summed.parts.size() == 3);
  CHECK(summed.parts[1].key == "gelu_backward_f32");
  CHECK(summed.parts[2].key == "column_sum_f32");
  const View dy = whole(schedule, add_tensor(schedule, "dy", Dtype::f32, BufferKind::workspace, 6, 4));
  const Operation weights{"fc1.wgrad",
                          Gemm{4, 4, 6, true, false, false, GemmEpilogue::bias_gradient},
                          0,
                          Phase::wgrad,
                          {read(dy), read(tensor()), accumulate(tensor()), accumulate(tensor())}};
  const WorkCost both = work_cost(schedule, weights);
  CHECK(both.key == "gemm_tn_bias_gradient_acc_f32");
  REQUIRE(both.parts.size() == 2);
  CHECK(both.parts[0].key == "gemm_tn_acc_f32");
  CHECK(both.parts[1].key == "column_sum_f32");
  CHECK(both.parts[1].features[1] == 6 * 4);
}

TEST_CASE("a GEMM that adds the residual is in parts what the plain schedule has", "[sim]") {
  Schedule schedule;
  schedule.compute_dtype = Dtype::bf16;
  const auto tensor = [&](std::int64_t rows) {
    return whole(schedule, add_tensor(schedule, "t" + std::to_string(schedule.tensors.size()), Dtype::bf16,
                                      BufferKind::workspace, rows, 4));
  };
  Gemm gemm{4, 4, 4, false, true, true, GemmEpilogue::residual};
  Operation operation{"proj.fprop",
                      gemm,
                      0,
                      Phase::forward,
                      {read(tensor(4)), read(tensor(4)), read(tensor(1)), read(tensor(4)), write(tensor(4))}};
  const WorkCost with_bias = work_cost(schedule, operation);
  CHECK(with_bias.key == "gemm_nt_bias_residual_bf16");
  REQUIRE(with_bias.parts.size() == 2);
  CHECK(with_bias.parts[0].key == "gemm_nt_bf16");
  CHECK(with_bias.parts[1].key == "bias_add_bf16");
  CHECK(with_bias.parts[1].features[1] == 4 * 4);
  gemm.bias = false;
  operation.work = gemm;
  operation.accesses.erase(operation.accesses.begin() + 2);
  const WorkCost without = work_cost(schedule, operation);
  CHECK(without.key == "gemm_nt_residual_bf16");
  REQUIRE(without.parts.size() == 2);
  CHECK(without.parts[0].key == "gemm_nt_bf16");
  CHECK(without.parts[1].key == "add_bf16");
}

TEST_CASE("both gradients of a norm at once are in parts what the plain schedule has", "[sim]") {
  Schedule schedule;
  schedule.compute_dtype = Dtype::bf16;
  const auto tensor = [&](std::int64_t rows, std::int64_t cols) {
    return whole(schedule, add_tensor(schedule, "t" + std::to_string(schedule.tensors.size()), Dtype::bf16,
                                      BufferKind::workspace, rows, cols));
  };
  const View dx = tensor(6, 4);
  Operation operation{"ln_1.backward",
                      LayerNorm{Pass::backward, 6, 4},
                      0,
                      Phase::dgrad,
                      {read(tensor(6, 4)), read(tensor(6, 4)), read(tensor(6, 2)), read(tensor(1, 4)),
                       accumulate(tensor(1, 4)), accumulate(tensor(1, 4)), accumulate(dx)}};
  const WorkCost both = work_cost(schedule, operation);
  CHECK(both.key == "layernorm_backward_acc_bf16");
  CHECK(both.features == std::vector<double>{1, 6, 24});
  REQUIRE(both.parts.size() == 2);
  CHECK(both.parts[0].key == "layernorm_wgrad_bf16");
  CHECK(both.parts[1].key == "layernorm_dgrad_acc_bf16");
  operation.work = RmsNorm{Pass::backward, 6, 4};
  operation.accesses.erase(operation.accesses.begin() + 5);
  operation.accesses.back() = write(dx);
  const WorkCost written = work_cost(schedule, operation);
  CHECK(written.key == "rmsnorm_backward_bf16");
  REQUIRE(written.parts.size() == 2);
  CHECK(written.parts[0].key == "rmsnorm_wgrad_bf16");
  CHECK(written.parts[1].key == "rmsnorm_dgrad_bf16");
}

TEST_CASE("keys of one precision are as platform files have them", "[sim]") {
  Built single;
  using enum Dtype;
  CHECK(single.key(Fill{8}, {f32}) == "fill_f32");
  CHECK(single.key(Cast{8}, {f32, bf16}) == "cast_f32");
  CHECK(single.key(Gemm{2, 2, 2}, {f32, f32, f32}) == "gemm_nn_f32");
  CHECK(single.key(Attention{Pass::forward, 1, 4, 2, 8, 8}, {f32, f32, f32}) == "attention_forward_f32");
}

TEST_CASE("unfused attention has costs of its own", "[sim]") {
  Built single;
  using enum Dtype;
  CHECK(single.key(AttentionProduct{AttentionFactor::dk, 1, 4, 2, 8, 8}, {f32, f32, f32}) == "attention_dk_f32");
  CHECK(single.key(Softmax{Pass::dgrad, 8, 8}, {f32, f32}) == "softmax_dgrad_f32");
  Dropout dropout{Pass::forward, 8, 8, 8, 0.1, DropoutSite::attention};
  CHECK(single.key(dropout, {f32, i32, f32}) == "dropout_forward_f32");
  dropout.keeps_mask = true;
  CHECK(single.key(dropout, {f32, i32, f32, i32}) == "dropout_mask_forward_f32");
}

TEST_CASE("a movement on thread blocks has a share for each, and all share the memory", "[sim]") {
  const WorkCost alone = movement_cost(Collective{CollectiveKind::all_gather, 0, 1024}, Dtype::bf16, 4, true);
  CHECK(alone.features == std::vector<double>{1, 1536});  // three slices read, three written
  const WorkCost cost = on_blocks(alone, 8, 4);
  CHECK(cost.key == "move_all_gather_bf16");
  CHECK(cost.features == std::vector<double>{1, 192, 6144});
}

}  // namespace stretto::sim
