#include "sim/exchanges.hpp"

#include <algorithm>
#include <cassert>

namespace stretto::sim {

Exchanges::Exchanges(const SimInputs& inputs, Lanes& lanes, Devices& devices, EventHeap& events, NetworkModel& network,
                     std::uint32_t first_transfer)
    : inputs_(inputs),
      lanes_(lanes),
      devices_(devices),
      events_(events),
      network_(network),
      first_transfer_(first_transfer),
      exchanges_(lanes.size()),
      links_(inputs.partners.routes.size()) {}

std::vector<std::uint32_t> Exchanges::post(std::uint32_t number, Picoseconds ready) {
  const Cursor& lane = lanes_[number];
  Exchange& mine = exchanges_[number];
  const std::uint32_t group = lane.current().group;
  mine.served = 0;
  mine.open = group;
  mine.latest = mine.wire = ready;
  mine.messages.clear();
  mine.met.assign(group, ready);
  mine.done.assign(group, ready);
  const auto& link_of = inputs_.partners.route_of[lanes_.rank_of(number)];
  for (std::uint32_t i = 0; i < group; ++i) {
    const FlatOp& op = lane.ops[lane.position + i];
    const bool is_receiver = op.kind == FlatKind::receive;
    const std::uint32_t message = post_end(link_of[op.id], is_receiver, number, ready);
    if (is_receiver) messages_[message].cost = &inputs_.costs_of(lanes_.rank_of(number)).collective[op.id];
    mine.messages.push_back(message);
  }
  // All receivers start before any is served, because serving one may end it and go on to the next, and before any lane
  // is woken, because that lane may bring other ends, which then start.
  std::vector<std::uint32_t> receivers;
  for (const std::uint32_t message : mine.messages)
    if (messages_[message].is_posted()) {
      begin_transfer(message);
      receivers.push_back(messages_[message].lane[1]);
    }
  return receivers;
}

// The n-th send is received by the n-th receive.
std::uint32_t Exchanges::post_end(std::uint32_t number, bool is_receiver, std::uint32_t lane, Picoseconds ready) {
  LinkQueue& link = links_[number];
  const std::uint64_t after = link.posted[is_receiver]++ - link.complete;
  if (after == link.messages.size()) {
    std::uint32_t fresh = 0;
    if (free_messages_.empty()) {
      fresh = static_cast<std::uint32_t>(messages_.size());
      messages_.emplace_back();
    } else {
      fresh = free_messages_.back();
      free_messages_.pop_back();
      messages_[fresh] = {};
    }
    link.messages.push_back(fresh);
  }
  const std::uint32_t index = link.messages[after];
  OpenMessage& message = messages_[index];
  message.link = number;
  message.lane[is_receiver] = lane;
  message.ready[is_receiver] = ready;
  if (message.is_posted()) {
    // Each side posts in order, so the ends of a link meet in order too.
    assert(after == 0);
    link.messages.pop_front();
    ++link.complete;
  }
  return index;
}

void Exchanges::begin_transfer(std::uint32_t index) {
  OpenMessage& message = messages_[index];
  message.met = std::max(message.ready[0], message.ready[1]);
  for (const std::uint32_t lane : message.lane) {
    Exchange& side = exchanges_[lane];
    for (std::size_t i = 0; i < side.messages.size(); ++i)
      if (side.messages[i] == index) side.met[i] = message.met;
  }
  const Picoseconds begin = message.met + message.cost->latency;
  message.wire = message.cost->edge_bytes > 0
                     ? network_.start(first_transfer_ + index,
                                      static_cast<std::uint32_t>(inputs_.partners.instances.size()) + message.link,
                                      message.cost->edge_bytes, message.cost->most_bytes_per_s, begin)
                     : std::optional(begin);
}

void Exchanges::serve(std::uint32_t number) {
  Cursor& lane = lanes_[number];
  Exchange& mine = exchanges_[number];
  if (lane.stage == LaneStage::working) return;
  while (mine.served < mine.messages.size()) {
    const std::uint32_t index = mine.messages[mine.served];
    if (index == kNone || messages_[index].lane[1] != number) {
      ++mine.served;
      continue;
    }
    OpenMessage& message = messages_[index];
    if (!message.is_posted()) return;
    const Demand& movement = message.cost->movement;
    // The receiver sleeps until the sender has arrived, unless it is busy with another message until then.
    const bool slept = mine.latest < message.met;
    const Picoseconds from = slept ? message.met + inputs_.costs.wake : mine.latest;
    message.served = std::max(mine.latest, message.met);
    if (movement.alone > 0) {
      lane.stage = LaneStage::working;
      devices_.launch(number, from, movement.alone, movement.cores, movement.cls,
                      message.cost->interference ? &*message.cost->interference : nullptr);
      return;
    }
    ++mine.served;
    mine.latest = from;
    message.moved = from;
    try_complete(index);
  }
}

void Exchanges::movement_ended(std::uint32_t number, Picoseconds now) {
  Exchange& mine = exchanges_[number];
  lanes_[number].stage = LaneStage::meeting;
  const std::uint32_t index = mine.messages[mine.served++];
  mine.latest = now;
  messages_[index].moved = now;
  serve(number);
  try_complete(index);
}

void Exchanges::transfer_done(std::uint32_t transfer, Picoseconds now) {
  const std::uint32_t index = transfer - first_transfer_;
  messages_[index].wire = now;
  try_complete(index);
}

void Exchanges::try_complete(std::uint32_t index) {
  const OpenMessage& message = messages_[index];
  if (!message.moved || !message.wire) return;
  end_message(index, true);
  end_message(index, false);
  free_messages_.push_back(index);
}

void Exchanges::end_message(std::uint32_t index, bool is_receiver) {
  const OpenMessage& message = messages_[index];
  const std::uint32_t number = message.lane[is_receiver];
  Exchange& side = exchanges_[number];
  const auto at = std::find(side.messages.begin(), side.messages.end(), index);
  *at = kNone;
  // The sender sleeps until the receiver has the bytes.
  const Picoseconds wake = is_receiver ? 0 : inputs_.costs.wake;
  if (!is_receiver) side.latest = std::max(side.latest, *message.moved + wake);
  side.wire = std::max(side.wire, *message.wire);
  // A deadline that has passed costs nothing.
  const auto end_of = [&](Picoseconds wire, Picoseconds latest) {
    return wire > latest ? wire + inputs_.costs.timer_overshoot : latest;
  };
  // The end of the message if the receiver had served it at once.
  side.done[static_cast<std::size_t>(at - side.messages.begin())] =
      end_of(*message.wire, message.met + *message.moved - message.served + wake);
  if (--side.open > 0) return;
  const Picoseconds end = end_of(side.wire, side.latest);
  lanes_[number].stage = LaneStage::completing;
  events_.schedule(number, end, EventKind::finish);
}

}  // namespace stretto::sim
