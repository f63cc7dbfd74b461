#include "validate/validate_components.hpp"

#include <catch2/catch.hpp>

#include "base/data_folder.hpp"
#include "sim/platform.hpp"

namespace stretto::validate {
namespace {

const ComponentErrors* find(const std::vector<ComponentErrors>& all, const std::string& left_out,
                            const std::string& range) {
  for (const ComponentErrors& errors : all)
    if (errors.left_out == left_out && errors.range == range) return &errors;
  return nullptr;
}

}  // namespace

TEST_CASE("points that follow the tables' own formulas are predicted exactly, one that does not is off", "[compare]") {
  std::vector<sim::GemmTime> gemms;
  for (const double m : {1024, 2048, 4096})
    for (const double n : {1024, 2048})
      gemms.push_back({m, n, 512, (m == 2048 && n == 1024 ? 2 : 1) * 2 * m * n * 512 / 1e6});
  std::vector<sim::CollectiveTime> times;
  for (const std::int64_t gpus : {2, 4, 8})
    for (const double kib : {64, 128, 1024, 16384, 65536, 262144})
      times.push_back({CollectiveKind::all_gather, {gpus, 1}, kib * 1024, 10 + kib / 100});
  for (const double kib : {64, 128, 256}) times.push_back({CollectiveKind::all_gather, {16, 2}, kib * 1024, 30 + kib});
  sim::Accelerator a;
  a.gemms = sim::GemmTable(gemms, "t");
  a.collectives = sim::CollectiveTable(times);
  const std::vector<ComponentErrors> all = validate_components(a);
  // m = 2048 lies between two others; it has its right time in one table and twice that in the other.
  REQUIRE(find(all, "GEMM", "all"));
  CHECK(find(all, "GEMM", "all")->points == 2);
  CHECK(find(all, "GEMM", "all")->median_pct == Approx(25).epsilon(1e-4));
  CHECK(find(all, "GEMM", "above 300 us")->points == 2);
  CHECK(find(all, "GEMM, along one axis", "all")->points == 2);
  REQUIRE(find(all, "all_gather", "below 256 KiB"));
  CHECK(find(all, "all_gather", "below 256 KiB")->points == 3);
  CHECK(find(all, "all_gather", "to 16 MiB")->points == 6);
  CHECK(find(all, "all_gather", "above 16 MiB")->points == 3);
  for (const char* range : {"below 256 KiB", "to 16 MiB", "above 16 MiB"}) {
    CHECK(find(all, "all_gather", range)->p95_pct == Approx(0).margin(1e-9));
    CHECK(find(all, "all_gather, number of GPUs", range)->p95_pct == Approx(0).margin(1e-9));
  }
  CHECK(find(all, "all_gather, 8 on a node", "below 256 KiB")->points == 1);
  CHECK(validate_components({}).empty());
}

// The accuracy of the tables, as docs/validate.md states it.
TEST_CASE("tables that ship predict shapes and sizes that were left out", "[compare]") {
  struct Target {
    const char *platform, *left_out, *range;
    double median_pct, p95_pct;
  };
  for (const Target& target :
       {Target{"a100-80gb", "GEMM", "all", 2.1, 15}, Target{"h100-sxm", "GEMM", "all", 4.5, 15},
        Target{"b200-sxm", "GEMM", "all", 4.5, 15}, Target{"h100-sxm", "all_gather", "to 16 MiB", 8, 35},
        Target{"h100-sxm", "all_reduce", "above 16 MiB", 2, 10},
        Target{"b200-sxm", "all_reduce", "to 16 MiB", 8, 35}, Target{"h100-sxm", "GEMM in fp8, k", "above 200 us", 2.5, 15},
        Target{"h100-sxm", "GEMM in fp8_block, k", "above 200 us", 2.5, 15},
        Target{"b200-sxm", "GEMM in fp8, k", "above 200 us", 2.5, 15},
        Target{"gb200-nvl72", "GEMM, k", "above 200 us", 2.5, 15},
        Target{"gb300-nvl72", "GEMM in mxfp8, k", "above 200 us", 2.5, 15},
        Target{"b300-sxm", "GEMM in nvfp4, k", "above 200 us", 2.5, 15}}) {
    INFO(target.platform << ", " << target.left_out);
    const std::vector<ComponentErrors> all =
        validate_components(*sim::read_platform(data_file("platforms", target.platform)).accelerator);
    const ComponentErrors* errors = find(all, target.left_out, target.range);
    REQUIRE(errors);
    CHECK(errors->median_pct < target.median_pct);
    CHECK(errors->p95_pct < target.p95_pct);
  }
}

}  // namespace stretto::validate
