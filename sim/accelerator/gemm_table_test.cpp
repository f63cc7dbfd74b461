#include "sim/accelerator/gemm_table.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/message_of.hpp"

namespace stretto::sim {
namespace {

using testing::message_of;

// A GPU of 100 TFLOP/s at every shape: 1e8 FLOP/µs.
double ideal_us(double m, double n, double k) { return 2 * m * n * k / 1e8; }

std::string csv(double (*us)(double, double, double)) {
  std::string text = "stack,m,n,k,time_us\n";
  for (const int m : {1024, 2048, 4096})
    for (const int n : {512, 4096, 8192})
      for (const int k : {256, 1024}) text += fmt::format("a,{},{},{},{}\n", m, n, k, us(m, n, k));
  return text;
}

}  // namespace

TEST_CASE("a GEMM table gives its points and interpolates the rate between them", "[sim]") {
  const GemmTable table = GemmTable::parse(csv(ideal_us), "t.csv");
  CHECK(table.time_us(2048, 512, 1024, 0) == Approx(ideal_us(2048, 512, 1024)).epsilon(1e-5));
  CHECK(table.time_us(3000, 5000, 700, 0) == Approx(ideal_us(3000, 5000, 700)).epsilon(1e-5));
  SECTION("beyond its largest it is proportional; below its smallest there are whole tiles, and k is proportional") {
    CHECK(table.time_us(4096, 16384, 1024, 0) == Approx(ideal_us(4096, 16384, 1024)).epsilon(1e-5));
    CHECK(table.time_us(2048, 300, 1024, 0) == Approx(ideal_us(2048, 384, 1024)).epsilon(1e-5));
    CHECK(table.time_us(2048, 512, 64, 0) == Approx(ideal_us(2048, 512, 64)).epsilon(1e-5));
  }
  SECTION("how far a shape is outside is that of its farthest side, with rows and columns as they fit best") {
    CHECK(table.beyond(2048, 4096, 300) == Approx(1));
    CHECK(table.beyond(8192, 1024, 1024) == Approx(1));
    CHECK(table.beyond(4096, 12288, 4096) == Approx(4));
    CHECK(table.beyond(2048, 4096, 64) == Approx(4));
  }
  SECTION("rows and columns of the result may be exchanged") {
    CHECK(table.time_us(8192, 1024, 256, 0) == Approx(ideal_us(1024, 8192, 256)).epsilon(1e-5));
  }
}

TEST_CASE("the middle of two points has the geometric mean of their rates", "[sim]") {
  const GemmTable table =
      GemmTable::parse("m,n,k,time_us\n1000,1000,1000,100\n4000,1000,1000,1600\n", "t.csv");  // rates 1 : 4
  CHECK(table.time_us(2000, 1000, 1000, 0) == Approx(2 * 100 * 2).epsilon(1e-5));
}

TEST_CASE("several times of a shape count by their geometric mean, and a hole in k is filled", "[sim]") {
  const GemmTable table = GemmTable::parse(
      "k,time_us,m,n\n256,10,128,128\n256,40,128,128\n1024,80,128,128\n256,10,256,128\n512,40,256,128\n1024,80,256,"
      "128\n",
      "t.csv");
  CHECK(table.time_us(128, 128, 256, 0) == Approx(20).epsilon(1e-5));
  CHECK(table.time_us(128, 128, 512, 0) == Approx(40).epsilon(1e-5));
}

TEST_CASE("a GEMM table has a grid for each type, and a table without types is of bf16", "[sim]") {
  const GemmTable plain = GemmTable::parse(csv(ideal_us), "t.csv");
  CHECK(plain.has(ProductType::bf16));
  CHECK_FALSE(plain.has(ProductType::fp8));
  CHECK(plain.text().starts_with("m,n,k,time_us\n"));
  const GemmTable both = GemmTable::parse("m,n,k,time_us,dtype\n128,128,256,10,bf16\n128,128,256,6,fp8\n", "t.csv");
  CHECK(both.time_us(128, 128, 256, 0) == Approx(10));
  CHECK(both.time_us(128, 128, 512, 0, ProductType::fp8) == Approx(12));
  CHECK(both.text() == "m,n,k,time_us,dtype\n128,128,256,10,bf16\n128,128,256,6,fp8\n");
  CHECK(GemmTable::parse(both.text(), "t.csv").text() == both.text());
}

TEST_CASE("whole waves of tiles", "[sim]") {
  // 108 SMs: 27 × 4 tiles of 256 × 128 fill a wave; one more row of tiles needs a second wave.
  CHECK(wave_utilisation(27 * 256, 4 * 128, 108) == Approx(1));
  CHECK(wave_utilisation(28 * 256, 4 * 128, 108) == Approx(28.0 / 54).epsilon(0.5));
  CHECK(wave_utilisation(28 * 256, 4 * 128, 108) < 0.85);
}

TEST_CASE("tables that cannot be read say where and why", "[sim]") {
  const auto message = [](const char* text) { return message_of([&] { GemmTable::parse(text, "t.csv"); }); };
  CHECK(message("m,n,k,time_ms\n1,1,1,1\n") ==
        "t.csv:1: expected a column \"time_us\", got none; did you mean \"time_ms\"?");
  CHECK(message("m,n,k,time_us\n1,1,1,fast\n") == "t.csv:2: time_us: expected a number above 0, got \"fast\"");
  CHECK(message("m,n,k,time_us,dtype\n1,1,1,1,fp4\n") ==
        "t.csv:2: dtype: expected bf16, f32, fp8, fp8_block, mxfp8 or nvfp4, got \"fp4\"");
  CHECK(message("m,n,k,time_us\n1,1,1\n") == "t.csv:2: expected 4 cells, got 3");
  CHECK(message("m,n,k,time_us\n1,1,1,-1\n") == "t.csv:2: time_us: expected a number above 0, got \"-1\"");
  CHECK(message("m,n,k,time_us\n") == "t.csv: expected rows of m, n, k and time_us, got none");
  CHECK(message("").find("t.csv:1: expected a column \"m\"") == 0);
  CHECK(message("m,n,k,time_us\n1,1,1,1\n2,4,1,1\n").find("at some k") != std::string::npos);
}

}  // namespace stretto::sim
