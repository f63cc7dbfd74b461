#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "model/schedule/folding.hpp"
#include "model/schedule/partners.hpp"
#include "model/schedule/process_group.hpp"

namespace stretto {
namespace {

// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
std::uint64_t mixed(std::uint64_t bits) {
  bits += 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

// Colours of ranks: ranks of equal colour may still be in one class. Colours are 64-bit hashes, so that two of some
// thousand are equal by chance once in 10^12 schedules.
class Colours {
 public:
  Colours(const Schedule& schedule, const Folding& coarse, std::span<const std::uint32_t> kind_of_rank)
      : schedule_(schedule), ranks_(static_cast<std::uint32_t>(schedule.mesh.ranks())), colours_(ranks_) {
    for (std::uint32_t rank = 0; rank < ranks_; ++rank)
      colours_[rank] = mixed(mixed(coarse.index_of(rank)) + kind_of_rank[rank]);
    find_relations();
  }

  std::vector<std::uint32_t> classes() {
    for (std::size_t before = 0, now = count(); now > before; now = count()) {
      before = now;
      refine();
    }
    std::vector<std::uint32_t> classes;
    std::vector<std::pair<std::uint64_t, std::uint32_t>> known;  // colour → class
    for (const std::uint64_t colour : colours_) {
      const auto at = std::lower_bound(known.begin(), known.end(), std::pair{colour, std::uint32_t{0}});
      const bool is_known = at != known.end() && at->first == colour;
      classes.push_back(is_known ? at->second : static_cast<std::uint32_t>(known.size()));
      if (!is_known) known.insert(at, {colour, classes.back()});
    }
    return classes;
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  using OfRank = std::vector<std::uint32_t>;  // [rank]

  void find_relations() {
    std::set<std::uint32_t> meeting;
    std::set<std::pair<std::uint32_t, std::string>> known;  // messages, by communicator and offset
    for (const Operation& operation : schedule_.operations)
      if (const auto* collective = std::get_if<Collective>(&operation.work)) {
        if (meeting.insert(collective->communicator).second)
          add_groups(schedule_.communicators[collective->communicator]);
      } else if (const auto* message = std::get_if<PointToPoint>(&operation.work)) {
        if (known.insert({message->communicator, message->offset.text()}).second) add_peers(*message);
      }
    const auto on_device = static_cast<std::uint32_t>(schedule_.placement.ranks_per_device);
    if (on_device <= 1) return;
    OfRank& device_of = groups_.emplace_back();
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) device_of.push_back(rank / on_device);
  }

  void add_groups(const Communicator& communicator) {
    if (communicator.size == 1) return;
    OfRank& first_of = groups_.emplace_back();
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      const ProcessGroup group = process_group_of(schedule_.mesh, communicator, rank);
      first_of.push_back(group.size == 0 ? kNone : static_cast<std::uint32_t>(group.first));
    }
  }

  void add_peers(const PointToPoint& message) {
    const Communicator& communicator = schedule_.communicators[message.communicator];
    OfRank& peer_of_rank = peers_.emplace_back();
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      const bool is_member = process_group_of(schedule_.mesh, communicator, rank).size > 0;
      peer_of_rank.push_back(is_member ? static_cast<std::uint32_t>(peer_of(schedule_, message, rank).rank) : kNone);
    }
  }

  // Refines all colours: a rank's next colour combines its own colour, its peers' colours, and the colours of its
  // groups' members.
  void refine() {
    std::vector<std::uint64_t> next = colours_;
    for (const OfRank& peer_of_rank : peers_)
      for (std::uint32_t rank = 0; rank < ranks_; ++rank)
        next[rank] = mixed(next[rank]) + (peer_of_rank[rank] == kNone ? 0 : colours_[peer_of_rank[rank]]);
    std::vector<std::uint64_t> sums(ranks_);
    for (const OfRank& group_of : groups_) {
      std::fill(sums.begin(), sums.end(), 0);
      for (std::uint32_t rank = 0; rank < ranks_; ++rank)
        if (group_of[rank] != kNone) sums[group_of[rank]] += mixed(colours_[rank]);
      for (std::uint32_t rank = 0; rank < ranks_; ++rank)
        next[rank] = mixed(next[rank]) + (group_of[rank] == kNone ? 0 : sums[group_of[rank]]);
    }
    for (std::uint64_t& colour : next) colour = mixed(colour);
    colours_ = std::move(next);
  }

  std::size_t count() const {
    std::vector<std::uint64_t> sorted = colours_;
    std::sort(sorted.begin(), sorted.end());
    return static_cast<std::size_t>(std::unique(sorted.begin(), sorted.end()) - sorted.begin());
  }

  const Schedule& schedule_;
  const std::uint32_t ranks_;
  std::vector<std::uint64_t> colours_;  // [rank]
  std::vector<OfRank> groups_;          // the group's number, for each communicator and for devices
  std::vector<OfRank> peers_;           // peers for each kind of message; kNone: the rank has none
};

}  // namespace

Folding split_by_kind(const Schedule& schedule, const Folding& coarse, std::span<const std::uint32_t> kind_of_rank) {
  return Folding(schedule.mesh, Colours(schedule, coarse, kind_of_rank).classes());
}

}  // namespace stretto
