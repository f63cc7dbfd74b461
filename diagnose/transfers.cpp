#include <algorithm>
#include <map>
#include <optional>

#include "base/statistics.hpp"
#include "diagnose/measured.hpp"

namespace stretto::diagnose {
namespace {

using trace::Kernel;

// The kernels of collectives by operation; an operation that several kernels run is left out.
std::map<std::int64_t, const Kernel*> collectives_of(const MeasuredRank& rank) {
  std::map<std::int64_t, const Kernel*> of_op;
  for (const PlacedKernel& placed : rank.placed.kernels) {
    if (placed.op == kNoOperation) continue;
    if (!std::holds_alternative<Collective>(rank.program.work_of(static_cast<std::uint32_t>(placed.op)))) continue;
    const auto [found, is_new] = of_op.try_emplace(placed.op, &rank.kernel(placed));
    if (!is_new) found->second = nullptr;
  }
  return of_op;
}

bool are_in_one_group(const Schedule& schedule, std::uint32_t communicator, std::int64_t a, std::int64_t b) {
  const std::vector<std::int64_t> members = schedule.mesh.members(a, schedule.communicators[communicator].axes);
  return std::find(members.begin(), members.end(), b) != members.end();
}

// Returns what b's clock lacks to a's: the median over their common collectives of the difference of ends.
std::optional<Picoseconds> clock_between(const Schedule& schedule, const MeasuredRank& a, const MeasuredRank& b) {
  if (a.program.role != b.program.role) return std::nullopt;
  const auto of_a = collectives_of(a), of_b = collectives_of(b);
  std::vector<double> differences;
  for (const auto& [op, kernel] : of_a) {
    const auto other = of_b.find(op);
    if (kernel == nullptr || other == of_b.end() || other->second == nullptr) continue;
    const std::uint32_t communicator = communicator_of(a.program.work_of(static_cast<std::uint32_t>(op)));
    if (are_in_one_group(schedule, communicator, a.rank(), b.rank()))
      differences.push_back(double(kernel->end - other->second->end));
  }
  if (differences.empty()) return std::nullopt;
  return static_cast<Picoseconds>(median(differences));
}

void set_clocks(const Schedule& schedule, std::vector<MeasuredRank>& ranks, std::vector<bool>& is_set) {
  is_set.assign(ranks.size(), false);
  is_set[0] = true;
  for (bool found = true; found;) {
    found = false;
    for (std::size_t b = 0; b < ranks.size(); ++b)
      for (std::size_t a = 0; a < ranks.size() && !is_set[b]; ++a) {
        if (!is_set[a]) continue;
        if (const auto clock = clock_between(schedule, ranks[a], ranks[b])) {
          ranks[b].clock = ranks[a].clock + *clock;
          is_set[b] = found = true;
        }
      }
  }
}

// Sets the beginning of transfers that two or more traced ranks take part in.
void by_arrivals(const Schedule& schedule, std::vector<MeasuredRank>& ranks, const std::vector<bool>& is_set) {
  std::vector<std::map<std::int64_t, const Kernel*>> of_rank;
  for (const MeasuredRank& rank : ranks) of_rank.push_back(collectives_of(rank));
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (PlacedKernel& placed : ranks[r].placed.kernels) {
      const auto own = of_rank[r].find(placed.op);
      if (!is_set[r] || own == of_rank[r].end() || own->second == nullptr) continue;
      const std::uint32_t communicator =
          communicator_of(ranks[r].program.work_of(static_cast<std::uint32_t>(placed.op)));
      for (std::size_t other = 0; other < ranks.size(); ++other) {
        if (other == r || !is_set[other] || ranks[other].program.role != ranks[r].program.role) continue;
        const auto theirs = of_rank[other].find(placed.op);
        if (theirs == of_rank[other].end() || theirs->second == nullptr) continue;
        if (!are_in_one_group(schedule, communicator, ranks[r].rank(), ranks[other].rank())) continue;
        const Picoseconds arrived = theirs->second->start + ranks[other].clock - ranks[r].clock;
        placed.transfer = std::clamp(arrived, placed.transfer, own->second->end);
      }
    }
}

// Sets the beginning of transfers of a rank from the lengths of its own kernels.
void by_lengths(MeasuredRank& rank) {
  std::map<OpId, Picoseconds> shortest;
  const auto op_of = [&](const PlacedKernel& placed) {
    return rank.program.ops[static_cast<std::uint32_t>(placed.op)].op;
  };
  for (const PlacedKernel& placed : rank.placed.kernels) {
    const Kernel& kernel = rank.kernel(placed);
    if (placed.op == kNoOperation || !trace::is_communication(kernel.cls)) continue;
    const auto [found, is_new] = shortest.try_emplace(op_of(placed), kernel.length());
    if (!is_new) found->second = std::min(found->second, kernel.length());
  }
  for (PlacedKernel& placed : rank.placed.kernels) {
    const Kernel& kernel = rank.kernel(placed);
    if (placed.op == kNoOperation || !trace::is_communication(kernel.cls) || placed.transfer > kernel.start) continue;
    const TimelineRow* row = rank.predicted.rows[static_cast<std::uint32_t>(placed.op)];
    const Picoseconds predicted = row == nullptr ? 0 : row->moved() - row->transfer;
    const Picoseconds moves = std::min(kernel.length(), std::max(predicted, shortest.at(op_of(placed))));
    placed.transfer = kernel.end - moves;
  }
}

}  // namespace

void find_transfers(const Schedule& schedule, std::vector<MeasuredRank>& ranks, trace::Origin origin) {
  for (MeasuredRank& rank : ranks)
    for (PlacedKernel& placed : rank.placed.kernels)
      placed.transfer = rank.kernel(placed).start + rank.kernel(placed).waited_for_peers;
  if (origin == trace::Origin::stretto) return;
  std::vector<bool> is_set;
  set_clocks(schedule, ranks, is_set);
  by_arrivals(schedule, ranks, is_set);
  // Ranks whose peers are not traced have only themselves to compare with.
  if (ranks.size() == 1) by_lengths(ranks.front());
}

}  // namespace stretto::diagnose
