#include "diagnose/account.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace stretto::diagnose {
namespace {

// States of a span, by precedence.
enum State : std::uint8_t { kComputes, kQueues, kIsIssued, kMoves, kWaits, kStates };

struct StateEdge {
  Picoseconds at = 0;
  bool begins = false;
  State state = kComputes;
  std::uint32_t span = 0;
};

Part part_of(State state, Part of_span) {
  switch (state) {
    case kComputes:
      return of_span;
    case kQueues:
      return Part::cores;
    case kIsIssued:
      return Part::host;
    case kMoves:
      return Part::exposed;
    case kWaits:
      return Part::peers;
    case kStates:
      break;
  }
  return Part::host;
}

}  // namespace

const char* name_of(Part part) {
  constexpr std::array kNames = {"kernel", "unscheduled", "cores", "exposed", "peers", "host"};
  return kNames[static_cast<std::size_t>(part)];
}

Account account_of(const std::vector<Span>& spans, Picoseconds begin, Picoseconds period) {
  const Picoseconds end = begin + period;
  std::vector<StateEdge> edges;
  const auto add = [&](Picoseconds from, Picoseconds to, State state, std::uint32_t span) {
    for (const Picoseconds shift : {-period, Picoseconds{0}, period}) {
      const Picoseconds first = std::max(begin, from + shift), last = std::min(end, to + shift);
      if (first >= last) continue;
      edges.push_back({first, true, state, span});
      edges.push_back({last, false, state, span});
    }
  };
  for (std::uint32_t i = 0; i < spans.size(); ++i) {
    const Span& s = spans[i];
    if (s.key.part == Part::exposed) {
      add(s.start, s.transfer, kWaits, i);
      add(s.transfer, s.end, kMoves, i);
    } else {
      add(s.queued_from, s.start, kQueues, i);
      add(s.start, s.end, kComputes, i);
      add(s.free_from, s.issued, kIsIssued, i);
    }
  }
  std::stable_sort(edges.begin(), edges.end(), [](const StateEdge& a, const StateEdge& b) { return a.at < b.at; });
  std::array<std::multiset<std::pair<Picoseconds, std::uint32_t>>, kStates> active;
  Account account;
  std::vector<std::array<Picoseconds, kStates>> of_span(spans.size());
  Picoseconds now = begin, idle = 0;
  for (std::size_t e = 0; e <= edges.size(); ++e) {
    const Picoseconds next = e == edges.size() ? end : edges[e].at;
    if (next > now) {
      std::size_t state = 0;
      while (state < kStates && active[state].empty()) ++state;
      // The communication that began last is awaited; earlier ones are in the background.
      const bool moves = state == kMoves || state == kWaits;
      if (state == kStates)
        idle += next - now;
      else
        of_span[moves ? active[state].rbegin()->second : active[state].begin()->second][state] += next - now;
      now = next;
    }
    if (e == edges.size()) break;
    const StateEdge& edge = edges[e];
    auto& set = active[edge.state];
    const std::pair<Picoseconds, std::uint32_t> key{spans[edge.span].start, edge.span};
    if (edge.begins)
      set.insert(key);
    else
      set.erase(set.find(key));
  }
  for (std::uint32_t i = 0; i < spans.size(); ++i)
    for (std::size_t state = 0; state < kStates; ++state)
      if (of_span[i][state] > 0) {
        const Part part = part_of(static_cast<State>(state), spans[i].key.part);
        TimeKey key;
        if (part != Part::host) key = spans[i].key;
        key.part = part;
        account[key] += of_span[i][state];
      }
  if (idle > 0) account[{Part::host, ""}] += idle;
  return account;
}

}  // namespace stretto::diagnose
