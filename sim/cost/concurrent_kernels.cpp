#include "sim/cost/concurrent_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <variant>

#include "model/ring.hpp"

namespace stretto::sim {
namespace {

constexpr double kTileRows = 128,
                 kTileColumns = 256;  // of cuBLAS's and CUTLASS's large kernels on Hopper and Blackwell
constexpr double kBytesOfChannel = 64 * 640;
constexpr double kMostTaken = 0.5;  // of a card's SMs, and of its memory's rate

double tiles_of(double m, double n) {
  return std::min(std::ceil(m / kTileRows) * std::ceil(n / kTileColumns),
                  std::ceil(n / kTileRows) * std::ceil(m / kTileColumns));
}

// Returns 0 for work that is no product.
double tiles_of(const Work& work) {
  if (const auto* product = std::get_if<Gemm>(&work)) return tiles_of(double(product->m), double(product->n));
  const auto* grouped = std::get_if<GroupedGemm>(&work);
  if (grouped == nullptr || grouped->groups == 0) return 0;
  const double groups = double(grouped->groups), rows = double(grouped->matrix_rows()) / groups;
  switch (grouped->pass) {
    case Pass::forward:
      return groups * tiles_of(rows, double(grouped->n));
    case Pass::dgrad:
      return groups * tiles_of(rows, double(grouped->k));
    case Pass::wgrad:
    case Pass::backward:
      break;
  }
  return groups * tiles_of(double(grouped->n), double(grouped->k));
}

bool is_measured(const Quantity& quantity) { return quantity.source.kind == "measured"; }

}  // namespace

double waves_on_fewer(double tiles, double sms, double taken) {
  return std::ceil(tiles / std::max(1.0, sms - taken)) / std::ceil(tiles / sms);
}

double sms_of(const Accelerator& accelerator, const Communicator& communicator, const Work& work, const GroupSpan& span,
              double sent_bytes) {
  const CommunicationSms& sms = accelerator.communication_sms;
  const auto* collective = std::get_if<Collective>(&work);
  if (collective == nullptr) return sms.message.value;
  if (rule_of(collective->kind).of_rows) {
    if (communicator.transport == TokenTransport::nccl) return sms.exchange.value;
    return (communicator.transport == TokenTransport::deepep ? sms.deepep : sms.hybridep).value;
  }
  double most = sms.ring.value;
  if (span.nodes > 1)
    most = sms.ring_across.value *
           std::min(1.0, double(span.cards()) / double(std::min(accelerator.domain, accelerator.network_cards)));
  else if (accelerator.multicast && collective->kind == CollectiveKind::all_reduce)
    most = sms.nvls.value;
  return std::clamp(std::ceil(sent_bytes / kBytesOfChannel), 1.0, std::max(1.0, std::round(most)));
}

ConcurrentKernels::ConcurrentKernels(const Accelerator& accelerator, const Framework& framework,
                                     const Schedule& schedule, KernelChoices choices)
    : accelerator_(accelerator), schedule_(schedule) {
  if (!accelerator.communication_sms.is_known()) return;
  for (const Operation& operation : schedule.operations)
    if (const double tiles = tiles_of(operation.work); tiles > 0 && operation.module != Module::head)
      products_.push_back({tiles, kernel_us(accelerator, framework, schedule, operation, choices)});
}

KernelInterference ConcurrentKernels::of(const Work& work, const GroupSpan& span, double sent_bytes, double us) const {
  const auto* collective = std::get_if<Collective>(&work);
  const bool reduces = collective != nullptr && (collective->kind == CollectiveKind::all_reduce ||
                                                 collective->kind == CollectiveKind::reduce_scatter);
  const double moved = (reduces ? 3 : 2) * sent_bytes;
  return of(sms_of(accelerator_, schedule_.communicators[communicator_of(work)], work, span, sent_bytes),
            us > 0 ? moved / us * 1e-3 : 0);
}

KernelInterference ConcurrentKernels::of(double taken, double memory_GBps) const {
  const BesideCommunication& factors = accelerator_.beside_communication;
  const double sms = accelerator_.sms, left = std::min(taken, kMostTaken * sms);
  double lost = 0, all = 0;
  for (const Product& product : products_) {
    lost += product.us * (waves_on_fewer(product.tiles, sms, left) - 1);
    all += product.us;
  }
  const double rate = accelerator_.hbm_GBps.value * accelerator_.hbm_share.value;
  KernelInterference result;
  const auto set = [&](DemandClass cls, const Quantity& factor, double by_sms) {
    const bool is_by_sms = accelerator_.communication_sms.is_known() && !is_measured(factor);
    result.slows[static_cast<std::size_t>(cls)] = is_by_sms ? factors.loss.value * by_sms : factor.value - 1;
    result.slowed[static_cast<std::size_t>(cls)] = factors.communication.value - 1;
  };
  set(DemandClass::gemm, factors.gemm, all > 0 ? lost / all : 0);
  set(DemandClass::attention, factors.attention, sms / (sms - left) - 1);
  const double of_memory = 1 / (1 - std::min(kMostTaken, memory_GBps / rate)) - 1;
  set(DemandClass::vector, factors.memory_bound, of_memory);
  set(DemandClass::memory, factors.memory_bound, of_memory);
  return result;
}

std::vector<EnginePrice> engine_prices(const Accelerator& a) {
  const CommunicationSms& sms = a.communication_sms;
  if (!sms.is_known()) return {};
  const double nvlink = a.nvlink.GBps.value, network = a.card_GBps(0);
  const auto price = [&](const char* engine, const Quantity& taken, double memory_GBps) {
    ConcurrentKernels none(a, {}, {}, {});
    const KernelInterference of = none.of(taken.value, memory_GBps);
    const auto factor = [&](DemandClass cls) { return 1 + of.slows[static_cast<std::size_t>(cls)]; };
    const auto product = [&](double waves) {
      if (is_measured(a.beside_communication.gemm)) return a.beside_communication.gemm.value;
      const double left = std::min(taken.value, kMostTaken * a.sms);
      return 1 + a.beside_communication.loss.value * (waves_on_fewer(waves * a.sms, a.sms, left) - 1);
    };
    return EnginePrice{engine,
                       taken,
                       product(1),
                       product(100),
                       factor(DemandClass::attention),
                       factor(DemandClass::memory),
                       a.beside_communication.communication.value};
  };
  std::vector<EnginePrice> prices = {price("ring within a domain", sms.ring, 3 * nvlink)};
  if (a.multicast) prices.push_back(price("switches that add up (NVLS)", sms.nvls, 3 * nvlink));
  prices.push_back(price("ring across domains", sms.ring_across, 3 * network));
  prices.push_back(price("all-to-all of NCCL", sms.exchange, 2 * nvlink));
  prices.push_back(price("message", sms.message, 2 * nvlink));
  prices.push_back(price("DeepEP", sms.deepep, 2 * a.token_exchange.flex_nvlink_GBps.value));
  prices.push_back(price("HybridEP", sms.hybridep, 2 * a.token_exchange.flex_nvlink_GBps.value));
  const Quantity none = {0, {"published", "copy engines are no SMs"}, 0, 0, {}};
  prices.push_back({"copy engine", none, 1, 1, 1, 1, 1});
  return prices;
}

}  // namespace stretto::sim
