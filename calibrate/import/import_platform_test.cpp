#include "calibrate/import/import_platform.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "base/data_folder.hpp"
#include "calibrate/import/correct_gemms.hpp"
#include "tests/message_of.hpp"
#include "tests/temp_dir.hpp"

namespace stretto::calibrate {
namespace {

using testing::message_of;

// Times of 100 TFLOP/s at every shape of a grid of 3 × 3 × 3: 1e8 FLOP/µs.
std::vector<sim::GemmTime> grid(double slower = 1) {
  std::vector<sim::GemmTime> times;
  for (const double m : {1024, 2048, 4096})
    for (const double n : {1024, 2048, 4096})
      for (const double k : {512, 1024, 2048}) times.push_back({m, n, k, slower * 2 * m * n * k / 1e8});
  return times;
}

sim::Platform base() {
  sim::Platform platform;
  platform.name = "base";
  platform.device = "GPU";
  platform.memory_bytes = 1 << 30;
  sim::Accelerator& a = platform.accelerator.emplace();
  a.sms = 100;
  a.domain = 8;
  a.peak_TFLOPs.value = 200;
  a.hbm_GBps.value = a.nvlink.GBps.value = a.network.GBps.value = 100;
  a.gemms = sim::GemmTable(grid(), "grid");
  a.gemm_source = {"published", "a paper", 0};
  a.collectives = sim::CollectiveTable({{CollectiveKind::all_reduce, {2, 1}, 1024, 10},
                                        {CollectiveKind::all_reduce, {8, 1}, 1024, 20},
                                        {CollectiveKind::all_gather, {8, 1}, 1024, 5}});
  a.collective_source = {"published", "a log", 0};
  a.attention = {{"a", {200, {}}, {100, {}}}};
  return platform;
}

Measurements collectives(std::vector<sim::CollectiveTime> times) { return {"log.txt", std::move(times), {}, "", {}}; }

std::string from(const ImportedPlatform& imported, const std::string& what) {
  for (const ImportedPlatform::Part& part : imported.parts)
    if (part.what == what) return part.from;
  return "nowhere";
}

DataSheet sheet() {
  DataSheet sheet;
  sheet.peak_TFLOPs = 500;
  sheet.hbm_GBps = 2000;
  sheet.memory_GiB = 64;
  sheet.nvlink_GBps = 200;
  sheet.network_GBps = 25;
  sheet.domain = 4;
  return sheet;
}

}  // namespace

TEST_CASE("files of another GPU than the base are named", "[import]") {
  Measurements log = collectives({{CollectiveKind::all_reduce, {8, 1}, 1024, 40}});
  sim::Platform platform = base();
  platform.device = "NVIDIA H100-SXM5-80GB";
  const auto notes = [&] { return import_platform("mine", {log}, platform, {}).notes; };
  CHECK(notes().empty());
  log.device = "NVIDIA H100 80GB HBM3";
  CHECK(notes().empty());
  log.device = "NVIDIA GB200";
  CHECK(notes() ==
        std::vector<std::string>{
            "log.txt is of another GPU, NVIDIA GB200, than base, NVIDIA H100-SXM5-80GB: what your files lack "
            "stays that of the other one; platforms of that GPU: gb200-nvl72"});
  Measurements first = collectives({{CollectiveKind::all_reduce, {4, 1}, 1 << 30, 40000}}), second = first;
  first.device = "NVIDIA B200";
  second.device = "NVIDIA GB200";
  CHECK(import_platform("mine", {first, second}, std::nullopt, sheet()).notes.size() == 1);
}

TEST_CASE("series that were measured take the place of the base's, others stay", "[import]") {
  const ImportedPlatform imported = import_platform(
      "mine",
      {collectives({{CollectiveKind::all_reduce, {8, 1}, 1024, 40}, {CollectiveKind::all_reduce, {16, 2}, 1024, 80}})},
      base(), {});
  const sim::Accelerator& a = *imported.platform.accelerator;
  CHECK(a.collectives.time_us(CollectiveKind::all_reduce, 8, 1024) == Approx(40));
  CHECK(a.collectives.time_us(CollectiveKind::all_reduce, 2, 1024) == Approx(10));
  CHECK(a.collectives.time_us(CollectiveKind::all_gather, 8, 1024) == Approx(5));
  CHECK(*a.collectives.across_us(CollectiveKind::all_reduce, {16, 2}, 1024, nullptr) == Approx(80));
  CHECK(from(imported, "all_reduce on 8 GPUs") == "your files");
  CHECK(from(imported, "all_reduce on 16 GPUs, 2 nodes") == "your files");
  CHECK(from(imported, "all_reduce on 2 GPUs") == "base");
  CHECK(from(imported, "GEMMs") == "base");
  CHECK(from(imported, "gemm_sustained") == "base");
  CHECK(a.collective_source.kind == "measured");
  CHECK(a.collective_source.origin.starts_with("log.txt, 20"));
  CHECK(a.collective_source.origin.ends_with("; the rest base"));
  CHECK(a.gemm_source.origin == "a paper");
}

TEST_CASE("a smaller domain drops what does not fit, a larger one spans hosts", "[import]") {
  DataSheet four;
  four.domain = 4;
  const auto log = [](std::int64_t gpus, std::int64_t hosts) {
    return std::vector<Measurements>{collectives({{CollectiveKind::all_reduce, {gpus, hosts}, 1024, 40}})};
  };
  const sim::Accelerator small = *import_platform("mine", log(8, 2), base(), four).platform.accelerator;
  CHECK(small.collectives.times().size() == 2);  // the base's time for 2 GPUs
  CHECK(message_of([&] { import_platform("mine", log(8, 1), base(), four); }) ==
        "log.txt: expected at most 4 GPUs on a node, the domain of the platform, got 8 on 1; say how many nodes there "
        "are, or --domain");
  DataSheet rack;
  rack.domain = 72;
  const sim::Accelerator large = *import_platform("mine", log(16, 4), base(), rack).platform.accelerator;
  CHECK(large.collectives.time_us(CollectiveKind::all_reduce, 16, 1024) == Approx(40));
}

TEST_CASE("a grid of GEMMs takes the place of the table, single shapes correct it", "[import]") {
  const auto with = [&](const std::vector<sim::GemmTime>& times) {
    return *import_platform("mine", {{"sweep.csv", {}, times, "", {}}}, base(), {}).platform.accelerator;
  };
  CHECK(with(grid(2)).gemms.time_us(2048, 2048, 1024, 0) == Approx(2 * 2 * 2048. * 2048 * 1024 / 1e8).epsilon(1e-5));
  // The measurement is 1.5 times as slow at one shape and twice at another; the table must agree at both, and
  // interpolate elsewhere.
  const auto ideal = [](double m, double n, double k) { return 2 * m * n * k / 1e8; };
  const sim::Accelerator a =
      with({{1536, 3072, 1536, 1.5 * ideal(1536, 3072, 1536)}, {4096, 1024, 512, 2 * ideal(4096, 1024, 512)}});
  CHECK(a.gemms.time_us(1536, 3072, 1536, 0) == Approx(1.5 * ideal(1536, 3072, 1536)).epsilon(1e-4));
  CHECK(a.gemms.time_us(4096, 1024, 512, 0) == Approx(2 * ideal(4096, 1024, 512)).epsilon(1e-4));
  const double elsewhere = a.gemms.time_us(2048, 2048, 1024, 0) / ideal(2048, 2048, 1024);
  CHECK(elsewhere > 1.5);
  CHECK(elsewhere < std::sqrt(1.5 * 2));  // nearer to the first
  CHECK(a.gemm_source.origin.ends_with("; the rest base"));
}

TEST_CASE("another data sheet scales what was measured on the base's GPU", "[import]") {
  DataSheet other;
  other.peak_TFLOPs = 50;  // a quarter
  other.nvlink_GBps = 50;  // half
  sim::Platform gpu = base();
  gpu.accelerator->hbm_share.value = gpu.accelerator->network_share.value = 1;
  gpu.accelerator->collectives = sim::CollectiveTable({{CollectiveKind::all_gather, {8, 1}, 1024, 5},
                                                       {CollectiveKind::all_gather, {8, 1}, 1 << 20, 25},
                                                       {CollectiveKind::all_gather, {16, 2}, 1 << 20, 70}});
  const ImportedPlatform slower = import_platform("mine", {}, gpu, other);
  const sim::Accelerator& a = *slower.platform.accelerator;
  CHECK(a.gemms.time_us(2048, 2048, 1024, 0) == Approx(4 * gpu.accelerator->gemms.time_us(2048, 2048, 1024, 0)));
  CHECK(a.gemm_source.kind == "derived");
  CHECK(a.attention.front().forward_TFLOPs.value == Approx(50));
  CHECK(a.collectives.time_us(CollectiveKind::all_gather, 8, 1024) == Approx(5));          // latency
  CHECK(a.collectives.time_us(CollectiveKind::all_gather, 8, 1 << 20) == Approx(5 + 40));  // and bytes
  // Across nodes NVLink is slower than the cards of eight GPUs, so that the time changes as NCCL's model does.
  const double across_us = *a.collectives.across_us(CollectiveKind::all_gather, {16, 2}, 1 << 20, nullptr);
  CHECK(across_us > 70 * 1.1);
  CHECK(across_us < 70 * 2);
  CHECK(from(slower, "GEMMs") == "derived");
  CHECK(from(slower, "attention.a.backward_TFLOPs") == "derived");
  CHECK(from(slower, "all_gather on 8 GPUs") == "derived");
  CHECK(slower.notes.size() == 2);
  // A faster peak makes no product faster than its bytes at 100 GB/s.
  gpu.accelerator->gemms = sim::GemmTable(
      {{2048, 1024, 32, 2}, {2048, 2048, 8192, 1000}, {1024, 1024, 32, 100}, {1024, 2048, 32, 100}}, "four");
  other.peak_TFLOPs = 2000;
  const ImportedPlatform faster = import_platform("mine", {}, gpu, other);
  const sim::GemmTable& gemms = faster.platform.accelerator->gemms;
  const auto memory_us = [](double m, double n, double k) { return 2 * (m * k + k * n + m * n) / 1e5; };
  CHECK(gemms.time_us(2048, 2048, 8192, 0) == Approx(memory_us(2048, 2048, 8192)).epsilon(1e-4));
  CHECK(gemms.time_us(2048, 1024, 32, 0) == Approx(2).epsilon(1e-4));  // it was faster than that before
  // Numbers that have not changed keep their measured values.
  other.peak_TFLOPs = 200, other.nvlink_GBps = 100;
  CHECK(from(import_platform("mine", {}, base(), other), "GEMMs") == "base");
  CHECK(import_platform("mine", {}, base(), other).notes.empty());
}

TEST_CASE("tables of another GPU than that of the data sheet are refused", "[import]") {
  sim::Platform gpu = base();
  CHECK(sim::contradiction(*gpu.accelerator).empty());
  gpu.accelerator->peak_TFLOPs.value = 80;
  CHECK(sim::contradiction(*gpu.accelerator) ==
        "gemm_table: expected at most peak_TFLOPs, 80, got 100 TFLOP/s with m, n, k = 1024, 1024, 512");
  gpu.accelerator->gemms = {};
  CHECK(sim::contradiction(*gpu.accelerator) == "attention.a: expected at most twice peak_TFLOPs, 80, got 200");
  gpu = base();
  gpu.accelerator->nvlink.GBps.value = 0.1;
  CHECK(
      sim::contradiction(*gpu.accelerator) ==
      "collective_table: expected at most 0.1 GB/s by nvlink.GBps, got 0.179 with all_gather of 1024 bytes on 8 GPUs");
  for (const std::string& name : data_names("platforms"))
    CHECK(sim::contradiction(*sim::read_platform(data_file("platforms", name)).accelerator).empty());
}

TEST_CASE("without a base the data sheet must be whole, and the rest is assumed", "[import]") {
  const ImportedPlatform imported = import_platform("mine", {}, std::nullopt, sheet());
  CHECK(imported.platform.memory_bytes == std::int64_t{64} << 30);
  CHECK(from(imported, "peak_TFLOPs") == "data sheet");
  CHECK(from(imported, "hbm_share") == "assumed");
  CHECK(from(imported, "GEMMs") == "derived");
  CHECK(from(imported, "attention.cudnn.forward_TFLOPs") == "derived");
  DataSheet less = sheet();
  less.hbm_GBps.reset();
  less.domain.reset();
  CHECK(
      message_of([&] { import_platform("mine", {}, std::nullopt, less); }) ==
      "expected --base, a platform to start from (h100-sxm), or a whole data sheet, got none of --hbm_GBps, --domain");
  sim::Platform host;
  host.name = "host";
  CHECK(message_of([&] { import_platform("mine", {}, host, {}); }).find("expected a platform with [accelerator]") !=
        std::string::npos);
}

TEST_CASE("a platform file that was written is read again as it was", "[import]") {
  const testing::TempDir folder;
  const auto written = [&](const ImportedPlatform& imported) {
    const sim::Accelerator& a = *imported.platform.accelerator;
    if (!a.gemms.empty()) folder.write("g.csv", a.gemms.text());
    if (!a.collectives.empty()) folder.write("c.csv", a.collectives.text());
    return sim::read_platform(folder.write("mine.toml", platform_text(imported, "g.csv", "c.csv")));
  };
  SECTION("over one that ships") {
    const sim::Platform h100 = sim::read_platform(data_file("platforms", "h100-sxm"));
    ImportedPlatform imported =
        import_platform("mi\"ne\n", {collectives({{CollectiveKind::all_reduce, {64, 8}, 1024, 40}})}, h100, {});
    const sim::Platform platform = written(imported);
    CHECK(platform.name == "mi\"ne\\n");
    const sim::Accelerator &a = *platform.accelerator, &b = *h100.accelerator;
    CHECK(a.gemms.time_us(3000, 5000, 700, 0) == Approx(b.gemms.time_us(3000, 5000, 700, 0)).epsilon(1e-4));
    CHECK(a.collectives.time_us(CollectiveKind::all_gather, 8, 3e5) ==
          Approx(b.collectives.time_us(CollectiveKind::all_gather, 8, 3e5)).epsilon(1e-4));
    CHECK(a.collectives.across_us(CollectiveKind::all_reduce, {64, 8}, 1024, nullptr) == Approx(40));
    CHECK(a.gemm_sustained.value == b.gemm_sustained.value);
    CHECK(a.gemm_sustained.sourced == b.gemm_sustained.sourced);
    CHECK(a.gemm_sustained.source.origin == b.gemm_sustained.source.origin);
    CHECK(a.attention.front().name == b.attention.front().name);
    CHECK(a.attention.size() == b.attention.size());
    CHECK(a.network.latency_us.high == b.network.latency_us.high);
  }
  SECTION("of a data sheet") {
    const sim::Platform platform = written(import_platform("mine", {}, std::nullopt, sheet()));
    CHECK(platform.accelerator->gemms.empty());
    CHECK(platform.accelerator->gemm_share.value == Approx(0.65));
    CHECK(platform.accelerator->attention_named("flash2").forward_TFLOPs.value == Approx(350));
    CHECK(platform.accelerator->domain == 4);
  }
}

}  // namespace stretto::calibrate
