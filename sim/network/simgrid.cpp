#include "sim/network/simgrid.hpp"

#include <xbt/log.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/s4u.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace stretto::sim {
namespace {

namespace s4u = simgrid::s4u;
using simgrid::kernel::timer::Timer;

class SimgridNetwork : public NetworkModel {
 public:
  SimgridNetwork(double link_bytes_per_s, const Fabric& fabric, const Rings& rings, std::vector<double> rates)
      : engine_("stretto"), rings_(rings), fabric_(fabric), rates_(std::move(rates)) {
    if (std::find(rates_.begin(), rates_.end(), 0.0) == rates_.end()) rates_.push_back(0);
    xbt_log_control_set("root.thresh:warning");
    for (const char* setting : {"network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:1e20",
                                // With the defaults SimGrid merges events that are 1 ns apart.
                                "surf/precision:1e-12", "maxmin/precision:1e-9"})
      s4u::Engine::set_config(setting);
    s4u::NetZone* zone = s4u::create_star_zone("fabric");
    // A fat pipe limits each flow by itself.
    std::vector<s4u::Link*> limits;
    for (const double rate : rates_)
      limits.push_back(rate > 0 ? zone->create_link("channels " + std::to_string(limits.size()), rate)
                                      ->set_sharing_policy(s4u::Link::SharingPolicy::FATPIPE)
                                : nullptr);
    s4u::Link* backbone =
        fabric_.backbone_GBps > 0 ? zone->create_link("backbone", fabric_.backbone_GBps * 1e9) : nullptr;
    const auto links_of_pods = [&](const std::string& direction) {
      std::vector<s4u::Link*> links;
      for (std::int64_t pod = 0; fabric_.pod > 0 && pod * fabric_.pod < rings.endpoints; ++pod)
        links.push_back(zone->create_link("spine " + direction + std::to_string(pod), fabric_.spine_GBps * 1e9));
      return links;
    };
    const std::vector<s4u::Link*> to_spine = links_of_pods("up "), from_spine = links_of_pods("down ");
    const auto add_host = [&](const std::string& name, const std::vector<s4u::Link*>& links, bool sends) {
      s4u::Host* host = zone->create_host(name, 1.0);
      std::vector<s4u::LinkInRoute> route;
      for (s4u::Link* link : links)
        if (link != nullptr) route.emplace_back(link);
      zone->add_route(sends ? host->get_netpoint() : nullptr, sends ? nullptr : host->get_netpoint(), nullptr, nullptr,
                      route, false);
      return host;
    };
    // Sender and receiver of an endpoint are two hosts, so that a folded ring may lead from a rank back to itself over
    // both its links. The two ends of a route determine it, so an endpoint has further hosts for flows that leave the
    // pod.
    ways_ = fabric_.pod > 0 ? 2 : 1;
    for (std::uint32_t i = 0; i < rings.endpoints; ++i) {
      const std::string number = std::to_string(i);
      s4u::Link *up = zone->create_link("up " + number, link_bytes_per_s),
                *down = zone->create_link("down " + number, link_bytes_per_s);
      for (std::size_t way = 0; way < ways_; ++way) {
        const std::size_t pod = way == 0 ? 0 : pod_of(i);
        s4u::Link *out = way == 0 ? nullptr : to_spine[pod], *in = way == 0 ? nullptr : from_spine[pod];
        receivers_.push_back(add_host("receiver " + std::to_string(receivers_.size()), {down, in}, false));
        for (s4u::Link* limit : limits)
          senders_.push_back(add_host("sender " + std::to_string(senders_.size()), {up, out, backbone, limit}, true));
      }
    }
    zone->seal();
    s4u::Activity::on_completion_cb([this](const s4u::Activity& activity) { on_flow_done(activity); });
  }

  std::optional<Picoseconds> start(std::uint32_t transfer, std::uint32_t group, std::int64_t edge_bytes,
                                   double most_bytes_per_s, Picoseconds begin) override {
    if (transfer >= transfers_.size()) transfers_.resize(transfer + 1);
    ++pending_;
    Timer::set(date_of(begin), [this, transfer, group, edge_bytes, most_bytes_per_s] {
      start_flows(transfer, group, edge_bytes, most_bytes_per_s);
    });
    return std::nullopt;
  }

  void run(TimedCore& core) override {
    core_ = &core;
    arm();
    engine_.run();
  }

 private:
  struct FlowSet {
    std::vector<s4u::CommPtr> flows;  // SimGrid requires them alive until they are complete
    std::size_t in_flight = 0;
  };

  std::size_t pod_of(std::uint32_t endpoint) const { return static_cast<std::size_t>(endpoint / fabric_.pod); }

  // Returns a date that is never before SimGrid's clock, which rounding can put a fraction of a picosecond ahead of the
  // core's.
  static double date_of(Picoseconds time) {
    return std::max(static_cast<double>(time) * 1e-12, s4u::Engine::get_clock());
  }

  void start_flows(std::uint32_t transfer, std::uint32_t group, std::int64_t edge_bytes, double most_bytes_per_s) {
    if (core_->finished()) return;
    FlowSet& state = transfers_[transfer];
    const std::vector<RingEdge>& edges = rings_.edges[group];
    retire(state.flows);
    state.in_flight = edges.size();
    const auto rate = std::find(rates_.begin(), rates_.end(), most_bytes_per_s);
    assert(rate != rates_.end());
    for (const RingEdge& edge : edges) {
      const std::size_t way = ways_ > 1 && pod_of(edge.from) != pod_of(edge.to) ? 1 : 0;
      const std::size_t sender =
          (edge.from * ways_ + way) * rates_.size() + static_cast<std::size_t>(rate - rates_.begin());
      s4u::CommPtr flow = s4u::Comm::sendto_init(senders_[sender], receivers_[edge.to * ways_ + way]);
      flow->set_payload_size(static_cast<std::uint64_t>(edge_bytes));
      flow->set_data(reinterpret_cast<void*>(static_cast<std::uintptr_t>(transfer)));
      state.flows.push_back(flow);
      flow->vetoable_start();
    }
  }

  // Keeps flows alive until SimGrid's clock has moved on, because a transfer's name may be reused in the very moment in
  // which the transfer is done, while SimGrid still handles its flows.
  void retire(std::vector<s4u::CommPtr>& flows) {
    const double now = s4u::Engine::get_clock();
    std::erase_if(retired_, [&](const auto& flow) { return flow.first < now; });
    for (s4u::CommPtr& flow : flows) retired_.emplace_back(now, std::move(flow));
    flows.clear();
  }

  void on_flow_done(const s4u::Activity& activity) {
    constexpr double kLongest_s = 9e6;  // picoseconds in 64 bits reach to 9.2e6
    if (s4u::Engine::get_clock() > kLongest_s)
      throw input_error("simgrid: a transfer takes more than 100 days: a link, or --backbone-GBps, is too slow");
    const auto transfer = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(activity.get_data<void>()));
    if (--transfers_[transfer].in_flight > 0 || core_->finished()) return;
    --pending_;
    core_->transfer_done(transfer, std::llround(s4u::Engine::get_clock() * 1e12));
    arm();
  }

  // One timer stands for the core's next event. While no flow is on the network the core runs on its own.
  void arm() {
    while (pending_ == 0 && !core_->finished() && core_->next_event() != kNever) core_->advance(core_->next_event());
    const Picoseconds next = core_->finished() ? kNever : core_->next_event();
    if (next == armed_) return;
    if (timer_ != nullptr) timer_->remove();
    timer_ = nullptr;
    armed_ = next;
    if (next != kNever) timer_ = Timer::set(date_of(next), [this, next] { on_timer(next); });
  }

  void on_timer(Picoseconds time) {
    timer_ = nullptr;  // SimGrid deletes it after this call
    armed_ = kNever;
    core_->advance(time);
    arm();
  }

  s4u::Engine engine_;
  const Rings& rings_;
  const Fabric fabric_;
  std::size_t ways_ = 1;  // ways out of an endpoint: within its pod, and over the spine
  TimedCore* core_ = nullptr;
  std::vector<double> rates_;                    // 0: no limit
  std::vector<s4u::Host*> senders_, receivers_;  // senders_[(endpoint · ways + way) · rates + rate]
  std::vector<FlowSet> transfers_;
  std::vector<std::pair<double, s4u::CommPtr>> retired_;  // with the time since when
  std::size_t pending_ = 0;                               // transfers announced or in flight
  Timer* timer_ = nullptr;
  Picoseconds armed_ = kNever;
};

}  // namespace

}  // namespace stretto::sim

stretto::sim::NetworkModel* stretto_make_simgrid_network(double link_bytes_per_s, const stretto::sim::Fabric& fabric,
                                                         const stretto::sim::Rings& rings, std::vector<double> rates) {
  return new stretto::sim::SimgridNetwork(link_bytes_per_s, fabric, rings, std::move(rates));
}
