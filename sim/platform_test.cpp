#include "sim/platform.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.hpp"
#include "tests/temp_dir.hpp"

namespace stretto::sim {
namespace {

const Source kSource = {"measured", "a test", 1.5};

Platform gpu_platform() {
  Platform platform;
  platform.name = "a GPU";
  platform.device = "Toy";
  platform.date = "2026-01-01";
  platform.cores = 1;
  platform.memory_bytes = 1 << 30;
  platform.compute_capability = 9;
  Gpu& gpu = platform.gpu.emplace();
  gpu.sms = 132;
  gpu.ctas = 16;
  gpu.gemm_TFLOPs = {700, kSource};
  for (int c = 0; c < kDemandClasses; ++c) {
    gpu.beside_moving[c] = gpu.beside_waiting[c] = gpu.moving_beside[c] = {{2, 8}, {0.1, 0.4}, kSource};
    gpu.beside_copying[c] = gpu.copying_beside[c] = {{2, 4}, {0.3, 0.5}, kSource};
  }
  for (auto* quantity : {&platform.op_overhead_us, &platform.wake_us, &platform.timer_overshoot_us})
    *quantity = {2, kSource};
  for (auto& row : platform.slowdown)
    for (Quantity& quantity : row) quantity = {0.5, kSource};
  CostFit fit;
  fit.coefficients = {1, 2e-9};
  fit.source = kSource;
  fit.points = 2;
  fit.largest_us = 9.5;
  fit.measured = {{{1, 1e9}, 3.25}, {{1, 4e9}, 9.5}};
  platform.costs["fill_bf16"] = fit;
  return platform;
}

std::string text_of(const std::string& path) {
  std::stringstream all;
  all << std::ifstream(path).rdbuf();
  return all.str();
}

struct File {
  testing::TempDir folder;
  std::string path = folder.file("platform.toml");

  std::string text() const { return text_of(path); }
  void replace(const std::string& what, const std::string& by) const {
    std::string all = text();
    const std::size_t at = all.find(what);
    REQUIRE(at != std::string::npos);
    std::ofstream(path) << all.replace(at, what.size(), by);
  }
};

}  // namespace

TEST_CASE("a curve runs straight between its points, from 0, and on as it ends", "[sim]") {
  const Curve curve{{2, 8}, {0.1, 0.4}, kSource};
  CHECK(value_of(curve, 0) == 0);
  CHECK(value_of(curve, 1) == Approx(0.05));
  CHECK(value_of(curve, 2) == Approx(0.1));
  CHECK(value_of(curve, 5) == Approx(0.25));
  CHECK(value_of(curve, 100) == Approx(0.4));
}

TEST_CASE("a GPU's platform is written and read", "[sim]") {
  const File file;
  const Platform written = gpu_platform();
  write_platform(file.path, written);
  const Platform read = read_platform(file.path);
  REQUIRE(read.gpu);
  CHECK(read.gpu->sms == 132);
  CHECK(read.gpu->ctas == 16);
  CHECK(read.compute_capability == 9);
  CHECK(read.gpu->gemm_TFLOPs.value == 700);
  CHECK(read.gpu->moving_beside[3].at == std::vector<double>{2, 8});
  CHECK(read.gpu->beside_copying[1].at == std::vector<double>{2, 4});
  CHECK(read.gpu->copying_beside[1].value == std::vector<double>{0.3, 0.5});
  CHECK(read.gpu->beside_waiting[0].value == std::vector<double>{0.1, 0.4});
  CHECK(read.gpu->beside_moving[1].source.origin == "a test");
  CHECK(read.cores == 1);
  CHECK(read.slowdown[1][2].value == 0.5);
  CHECK(read.costs.at("fill_bf16").coefficients == std::vector<double>{1, 2e-9});
  CHECK(read.costs.at("fill_bf16").largest_us == 9.5);
  REQUIRE(read.costs.at("fill_bf16").measured.size() == 2);
  CHECK(read.costs.at("fill_bf16").measured[1].features == std::vector<double>{1, 4e9});
  CHECK(read.costs.at("fill_bf16").measured[1].us == 9.5);
  const std::string text = file.text();
  write_platform(file.path, read);
  CHECK(file.text() == text);
}

TEST_CASE("a host's platform is written as it was read", "[sim]") {
  const File file;
  const std::string given = (std::filesystem::path(__FILE__).parent_path() / "../docs/measured/host.toml").string();
  write_platform(file.path, read_platform(given));
  CHECK(file.text() == text_of(given));
}

TEST_CASE("what a GPU's platform cannot say is an error with its place", "[sim]") {
  const File file;
  write_platform(file.path, gpu_platform());
  SECTION("blocks that do not rise") {
    file.replace("blocks = [2, 8]", "blocks = [8, 2]");
    CHECK_THROWS_WITH(read_platform(file.path), Catch::Contains("expected rising numbers above 0"));
  }
  SECTION("values that are fewer") {
    file.replace("value = [0.1, 0.4]", "value = [0.1]");
    CHECK_THROWS_WITH(read_platform(file.path), Catch::Contains("as many `value`s"));
  }
  SECTION("half a point") {
    file.replace("  1, 4e+09, 9.5,", "  1, 4e+09,");
    CHECK_THROWS_WITH(read_platform(file.path), Catch::Contains("expected rows of 2 features and a time"));
  }
  SECTION("time that work gives back") {
    file.replace("coefficients_us = [1.000000e+00,", "coefficients_us = [-1.0,");
    CHECK_THROWS_WITH(read_platform(file.path),
                      Catch::Contains("coefficients_us: expected an array of numbers of at least 0"));
  }
  SECTION("work for nothing") {
    file.replace("coefficients_us = [1.000000e+00, 2.000000e-09]", "coefficients_us = [0, 0]");
    CHECK_THROWS_WITH(read_platform(file.path), Catch::Contains("coefficients_us: expected one above 0 at least"));
  }
  SECTION("a host as well") {
    file.replace("[gpu]", "[host]\n[gpu]");
    CHECK_THROWS_WITH(read_platform(file.path), Catch::Contains("host"));
  }
}

}  // namespace stretto::sim
