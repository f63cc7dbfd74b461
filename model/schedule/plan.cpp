#include "model/schedule/plan.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <numeric>

#include "base/parallel.hpp"
#include "model/schedule/bound_step.hpp"
#include "model/schedule/footprint.hpp"
#include "model/schedule/happens_before.hpp"

namespace stretto {
namespace {

constexpr std::int64_t kAlignment = 64;  // bytes: a cache line, and more than any vector load needs

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

constexpr std::uint32_t kUnused = std::numeric_limits<std::uint32_t>::max();

// The storages that operations of a role use, numbered. A pipeline stage uses few of all storages.
class UsedStorages {
 public:
  UsedStorages(const Schedule& schedule, std::vector<Footprints>& footprints, const std::vector<std::size_t>& members)
      : number_(schedule.storages.size(), kUnused) {
    for (const std::size_t p : members)
      for (std::uint32_t f = 0; f < footprints[p].count(); ++f)
        for (const BoundView& view : footprints[p].views(f))
          if (number_[view.storage] == kUnused) number_[view.storage] = count_++;
  }
  bool has(StorageId storage) const { return number_[storage] != kUnused; }
  std::uint32_t number(StorageId storage) const { return number_[storage]; }
  std::uint32_t count() const { return count_; }

 private:
  std::vector<std::uint32_t> number_;
  std::uint32_t count_ = 0;
};

// All uses of every storage, per (program, lane). Lanes are in order, so the first and the last use on a lane stand for
// all uses, and "every use of A before every use of B" is one comparison per lane. `members` are the programs of one
// role: a result holds for each of them.
class Lifetimes {
 public:
  Lifetimes(const UsedStorages& used, const HappensBefore& clocks, std::vector<Footprints>& footprints,
            const std::vector<std::size_t>& members)
      : used_(used), lanes_(clocks.lanes), width_(members.size() * clocks.lanes) {
    const std::size_t storages = used.count();
    finished_.assign(storages * width_, 0);
    for (auto& known : known_) known.assign(storages * width_, kUnused);
    start_.assign(storages, kUnused);
    std::vector<std::uint32_t> first_op(storages * lanes_), last_op(storages * lanes_);
    for (std::size_t m = 0; m < members.size(); ++m) {
      const std::size_t p = members[m];
      const BoundProgram& program = clocks.programs[p];
      std::fill(first_op.begin(), first_op.end(), kUnused);
      std::fill(last_op.begin(), last_op.end(), 0);
      std::vector<std::uint32_t> last_of(footprints[p].count());  // [footprint]: the last operation with the footprint
      for (std::uint32_t i = 0; i < program.ops.size(); ++i) last_of[footprints[p].of(i)] = i;
      for (std::uint32_t f = 0; f < footprints[p].count(); ++f) {
        const std::uint32_t first = footprints[p].first_op(f);
        for (const BoundView& view : footprints[p].views(f)) {
          const std::uint32_t s = used.number(view.storage);
          const std::size_t at = s * lanes_ + program.ops[first].lane;
          first_op[at] = std::min(first_op[at], first);
          last_op[at] = std::max(last_op[at], last_of[f]);
          start_[s] = std::min(start_[s], first);
        }
      }
      for (std::size_t s = 0; s < storages; ++s)
        summarise(clocks, p, m, s, &first_op[s * lanes_], &last_op[s * lanes_]);
    }
  }

  // Returns the index of the first operation that uses the storage.
  std::uint32_t start(StorageId storage) const { return start_[used_.number(storage)]; }

  // A necessary condition of can_share(), from one lane: all uses of one storage come before all uses of the other, in
  // either order.
  struct OnFirstLane {
    std::uint32_t finished = 0, known = 0;
    bool may_share(const OnFirstLane& other) const { return finished <= other.known || other.finished <= known; }
  };
  OnFirstLane on_first_lane(StorageId storage) const {
    const std::size_t at = used_.number(storage) * width_;
    return {finished_[at], known_[0][at]};
  }

  bool can_share(StorageId storage_a, StorageId storage_b) const {
    const std::uint32_t a = used_.number(storage_a), b = used_.number(storage_b);
    return (precedes(a, b, 0) && precedes(b, a, 1)) || (precedes(b, a, 0) && precedes(a, b, 1));
  }

 private:
  void summarise(const HappensBefore& clocks, std::size_t p, std::size_t m, std::size_t storage,
                 const std::uint32_t* first_op, const std::uint32_t* last_op) {
    for (LaneId lane = 0; lane < lanes_; ++lane) {
      if (first_op[lane] == kUnused) continue;
      finished_[storage * width_ + m * lanes_ + lane] = clocks.position(p, {last_op[lane], 0}) + 1;
      for (std::uint32_t step = 0; step < kUnrolledSteps; ++step) {
        std::uint32_t* known = &known_[step][storage * width_ + m * lanes_];
        for (LaneId l = 0; l < lanes_; ++l)
          known[l] = std::min(known[l], clocks.finished_before(p, {first_op[lane], step}, l));
      }
    }
  }

  // Returns whether every use of a in the first step comes before every use of b in step `step`.
  bool precedes(std::size_t a, std::size_t b, std::uint32_t step) const {
    const std::uint32_t* finished = &finished_[a * width_];
    const std::uint32_t* known = &known_[step][b * width_];
    for (std::size_t c = 0; c < width_; ++c)
      if (finished[c] > known[c]) return false;
    return true;
  }

  const UsedStorages& used_;
  std::size_t lanes_, width_;
  std::vector<std::uint32_t> finished_;               // [number · width + member · lanes + lane]: last use + 1, or 0
  std::vector<std::uint32_t> known_[kUnrolledSteps];  // like finished_: finished before any use of that step can begin
  std::vector<std::uint32_t> start_;
};

struct Placed {
  std::int64_t begin = 0, end = 0;
  StorageId storage = 0;
  Lifetimes::OnFirstLane lifetime = {};
};

// A group of storages that lie near each other. A search skips a whole group at once when none of its members can
// share: nearly all of ten thousand storages are live at one time, and each would otherwise be compared with every
// placed one.
class Neighbours {
 public:
  // Returns the first offset from `begin` on at which `mine` conflicts with no storage of the group.
  std::int64_t first_fit(const Lifetimes& lifetimes, const Placed& mine, std::int64_t begin) {
    const std::int64_t bytes = mine.end - mine.begin;
    if (end_ <= begin) return begin;
    const bool shares_with_none = mine.lifetime.finished > most_known_ && least_finished_ > mine.lifetime.known;
    if (shares_with_none && bytes > 0 && !has_gaps()) return end_;
    for (const Placed& other : placed_) {
      if (other.begin >= begin + bytes) break;
      // One lane is enough to keep most storages apart.
      if (other.end > begin &&
          !(mine.lifetime.may_share(other.lifetime) && lifetimes.can_share(mine.storage, other.storage)))
        begin = other.end;
    }
    return begin;
  }

  void insert(const Placed& mine) {
    placed_.insert(std::upper_bound(placed_.begin(), placed_.end(), mine,
                                    [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
                   mine);
    end_ = std::max(end_, mine.end);
    least_finished_ = std::min(least_finished_, mine.lifetime.finished);
    most_known_ = std::max(most_known_, mine.lifetime.known);
    gaps_ = Gaps::unknown;
  }

  // Moves the second half of the storages into a new group.
  Neighbours split() {
    Neighbours first, second;
    for (std::size_t i = 0; i < placed_.size(); ++i) (i < placed_.size() / 2 ? first : second).insert(placed_[i]);
    *this = std::move(first);
    return second;
  }

  std::int64_t begin() const { return placed_.front().begin; }
  std::size_t size() const { return placed_.size(); }

 private:
  enum class Gaps : std::uint8_t { unknown, none, some };

  bool has_gaps() {
    if (gaps_ == Gaps::unknown) {
      gaps_ = Gaps::none;
      std::int64_t end = begin();
      for (const Placed& placed : placed_) {
        if (placed.begin > end) gaps_ = Gaps::some;
        end = std::max(end, placed.end);
      }
    }
    return gaps_ == Gaps::some;
  }

  std::vector<Placed> placed_;  // sorted by begin
  std::int64_t end_ = 0;
  std::uint32_t least_finished_ = kUnused, most_known_ = 0;
  Gaps gaps_ = Gaps::unknown;
};

// The placed storages, sorted by begin, in groups of neighbours.
class Arena {
 public:
  Arena(const Lifetimes& lifetimes, std::int64_t base) : lifetimes_(lifetimes), base_(base) {}

  // Returns the lowest place from the base on that is free of conflicts.
  std::int64_t place(StorageId storage, std::int64_t bytes) {
    Placed mine{0, bytes, storage, lifetimes_.on_first_lane(storage)};
    std::int64_t begin = base_;
    for (Neighbours& group : groups_) {
      if (group.begin() >= begin + bytes) break;
      begin = group.first_fit(lifetimes_, mine, begin);
    }
    mine.begin = begin;
    mine.end = begin + bytes;
    auto group = std::upper_bound(groups_.begin(), groups_.end(), begin,
                                  [](std::int64_t at, const Neighbours& other) { return at < other.begin(); });
    if (groups_.empty())
      group = groups_.insert(group, Neighbours());
    else if (group != groups_.begin())
      --group;
    group->insert(mine);
    if (group->size() > kMostNeighbours) groups_.insert(group + 1, group->split());
    return begin;
  }

 private:
  static constexpr std::size_t kMostNeighbours = 512;
  const Lifetimes& lifetimes_;
  std::int64_t base_;
  std::vector<Neighbours> groups_;
};

RolePlan plan_role(const Schedule& schedule, const UsedStorages& used, const Lifetimes& lifetimes,
                   const std::vector<bool>& is_used_by_any) {
  RolePlan plan;
  plan.offset_bytes.assign(schedule.storages.size(), RolePlan::kNowhere);
  std::vector<StorageId> shared;
  for (StorageId s = 0; s < schedule.storages.size(); ++s) {
    // A storage that no operation uses is accessed from outside the step, and the clocks say nothing about that.
    if (!used.has(s) && is_used_by_any[s]) continue;
    const std::int64_t bytes = aligned(schedule.storages[s].bytes());
    plan.bytes_without_sharing += bytes;
    if (shares_with_nobody(schedule.storages[s].kind) || !used.has(s)) {
      plan.offset_bytes[s] = plan.bytes;
      plan.bytes += bytes;
    } else {
      shared.push_back(s);
    }
  }

  std::sort(shared.begin(), shared.end(), [&](StorageId a, StorageId b) {
    const std::int64_t bytes_a = schedule.storages[a].bytes(), bytes_b = schedule.storages[b].bytes();
    if (bytes_a != bytes_b) return bytes_a > bytes_b;
    if (lifetimes.start(a) != lifetimes.start(b)) return lifetimes.start(a) < lifetimes.start(b);
    return a < b;
  });
  Arena arena(lifetimes, plan.bytes);
  for (const StorageId s : shared) {
    const std::int64_t bytes = aligned(schedule.storages[s].bytes());
    plan.offset_bytes[s] = arena.place(s, bytes);
    plan.bytes = std::max(plan.bytes, plan.offset_bytes[s] + bytes);
  }
  return plan;
}

}  // namespace

std::int64_t MemoryPlan::peak_bytes() const {
  std::int64_t peak = 0;
  for (const RolePlan& role : roles) peak = std::max(peak, role.bytes);
  return peak;
}

MemoryPlan plan_memory(const Schedule& schedule) { return plan_memory(schedule, bind_step(schedule)); }

MemoryPlan plan_memory(const Schedule& schedule, const BoundStep& step) {
  const HappensBefore clocks = require_order(schedule, step.programs, step.issued);
  std::vector<Footprints> footprints = footprints_of(schedule, step.programs);
  return plan_memory(schedule, clocks, footprints);
}

MemoryPlan plan_memory(const Schedule& schedule, const HappensBefore& clocks, std::vector<Footprints>& footprints) {
  std::vector<std::vector<std::size_t>> members(schedule.programs.size());  // [role]
  for (std::size_t p = 0; p < clocks.programs.size(); ++p) members[clocks.programs[p].role].push_back(p);
  std::vector<bool> is_used_by_any(schedule.storages.size(), false);
  for (Footprints& of_program : footprints)
    for (std::uint32_t f = 0; f < of_program.count(); ++f)
      for (const BoundView& view : of_program.views(f)) is_used_by_any[view.storage] = true;
  MemoryPlan plan;
  plan.roles.resize(members.size());
  std::vector<std::exception_ptr> failures(members.size());
  parallel_each(std::ssize(members), [&](std::int64_t at) {
    const auto role = static_cast<std::size_t>(at);
    try {
      const UsedStorages used(schedule, footprints, members[role]);
      const Lifetimes lifetimes(used, clocks, footprints, members[role]);
      plan.roles[role] = plan_role(schedule, used, lifetimes, is_used_by_any);
    } catch (...) {
      failures[role] = std::current_exception();
    }
  });
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return plan;
}

}  // namespace stretto
