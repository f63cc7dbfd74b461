#include "sim/collectives.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"

namespace stretto::sim {

Collectives::Collectives(const SimInputs& inputs, Lanes& lanes, Devices& devices, EventHeap& events,
                         NetworkModel& network)
    : inputs_(inputs),
      lanes_(lanes),
      devices_(devices),
      events_(events),
      network_(network),
      communicators_(inputs.schedule.communicators.size()),
      index_(lanes.size() * communicators_, kNone),
      there_at_(lanes.size()) {
  std::map<std::pair<LaneId, std::uint32_t>, std::uint32_t> known;  // (lane of a rank, group)
  for (std::uint32_t number = 0; number < lanes.size(); ++number) {
    const Cursor& lane = lanes[number];
    for (std::uint32_t i = 0; i < lane.length; ++i) {
      if (lane.ops[i].kind != FlatKind::collective) continue;
      std::uint32_t& index = index_[number * communicators_ + lane.ops[i].communicator];
      if (index != kNone) continue;
      const std::uint32_t group = inputs.partners.instance_of[lanes.rank_of(number)][lane.ops[i].communicator];
      const auto [found, fresh] = known.try_emplace({number % lanes.per_rank(), group}, transfers());
      if (fresh) gatherings_.emplace_back().group = group;
      index = found->second;
      gatherings_[index].lanes.push_back(number);
    }
  }
}

void Collectives::arrive(std::uint32_t number, Picoseconds ready) {
  Gathering& gathering = of(number);
  Cursor& lane = lanes_[number];
  if (inputs_.partners.instances[gathering.group].size == 1) {
    lane.stage = LaneStage::completing;
    events_.schedule(number, ready, EventKind::finish);
    return;
  }
  if (gathering.present == 0) {
    gathering.first = number;
    gathering.cost = &inputs_.costs_of(lanes_.rank_of(number)).collective[lane.current().id];
    gathering.latest = ready;
  } else {
    require_same_operation(gathering, number);
  }
  there_at_[number] = ready;
  gathering.latest = std::max(gathering.latest, ready);
  if (++gathering.present == gathering.lanes.size()) start_transfer(gathering);
}

void Collectives::require_same_operation(const Gathering& gathering, std::uint32_t lane) const {
  const Cursor &here = lanes_[lane], &there = lanes_[gathering.first];
  if (here.program == there.program && here.position == there.position) return;
  const auto op_of = [&](std::uint32_t number) -> const BoundOp& {
    return inputs_.programs[lanes_.rank_of(number)].ops[lanes_[number].current().op];
  };
  const BoundOp &mine = op_of(lane), &theirs = op_of(gathering.first);
  if (mine.op != theirs.op || mine.layer != theirs.layer || mine.micro_batch != theirs.micro_batch ||
      mine.chunk != theirs.chunk)
    throw runtime_failure(
        "simulation: members of communicator " +
        inputs_.schedule.communicators[inputs_.partners.instances[gathering.group].communicator].name +
        " issue different operations: " + lanes_.describe(gathering.first) + ", " + lanes_.describe(lane));
}

// Starts the transfer: all members have arrived, and bytes move from `latest` on.
void Collectives::start_transfer(Gathering& gathering) {
  const CollectiveCost& cost = *gathering.cost;
  const Picoseconds transfer = gathering.latest;
  for (const std::uint32_t lane : gathering.lanes) lanes_[lane].transfer = transfer;
  gathering.phases_left = cost.movement.alone > 0 ? std::max(cost.phases, 1) : 0;
  gathering.moved = false;
  const Picoseconds begin = transfer + cost.latency;
  gathering.wire = cost.edge_bytes > 0 ? network_.start(static_cast<std::uint32_t>(&gathering - gatherings_.data()),
                                                        gathering.group, cost.edge_bytes, cost.most_bytes_per_s, begin)
                                       : std::optional(begin);
  start_phase(gathering);
}

// Starts a phase: the members have met at `latest`. Members that arrived earlier slept, and wake up first.
void Collectives::start_phase(Gathering& gathering) {
  const CollectiveCost& cost = *gathering.cost;
  const Picoseconds met = gathering.latest;
  gathering.slept = std::any_of(gathering.lanes.begin(), gathering.lanes.end(),
                                [&](std::uint32_t lane) { return there_at_[lane] < met; });
  if (gathering.phases_left == 0) {
    gathering.moved = true;
    try_complete(gathering);
    return;
  }
  --gathering.phases_left;
  gathering.present = 0;
  for (const std::uint32_t number : gathering.lanes) {
    lanes_[number].stage = LaneStage::working;
    devices_.launch(number, there_at_[number] < met ? met + inputs_.costs.wake : met, cost.movement.alone,
                    cost.movement.cores, cost.movement.cls, cost.interference ? &*cost.interference : nullptr);
  }
}

void Collectives::movement_ended(std::uint32_t number, Picoseconds now) {
  Gathering& gathering = of(number);
  lanes_[number].stage = LaneStage::meeting;
  there_at_[number] = now;
  gathering.latest = now;
  if (++gathering.present == gathering.lanes.size()) start_phase(gathering);
}

void Collectives::transfer_done(std::uint32_t transfer, Picoseconds now) {
  gatherings_[transfer].wire = now;
  try_complete(gatherings_[transfer]);
}

void Collectives::try_complete(Gathering& gathering) {
  if (!gathering.moved || !gathering.wire) return;
  const Picoseconds moved = gathering.latest + (gathering.slept ? inputs_.costs.wake : 0);
  // Members that finish before the deadline sleep until then. A deadline that has passed costs nothing.
  const Picoseconds wire = *gathering.wire + (*gathering.wire > gathering.latest ? inputs_.costs.timer_overshoot : 0);
  const Picoseconds end = std::max(moved, wire);
  for (const std::uint32_t number : gathering.lanes) {
    lanes_[number].stage = LaneStage::completing;
    events_.schedule(number, end, EventKind::finish);
  }
  gathering.present = 0;
  gathering.moved = false;
}

std::string Collectives::describe_missing(std::uint32_t lane) const {
  const Gathering& gathering = gatherings_[index_of(lane)];
  std::string text = std::to_string(gathering.lanes.size() - gathering.present) + " of " +
                     std::to_string(gathering.lanes.size()) + " members of communicator " +
                     inputs_.schedule.communicators[inputs_.partners.instances[gathering.group].communicator].name;
  const auto absent = std::find_if(gathering.lanes.begin(), gathering.lanes.end(),
                                   [&](std::uint32_t l) { return lanes_[l].stage != LaneStage::meeting; });
  return absent == gathering.lanes.end() ? text : text + ", first " + lanes_.describe(*absent);
}

}  // namespace stretto::sim
