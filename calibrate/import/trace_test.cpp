#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "base/data_folder.hpp"
#include "calibrate/import/import_platform.hpp"
#include "calibrate/import/measurements.hpp"
#include "tests/message_of.hpp"
#include "tests/temp_dir.hpp"

namespace stretto::calibrate {
namespace {

using Catch::Matchers::Contains;
using testing::message_of;

// Writes events of a trace. Times are in microseconds.
class Trace {
 public:
  void gemm(double begin, double length, int m, int n, int k) {
    put(fmt::format(R"({{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":{},"dur":1,"args":{{)"
                    R"("Input Dims":[[{},{}],[{},{}]],"Input type":["c10::BFloat16","c10::BFloat16"]}}}})",
                    begin, m, k, k, n));
    kernel("sm90_xmma_gemm_bf16", begin, length, 7, "");
  }
  void elementwise(double begin, double length) { kernel("elementwise_kernel<4>", begin, length, 7, ""); }
  void all_gather(double begin, double length, int elements, int members) {
    kernel("ncclDevKernel_AllGather", begin, length, 20,
           fmt::format(R"(,"Collective name":"_allgather_base","In msg nelems":{},"Out msg nelems":{},"Group size":{},)"
                       R"("dtype":"BFloat16")",
                       elements / members, elements, members));
  }
  std::string text() const { return R"({"traceEvents":[)" + events_ + "]}"; }

 private:
  void put(const std::string& event) { events_ += (events_.empty() ? "\n" : ",\n") + event; }
  void kernel(const char* name, double begin, double length, int stream, const std::string& more) {
    ++correlation_;
    put(fmt::format(
        R"({{"ph":"X","cat":"cuda_runtime","name":"l","pid":1,"tid":1,"ts":{},"dur":1,"args":{{"correlation":{}}}}})",
        begin + 0.5, correlation_));
    put(fmt::format(R"({{"ph":"X","cat":"kernel","name":"{}","pid":0,"tid":{},"ts":{},"dur":{},"args":{{"device":0,)"
                    R"("stream":{},"correlation":{}{}}}}})",
                    name, stream, begin, length, stream, correlation_, more));
  }
  std::string events_;
  int correlation_ = 0;
};

}  // namespace

TEST_CASE("kernels of a trace are measurements of a platform, interference included", "[import]") {
  Trace trace;
  for (int i = 0; i < 4; ++i) {
    const double at = 10000.0 * i;
    trace.gemm(at, 1000, 4096, 4096, 8192);
    trace.elementwise(at + 1100, 50);
    trace.gemm(at + 2000, 1200, 4096, 4096, 8192);  // concurrent with communication
    trace.elementwise(at + 3300, 80);
    trace.all_gather(at + 2000, 1400, 1 << 28, 8);
    trace.all_gather(at + 6000, 1300 + 100 * i, 1 << 28, 8);  // later calls wait for peers
    trace.gemm(at + 8000, 700, 4095, 4096, 4096);
  }
  const testing::TempDir folder;
  const Measurements read = read_measurements({folder.write("trace.json", trace.text()), "", 0, 0});
  CHECK(read.file == "trace.json");
  REQUIRE(read.gemms.size() == 1);
  CHECK(read.gemms[0].us == Approx(1000));
  CHECK(read.gemms[0].k == 8192);
  REQUIRE(read.collectives.size() == 1);
  CHECK(read.collectives[0].kind == CollectiveKind::all_gather);
  CHECK(read.collectives[0].span.members == 8);
  CHECK(read.collectives[0].bytes == double(1 << 29));
  CHECK(read.collectives[0].us == Approx(1300));
  REQUIRE(read.interference.gemm);
  CHECK(*read.interference.gemm == Approx(1.2));
  REQUIRE(read.interference.memory_bound);
  CHECK(*read.interference.memory_bound == Approx(1.6));
  REQUIRE(read.interference.communication);
  CHECK(*read.interference.communication == Approx(1400.0 / 1300));
  CHECK(!read.interference.attention);
  CHECK_THAT(read.notes.at(0), Contains("8 does not divide"));

  const sim::Platform base = sim::read_platform(data_file("platforms", "h100-sxm"));
  const ImportedPlatform imported = import_platform("mine", {read}, base, {});
  const sim::Accelerator& a = *imported.platform.accelerator;
  CHECK(a.gemms.time_us(4096, 4096, 8192, 0) == Approx(1000).epsilon(1e-3));
  CHECK(a.gemm_sustained.value == 1);  // they are sustained already
  CHECK(a.beside_communication.gemm.value == Approx(1.2));
  CHECK(a.beside_communication.attention.value == base.accelerator->beside_communication.attention.value);
  for (const ImportedPlatform::Part& part : imported.parts)
    if (part.what == "beside_communication.gemm") CHECK(part.from == kYours);
}

TEST_CASE("a trace that measures nothing is refused", "[import]") {
  const testing::TempDir folder;
  Trace trace;
  trace.elementwise(0, 10);
  const std::string path = folder.write("trace.json", trace.text());
  CHECK_THAT(message_of([&] { read_measurements({path, "", 0, 0}); }), Contains("record_shapes=True"));
}

}  // namespace stretto::calibrate
