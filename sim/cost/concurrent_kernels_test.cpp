#include "sim/cost/concurrent_kernels.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/data_folder.hpp"
#include "sim/platform.hpp"

namespace stretto::sim {
namespace {

double slowed(const KernelInterference& interference, DemandClass cls) {
  return 1 + interference.slows[static_cast<std::size_t>(cls)];
}

}  // namespace

TEST_CASE("a product takes whole waves on the SMs that communication leaves", "[sim]") {
  CHECK(waves_on_fewer(132, 132, 24) == 2);
  CHECK(waves_on_fewer(108, 132, 24) == 1);
  CHECK(waves_on_fewer(132, 132, 0) == 1);
  CHECK(waves_on_fewer(13200, 132, 24) == Approx(132.0 / 108).epsilon(0.01));
  double before = 1;
  for (double taken = 0; taken < 132; ++taken) {  // more SMs for communication never make it faster
    CHECK(waves_on_fewer(500, 132, taken) >= before);
    before = waves_on_fewer(500, 132, taken);
  }
}

TEST_CASE("kernels concurrent with communication lose SMs and the memory's rate", "[sim]") {
  Accelerator h100 = *read_platform(data_file("platforms", "h100-sxm")).accelerator;
  const Schedule schedule;
  const ConcurrentKernels kernels(h100, {}, schedule, {});
  const KernelInterference ring = kernels.of(24, 0);
  CHECK(engine_prices(h100).front().one_wave == 2);
  CHECK(slowed(ring, DemandClass::gemm) == 1);  // it has no product
  CHECK(slowed(ring, DemandClass::attention) == Approx(132.0 / 108));
  CHECK(slowed(ring, DemandClass::memory) == 1);
  const double rate = h100.hbm_GBps.value * h100.hbm_share.value;
  CHECK(slowed(kernels.of(0, rate / 4), DemandClass::memory) == Approx(4.0 / 3));
  CHECK(slowed(kernels.of(0, 10 * rate), DemandClass::memory) == Approx(2));  // half of the card at most
  CHECK(slowed(kernels.of(132, 0), DemandClass::attention) == Approx(2));
  CHECK(1 + ring.slowed[0] == Approx(h100.beside_communication.communication.value));
  // A factor that was measured wins, and so do factors where SMs are not known.
  h100.beside_communication.gemm = {1.07, {"measured", "this card", 0}, 0, 0, {}};
  CHECK(slowed(ConcurrentKernels(h100, {}, schedule, {}).of(24, 0), DemandClass::gemm) == Approx(1.07));
  h100.communication_sms.ring.value = 0;
  CHECK(slowed(ConcurrentKernels(h100, {}, schedule, {}).of(24, 0), DemandClass::attention) ==
        Approx(h100.beside_communication.attention.value));
}

TEST_CASE("the SMs of a collective are those of its engine, and fewer for a small one", "[sim]") {
  const Accelerator h100 = *read_platform(data_file("platforms", "h100-sxm")).accelerator;
  const auto sms = [&](CollectiveKind kind, std::int64_t nodes, double bytes,
                       TokenTransport transport = TokenTransport::nccl) {
    Collective work;
    work.kind = kind;
    Communicator communicator;
    communicator.transport = transport;
    return sms_of(h100, communicator, work, {.members = 8 * nodes, .nodes = nodes}, bytes);
  };
  CHECK(sms(CollectiveKind::all_gather, 1, 1e9) == 24);
  CHECK(sms(CollectiveKind::all_gather, 1, 4 * 40960) == 4);
  CHECK(sms(CollectiveKind::all_gather, 1, 0) == 1);
  CHECK(sms(CollectiveKind::all_reduce, 1, 1e9) == 16);  // NVLink's switches add up
  CHECK(sms(CollectiveKind::all_reduce, 2, 1e9) == 24);
  CHECK(sms(CollectiveKind::dispatch, 1, 1e9) == 16);
  CHECK(sms(CollectiveKind::dispatch, 1, 1e9, TokenTransport::deepep) == 20);
  CHECK(sms(CollectiveKind::combine, 1, 1e9, TokenTransport::hybridep) == 16);
  CHECK(sms_of(h100, {}, PointToPoint{}, {.members = 2, .nodes = 1}, 1e9) == 2);
}

TEST_CASE("every engine has a price, and copy engines none", "[sim]") {
  for (const std::string& name : data_names("platforms")) {
    INFO(name);
    const Platform platform = read_platform(data_file("platforms", name));
    if (!platform.accelerator) continue;
    const std::vector<EnginePrice> prices = engine_prices(*platform.accelerator);
    CHECK(prices.empty() == !platform.accelerator->communication_sms.is_known());
    for (const EnginePrice& price : prices) {
      INFO(price.engine);
      CHECK(!price.sms.source.origin.empty());
      for (const double factor : {price.one_wave, price.many_waves, price.attention, price.memory_bound, price.itself})
        CHECK((price.sms.value > 0 ? factor >= 1 : factor == 1));
    }
  }
}

}  // namespace stretto::sim
