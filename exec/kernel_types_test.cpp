#include "exec/kernel_types.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "model/overlap/overlap.hpp"
#include "tests/random_layout.hpp"

using namespace stretto;
using Catch::Matchers::Contains;
using exec::KernelPlace;
using exec::missing_kernel;

TEST_CASE("each operation of random layouts has a kernel on the host and on a GPU", "[kernel_types]") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed)
    for (const auto& layout : {testing::random_layout(seed), testing::random_layout_in_codes(seed)}) {
      Scenario scenario = layout.scenario;
      CAPTURE(layout.toml);
      for (const char* precision : {"fp32", "bf16", "fp64"}) {
        scenario.training.precision = precision;
        const Schedule schedule = build_schedule(scenario);
        CHECK(missing_kernel(schedule, KernelPlace::host).empty());
        // Linear attention has kernels on the host alone (docs/scenario.md).
        const bool has_linear =
            std::any_of(schedule.operations.begin(), schedule.operations.end(), [](const Operation& operation) {
              return std::visit([]<class W>(const W&) { return OfLinearAttention<W>; }, operation.work);
            });
        if (schedule.compute_dtype != Dtype::f64)
          CHECK(missing_kernel(schedule, KernelPlace::gpu).empty() == !has_linear);
      }
    }
}

TEST_CASE("types without a kernel are named with the operation", "[kernel_types]") {
  // An operation x -> y of these types.
  const auto missing = [](Work work, Dtype x, Dtype y, KernelPlace place) {
    Schedule schedule;
    for (const Dtype dtype : {x, y}) {
      const auto id = static_cast<StorageId>(schedule.storages.size());
      Storage& storage = schedule.storages.emplace_back();
      storage.elements = 8;
      storage.dtype = dtype;
      Tensor& tensor = schedule.tensors.emplace_back();
      tensor.name = "t";
      tensor.places.emplace_back().storage = id;
    }
    Operation& operation = schedule.operations.emplace_back();
    operation.name = "it";
    operation.work = std::move(work);
    for (TensorId tensor = 0; tensor < 2; ++tensor) operation.accesses.emplace_back().view = {tensor, 0, 0, 0, 1, 8, 8};
    return missing_kernel(schedule, place);
  };
  const Work cast = Cast{8}, gelu = Elementwise{ElementwiseFn::gelu, 1, 8};
  for (const KernelPlace place : {KernelPlace::host, KernelPlace::gpu}) {
    CHECK(missing(cast, Dtype::f32, Dtype::bf16, place).empty());
    CHECK(missing(cast, Dtype::e4m3, Dtype::e4m3, place).empty());
    CHECK_THAT(missing(cast, Dtype::e4m3, Dtype::bf16, place), Contains("of e4m3, bf16 (it)"));
    CHECK(missing(gelu, Dtype::bf16, Dtype::bf16, place).empty());
    CHECK_THAT(missing(gelu, Dtype::e4m3, Dtype::f32, place), Contains("of e4m3, f32 (it)"));
    CHECK_THAT(missing(gelu, Dtype::f64, Dtype::f32, place), Contains("of f64, f32 (it)"));
  }
  CHECK(missing(gelu, Dtype::bf16, Dtype::f32, KernelPlace::host).empty());
  CHECK_THAT(missing(gelu, Dtype::bf16, Dtype::f32, KernelPlace::gpu), Contains("of bf16, f32 (it)"));
  CHECK_THAT(missing(gelu, Dtype::f64, Dtype::f64, KernelPlace::gpu), Contains("of f64, f64 (it)"));
}
