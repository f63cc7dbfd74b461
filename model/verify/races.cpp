#include "model/verify/races.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>

#include "model/schedule/operands.hpp"
#include "model/verify/cells.hpp"
#include "model/verify/meaning.hpp"

namespace stretto {
namespace {

// The last write of a cell. `count` is the write's position in its lane plus one, 0: never written.
struct LastWrite {
  std::uint32_t count = 0;
  StorageId storage = 0;
  LaneId lane = 0;
  std::uint16_t step = 0;
};

// Which operations of the second step are visited.
enum class SecondStep : std::uint8_t {
  all,
  // Only operations that were in the first step the first on their lane to touch some byte, before anything had written
  // it. They are enough to find out whether there is anything to report; docs/verifier.md says why.
  first_touches,
};

// An access: an operation and one of its contiguous ranges of cells.
struct Touch {
  UnrolledOp at;
  CellUse use;
};

class Walk {
 public:
  Walk(const Schedule& schedule, const ValueRules& rules, const HappensBefore& clocks, std::size_t p,
       Footprints& footprints, const RolePlan* plan, SecondStep second_step, RaceReport& report)
      : schedule_(schedule),
        clocks_(clocks),
        p_(p),
        program_(clocks.programs[p]),
        report_(report),
        lanes_(clocks.lanes),
        footprints_(footprints),
        cells_(cut_into_cells(schedule, program_, footprints, plan)),
        writes_(cells_.count),
        reads_(cells_.count * lanes_, 0),
        read_storage_(cells_.count, 0),
        touches_first_(program_.ops.size(), second_step == SecondStep::all),
        meaning_(schedule, rules, program_, cells_.count) {}

  void run() {
    const std::size_t before = report_.violations.size();
    for (const UnrolledRange& run : clocks_.order[p_]) {
      for (UnrolledOp at = run.first; at.op < run.first.op + run.count; ++at.op) {
        if (report_.violations.size() >= report_.limit) return;
        if (at.step != 0 && !touches_first_[at.op]) continue;
        visit(at);
        if (wrong_.empty()) follow(at);
      }
    }
    // With races, values depend on timing, so there is no intended value to check.
    if (report_.violations.size() != before) return;
    std::move(wrong_.begin(), wrong_.end(), std::back_inserter(report_.violations));
  }

 private:
  const CellUse* uses_begin(std::uint32_t op) const { return cells_.uses.data() + cells_.begin[footprints_.of(op)]; }
  const CellUse* uses_end(std::uint32_t op) const { return cells_.uses.data() + cells_.begin[footprints_.of(op) + 1]; }

  void visit(UnrolledOp at) {
    const BoundOp& op = program_.ops[at.op];
    const std::size_t lanes = lanes_;
    const LaneId lane = op.lane;
    const std::uint32_t count = clocks_.position(p_, at) + 1;
    const std::uint32_t* known = clocks_.known(p_, at);
    // On its own lane all earlier operations have finished, except those that are joined to it.
    const std::uint32_t known_here = op.joined ? clocks_.finished_before(p_, at, lane) : count;
    // Returns whether operation number `of` of a lane (counted from 1) may still run when this operation does.
    const auto is_open = [=](LaneId l, std::uint32_t of) {
      return l == lane ? of > known_here && of != count : of > known[l];
    };
    const CellUse* begin = uses_begin(at.op);
    const CellUse* end = uses_end(at.op);
    bool touches_first = false;
    // All reads come before all writes, because a work that may be in place reads an element before it overwrites it. A
    // plan knows nothing of kernels, so two storages of one operation on the same bytes always conflict.
    for (const CellUse* use = begin; use != end; ++use) {
      if (use->mode == AccessMode::write) continue;
      const bool needs_write = use->needs_write, is_read = use->mode == AccessMode::read;
      const StorageId storage = use->storage;
      LastWrite* last = &writes_[use->first];
      std::uint32_t* read = &reads_[use->first * lanes + lane];
      for (std::uint32_t c = use->first; c < use->last; ++c, ++last, read += lanes) {
        const bool is_first = last->count == 0;
        touches_first |= is_first && *read == 0;
        const bool is_stale =
            is_first ? needs_write : last->storage != storage || (needs_write && last->step != at.step);
        if (is_open(last->lane, last->count)) [[unlikely]]
          report_race({at, *use}, last->lane, last->count, true, c);
        else if (is_stale) [[unlikely]]
          report_unwritten(at, *use, c);
        if (!is_read) continue;
        *read = count;
        read_storage_[c] = storage;
      }
    }
    for (const CellUse* use = begin; use != end; ++use) {
      if (use->mode == AccessMode::read) continue;
      const StorageId storage = use->storage;
      LastWrite* last = &writes_[use->first];
      std::uint32_t* reads = &reads_[use->first * lanes];
      for (std::uint32_t c = use->first; c < use->last; ++c, ++last, reads += lanes) {
        touches_first |= last->count == 0;
        if (is_open(last->lane, last->count)) [[unlikely]]
          report_race({at, *use}, last->lane, last->count, true, c);
        if (last->lane == lane && last->count == count && last->storage != storage)
          report_alias({at, *use}, last->storage);
        if (reads[lane] == count && (read_storage_[c] != storage || !may_be_in_place(program_.works[op.op])))
          report_alias({at, *use}, read_storage_[c]);
        for (LaneId l = 0; l < lanes; ++l) {
          if (is_open(l, reads[l])) [[unlikely]]
            report_race({at, *use}, l, reads[l], false, c);
          reads[l] = 0;
        }
        *last = {count, storage, lane, static_cast<std::uint16_t>(at.step)};
      }
    }
    if (touches_first) touches_first_[at.op] = true;
  }

  void follow(UnrolledOp at) {
    if (meaning_.visit(at.op, at.step, {uses_begin(at.op), uses_end(at.op)})) [[likely]]
      return;
    const WrongValue& wrong = meaning_.wrong();
    const char* does = wrong.use.mode == AccessMode::accumulate ? " adds to " : " reads ";
    wrong_.push_back(
        {Violation::Kind::wrong_value, "wrong value: " + name(at) + does + range({at, wrong.use}) + ", " + wrong.why});
  }

  // ---- the code below is needed only for a violation ----

  UnrolledOp instance(LaneId lane, std::uint32_t count) const {
    const auto& ops = program_.lanes[lane];
    const auto size = static_cast<std::uint32_t>(ops.size());
    return {ops[(count - 1) % size], (count - 1) / size};
  }

  // Returns the range by which an operation touches a cell.
  CellUse use_of(UnrolledOp at, std::uint32_t cell, bool is_write) const {
    for (const CellUse* use = uses_begin(at.op); use != uses_end(at.op); ++use)
      if (use->first <= cell && cell < use->last && (use->mode != AccessMode::read) == is_write) return *use;
    return {};
  }

  std::string name(UnrolledOp at) const {
    const BoundOp& op = program_.ops[at.op];
    return label(schedule_, op) + " (lane " + schedule_.lanes[op.lane].name + ")";
  }

  std::string range(const Touch& touch) const {
    const BoundView view = resolve(schedule_, program_, program_.ops[touch.at.op], touch.use.access);
    const std::int64_t end = view.offset + (view.rows - 1) * view.ld + view.cols;
    return schedule_.storages[view.storage].name + "[" + std::to_string(view.offset) + "," + std::to_string(end) + ")";
  }

  bool is_new(Violation::Kind kind, UnrolledOp a, UnrolledOp b, StorageId storage) {
    return report_.violations.size() < report_.limit &&
           report_.seen.emplace(kind, program_.ops[a.op].op, program_.ops[b.op].op, storage).second;
  }

  void report_race(const Touch& now, LaneId lane, std::uint32_t count, bool is_write, std::uint32_t cell) {
    const UnrolledOp other = instance(lane, count);
    report_race(now, {other, use_of(other, cell, is_write)});
  }

  void report_race(Touch first, Touch second) {
    // The violation names the two operations in issue order, which is the order that the program means.
    const auto issue = [](const Touch& t) { return std::pair(t.at.step, t.at.op); };
    if (issue(second) < issue(first)) std::swap(first, second);
    if (!is_new(Violation::Kind::race, first.at, second.at, second.use.storage)) return;
    const std::string where = second.at.step != first.at.step ? " of the next step" : "";
    const bool shares = first.use.storage != second.use.storage;
    report_.violations.push_back(
        {Violation::Kind::race,
         "race: " + name(second.at) + where + (second.use.mode == AccessMode::read ? " reads " : " writes ") +
             range(second) + " while " + name(first.at) + " may " +
             (first.use.mode == AccessMode::read ? "read " : "write ") + (shares ? range(first) : "it") +
             (shares ? ", which has the same planned bytes" : "") +
             "; missing edge: " + label(schedule_, program_.ops[first.at.op]) + " -> " +
             label(schedule_, program_.ops[second.at.op]) + where});
  }

  void report_alias(const Touch& write, StorageId other) {
    if (!is_new(Violation::Kind::race, write.at, write.at, write.use.storage)) return;
    const std::string why =
        other == write.use.storage ? "its kernel cannot work in place" : "which has the same planned bytes";
    report_.violations.push_back({Violation::Kind::race, "race: " + name(write.at) + " writes " + range(write) +
                                                             " over its own operand " + schedule_.storages[other].name +
                                                             ", " + why});
  }

  // Returns the first operation in issue order that writes the cell through the storage: the operation for which the
  // reader should have waited.
  std::optional<Touch> writer_of(StorageId storage, std::uint32_t cell, UnrolledOp reader) const {
    for (std::uint32_t op = 0; op < program_.ops.size(); ++op) {
      if (op == reader.op) continue;
      for (const CellUse* use = uses_begin(op); use != uses_end(op); ++use)
        if (use->mode == AccessMode::write && use->storage == storage && use->first <= cell && cell < use->last)
          return Touch{{op, reader.step}, *use};
    }
    return std::nullopt;
  }

  void report_unwritten(UnrolledOp at, const CellUse& use, std::uint32_t cell) {
    const std::optional<Touch> writer = writer_of(use.storage, cell, at);
    // When the two operations are not ordered, the read is early or late depending on timing: that is a race.
    if (writer && !clocks_.ordered(p_, writer->at, at) && !clocks_.ordered(p_, at, writer->at)) {
      report_race({at, use}, *writer);
      return;
    }
    if (!is_new(Violation::Kind::uninitialised_read, at, writer ? writer->at : at, use.storage)) return;
    const LastWrite& last = writes_[cell];
    std::string why = "nothing has written";
    if (last.count != 0) {
      const UnrolledOp by = instance(last.lane, last.count);
      why = last.storage != use.storage ? name(by) + " has overwritten with " + schedule_.storages[last.storage].name +
                                              ", which has the same planned bytes"
                                        : "only " + name(by) + " of the step before has written";
    }
    std::string fix = "; no operation of the step writes it";
    if (writer)
      fix = "; missing edge: " + label(schedule_, program_.ops[writer->at.op]) + " -> " +
            label(schedule_, program_.ops[at.op]);
    if (writer && clocks_.ordered(p_, writer->at, at)) fix = "";
    report_.violations.push_back({Violation::Kind::uninitialised_read, "uninitialised read: " + name(at) + " reads " +
                                                                           range({at, use}) + ", which " + why + fix});
  }

  const Schedule& schedule_;
  const HappensBefore& clocks_;
  const std::size_t p_;
  const BoundProgram& program_;
  RaceReport& report_;
  const std::size_t lanes_;
  const Footprints& footprints_;
  const Cells cells_;
  std::vector<LastWrite> writes_;  // [cell]
  // [cell · lanes + lane]: the latest read since the last write, as position plus one
  std::vector<std::uint32_t> reads_;
  std::vector<StorageId> read_storage_;      // [cell]: the storage of that read
  std::vector<std::uint8_t> touches_first_;  // [op]
  Meaning meaning_;
  std::vector<Violation> wrong_;  // the first wrong value, if any
};

}  // namespace

void find_races(const Schedule& schedule, const ValueRules& rules, const HappensBefore& clocks, std::size_t program,
                Footprints& footprints, const RolePlan* plan, RaceReport& report) {
  RaceReport quick = report;
  Walk(schedule, rules, clocks, program, footprints, plan, SecondStep::first_touches, quick).run();
  if (quick.violations.size() != report.violations.size())
    Walk(schedule, rules, clocks, program, footprints, plan, SecondStep::all, report).run();
}

}  // namespace stretto
