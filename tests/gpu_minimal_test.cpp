// Tests of calibrate --minimal on a device with given times and on the emulated one.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>
#include <variant>

#include "calibrate/minimal.hpp"
#include "sim/accelerator/numbers.hpp"
#include "tests/fake_gpu.hpp"
#include "tests/message_of.hpp"
#include "tests/temp_dir.hpp"
#include "tests/tiny_gpu_sizes.hpp"

namespace stretto::calibrate {
namespace {

using testing::message_of;

// 100 TFLOP/s, 1e8 FLOP/µs, at every shape.
ImportedPlatform base() {
  sim::Platform platform;
  platform.name = "base";
  platform.device = "GPU";
  platform.memory_bytes = 1 << 30;
  sim::Accelerator& a = platform.accelerator.emplace();
  a.sms = 4;
  a.domain = 8;
  a.peak_TFLOPs.value = 200;
  a.hbm_GBps.value = a.nvlink.GBps.value = a.network.GBps.value = 1000;
  sim::set_defaults(a);
  std::vector<sim::GemmTime> times;
  for (const double m : {64, 128, 256})
    for (const double n : {64, 128, 256})
      for (const double k : {64, 128, 256}) times.push_back({m, n, k, 2 * m * n * k / 1e8});
  a.gemms = sim::GemmTable(times, "grid");
  return import_platform("mine", {}, platform, {});
}

void measure(const Machine& machine, const MinimalSizes& sizes, ImportedPlatform& platform) {
  measure_minimal(machine, sizes, platform, [](const std::string&) {});
}

const ImportedPlatform::Part& part(const ImportedPlatform& imported, const std::string& what) {
  return *std::find_if(imported.parts.begin(), imported.parts.end(), [&](const auto& one) { return one.what == what; });
}

// A GPU with these times. GEMMs become slower in the second half of the measurement.
struct Times {
  double gemm_us = 0, later_gemm_us = 0, copy_us = 0, small_us = 0;
  std::int64_t memory_bytes = 1 << 30;
};
class TimedGpu final : public exec::Executor {
 public:
  TimedGpu(const Schedule& schedule, const MemoryPlan& plan, const Times& times)
      : times_(times), programs_{bind(schedule, 0)}, memory_(schedule, plan.roles.front()) {}

  Timeline run(int /*steps*/) override {
    const bool is_gemm = std::holds_alternative<Gemm>(programs_.front().work_of(0));
    const double us = !is_gemm ? times_.copy_us : Clock::now() < hot_ ? times_.gemm_us : times_.later_gemm_us;
    if (is_gemm) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    Timeline timeline;
    for (std::uint32_t op = 0; op < programs_.front().ops.size(); ++op)
      timeline.rows.push_back({.op = op, .start = from_us(us * op), .end = from_us(us * (op + 1))});
    return timeline;
  }
  Timeline run_without_rows(int /*steps*/) override {
    Timeline timeline;
    timeline.step_end = from_us(times_.small_us * static_cast<double>(programs_.front().ops.size()));
    return timeline;
  }
  const std::vector<BoundProgram>& programs() const override { return programs_; }
  host::RankMemory& memory(std::int64_t /*rank*/) override { return memory_; }
  std::optional<Device> device() const override { return Device{"Timed GPU", 4, times_.memory_bytes}; }

 private:
  using Clock = std::chrono::steady_clock;
  Times times_;
  std::vector<BoundProgram> programs_;
  host::RankMemory memory_;
  Clock::time_point hot_ = Clock::now() + std::chrono::milliseconds(60);
};
Machine timed_gpu(const Times& times) {
  return {[=](const VerifiedSchedule& verified, const RunOptions&) {
            return std::make_unique<TimedGpu>(verified.schedule, verified.plan, times);
          },
          2};
}

// 2 · 128³ FLOP take 0.041943 µs by the table; 2 · 2 · 4096 bytes at 1000 GB/s take 0.016384.
constexpr Times kTimes = {0.041943, 1.25 * 0.041943, 0.02048, 2.5};

}  // namespace

TEST_CASE("a minimal calibration finds what the GPU takes", "[calibrate][minimal]") {
  ImportedPlatform imported = base();
  const double bmm_share = imported.platform.accelerator->bmm_share.value;
  measure(timed_gpu(kTimes), testing::tiny_minimal_sizes(), imported);
  const sim::Accelerator& a = *imported.platform.accelerator;
  CHECK(a.gemm_sustained.value == Approx(1.25).epsilon(1e-3));
  CHECK(a.hbm_share.value == Approx(0.8).epsilon(1e-3));
  CHECK(a.kernel_us.value == Approx(2.5));
  CHECK(a.bmm_share.value == bmm_share);
  for (const Quantity* q : {&a.gemm_sustained, &a.hbm_share, &a.kernel_us}) {
    CHECK(q->source.kind == "measured");
    CHECK(q->source.origin.starts_with("stretto calibrate --minimal, 20"));
    CHECK(q->source.origin.find("Timed GPU") != std::string::npos);
    CHECK((q->low <= q->value && q->value <= q->high));
  }
  CHECK(part(imported, "gemm_sustained").from == kMeasured);
  CHECK(part(imported, "bmm_share").from == "base");
  CHECK(imported.platform.device == "Timed GPU");
  REQUIRE(imported.notes.size() == 1);
  CHECK(imported.notes.front().find("80 in the last third") != std::string::npos);
}

TEST_CASE("a minimal calibration copies what fits", "[calibrate][minimal]") {
  MinimalSizes sizes = testing::tiny_minimal_sizes();
  sizes.copied = 1 << 24;  // 32 MiB in each direction
  Times times = kTimes;
  times.copy_us *= (1 << 24) / (1 << 12) / 2;
  Schedule one_lane;
  one_lane.lanes.emplace_back();
  times.memory_bytes = cuda::overhead_bytes(one_lane, 1) + (60 << 20);
  ImportedPlatform imported = base();
  measure(timed_gpu(times), sizes, imported);
  CHECK(imported.platform.accelerator->hbm_share.value == Approx(0.8).epsilon(1e-3));
  CHECK(imported.platform.accelerator->hbm_share.source.origin.find("copy of 16.7772 MB") != std::string::npos);
}

TEST_CASE("a minimal calibration refuses a base of another GPU", "[calibrate][minimal]") {
  ImportedPlatform slow = base();
  slow.platform.accelerator->hbm_GBps.value = 100;
  CHECK(message_of([&] {
          measure(timed_gpu(kTimes), testing::tiny_minimal_sizes(), slow);
        }).starts_with("--minimal: a copy reads and writes 800 GB/s, more than the hbm_GBps of base, 100: expected"));
  ImportedPlatform without_table = base();
  without_table.platform.accelerator->gemms = {};
  CHECK(message_of([&] {
          measure(timed_gpu(kTimes), testing::tiny_minimal_sizes(), without_table);
        }).find("expected a platform with") != std::string::npos);
  ImportedPlatform imported = base();
  CHECK(message_of([&] { measure(exec::host_machine(1), testing::tiny_minimal_sizes(), imported); }, ErrorKind::runtime)
            .find("expected a GPU") != std::string::npos);
}

#if !defined(__SANITIZE_ADDRESS__)  // emulated threads are slow with a sanitizer
TEST_CASE("a minimal calibration of the emulated device is written and read again", "[cuda][calibrate][minimal]") {
  ImportedPlatform imported = base();
  measure(testing::fake_gpu(), {{16, 16, 16}, 1 << 10, 1, 0}, imported);
  const testing::TempDir folder;
  folder.write("g.csv", imported.platform.accelerator->gemms.text());
  const std::string text = platform_text(imported, "g.csv", "c.csv");
  CHECK(text.find("# Measured on a GPU: gemm_sustained, hbm_share, kernel_us.") != std::string::npos);
  const sim::Platform platform = sim::read_platform(folder.write("mine.toml", text));
  CHECK(platform.device == "Fake GPU");
  const sim::Accelerator &a = *platform.accelerator, &b = *imported.platform.accelerator;
  CHECK(a.gemm_sustained.value == Approx(b.gemm_sustained.value));
  CHECK(a.gemm_sustained.source.kind == "measured");
  CHECK(a.hbm_share.value > 0);
  CHECK(a.kernel_us.value > 0);
}
#endif

}  // namespace stretto::calibrate
