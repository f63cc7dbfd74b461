#include "sim/accelerator/nccl_model.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>

namespace stretto::sim {
namespace {

// Latencies in µs, and the share of the bus bandwidth that the protocol carries.
struct Protocol {
  double ring_base, ring_nvlink, ring_network;
  double tree_base, tree_nvlink, tree_network;
  double ring_share, tree_share;
  double post;  // time to post a message to the network card, in each step
};
constexpr std::array<Protocol, 3> kProtocols = {{
    {6.6, 0.6, 2.7, 6.8, 0.6, 5.0, 1.0 / 4, 0.92 / 3.8, 1},            // LL: 4 bytes of data, 4 of flag
    {14.0, 1.9, 4.0, 14.0, 1.25, 8.5, 0.92, 0.92 * 120.0 / 128.0, 1},  // LL128: 120 bytes of 128
    {8.4, 3.4, 14.0, 0.0, 28.0, 28.0, 1.0, 0.92, 3},                   // Simple
}};
// Largest bandwidth of LL across nodes, GB/s.
constexpr double kMaxLL_GBps = 20.4;

// NCCL's correction of trees' bandwidth, which does not follow the model at middle sizes, by protocol and power of two
// from 64 bytes on.
constexpr std::array<std::array<double, 23>, 3> kTreeCorrection = {{
    {1.0, 1.0, 1.0, 1.0, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1.0, 1.0, 1.0, 1.0},
    {1.0, 1.0, 1.0, 1.0, 1.0, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1.0, 1.0},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9},
}};

}  // namespace

GroupTime nccl_across_nodes(CollectiveKind kind, double bytes, const GroupSpan& span, double cards_GBps,
                            double nvlink_GBps, double latency_factor) {
  assert(span.nodes > 1 && span.members >= span.nodes && cards_GBps > 0);
  const double bus_GBps = span.on_node() > 1 ? std::min(cards_GBps, nvlink_GBps) : cards_GBps;
  const double members = static_cast<double>(span.members), nodes = static_cast<double>(span.nodes);
  const bool reduces_and_gathers = kind == CollectiveKind::all_reduce;
  const double steps = (reduces_and_gathers ? 2 : 1) * (members - 1);
  const double across = reduces_and_gathers ? 2 * nodes : nodes - 1;
  GroupTime best{std::numeric_limits<double>::infinity()};
  const auto try_one = [&](double latency_us, double wire_us) {
    latency_us *= latency_factor;
    if (latency_us + wire_us < best.us) best = {latency_us + wire_us, latency_us};
  };
  for (std::size_t p = 0; p < kProtocols.size(); ++p) {
    const Protocol& protocol = kProtocols[p];
    const bool is_ll = p == 0, is_simple = p + 1 == kProtocols.size();
    double ring_GBps = bus_GBps * protocol.ring_share;
    // With one member on a node the card sends and receives for one GPU.
    if (!is_ll && !is_simple && span.on_node() < 2) ring_GBps = bus_GBps * 0.7;
    if (is_ll) ring_GBps = std::min(ring_GBps, kMaxLL_GBps);
    double latency = protocol.ring_base +
                     std::max(0.0, steps - across) * std::max(protocol.ring_nvlink, protocol.post) +
                     across * protocol.ring_network;
    // "Plateau effect of ring": many nodes wait for each other's chunks.
    if (is_simple && reduces_and_gathers && bytes / (members * nodes) >= 64) latency *= nodes > 8 ? 1.4 : 1.2;
    try_one(latency, bytes * steps / members / (ring_GBps * 1e3));
    if (!reduces_and_gathers) continue;
    // With two nodes each sends the other its sum once; with more nodes sums go up and results go down. Within a node
    // the tree is a chain, which carries the buffer up and down.
    double tree_GBps = span.nodes > 2 ? bus_GBps / 2 : cards_GBps;
    if (span.on_node() > 1) tree_GBps = std::min(tree_GBps, nvlink_GBps / 2);
    tree_GBps *= protocol.tree_share;
    if (is_ll) tree_GBps = std::min(tree_GBps, kMaxLL_GBps);
    const auto size = static_cast<std::size_t>(std::clamp(std::log2(std::max(64.0, bytes) / 64), 0.0, 22.0));
    tree_GBps *= kTreeCorrection[p][size];
    const double tree_latency = protocol.tree_base + 2 * ((members / nodes - 1) * protocol.tree_nvlink +
                                                          std::floor(std::log2(nodes)) * protocol.tree_network);
    try_one(tree_latency, bytes / (tree_GBps * 1e3));
  }
  return best;
}

}  // namespace stretto::sim
