#include "model/verify/row_orders.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <variant>

namespace stretto {
namespace {

// Whose rows they are: those of one of the rank's experts, or those that offsets in a tensor give to their groups.
struct RowOwner {
  std::int64_t expert = 0;
  bool by_data = false;
  TensorId offsets = 0;
  std::int64_t at = 0, first = 0;  // place in the offsets' tensor, and of the first row that they count from
  bool operator==(const RowOwner&) const = default;
};
// Rows [begin, end) of a tensor, and the operation that says whose they are.
struct RowRun {
  std::int64_t begin = 0, end = 0;
  RowOwner owner;
  OpId by = 0;
};
using RowRuns = std::vector<RowRun>;

std::string text_of(const RowOwner& owner, const Schedule& schedule) {
  if (!owner.by_data) return "those of expert " + std::to_string(owner.expert) + " of the rank";
  return "those that " + schedule.tensors[owner.offsets].name + "[" + std::to_string(owner.at) + "] counts from row " +
         std::to_string(owner.first);
}

// Operations that a rewrite has replaced stay in the schedule, but no program calls them.
std::vector<OpId> called_operations(const Schedule& schedule) {
  std::vector<bool> is_called(schedule.operations.size(), false);
  for (const Program& program : schedule.programs)
    for (const Call& call : program.order)
      for (std::uint32_t i = call.first; i < call.first + call.count; ++i)
        is_called[schedule.blocks[call.block].ops[i]] = true;
  std::vector<OpId> called;
  for (OpId op = 0; op < is_called.size(); ++op)
    if (is_called[op]) called.push_back(op);
  return called;
}

class RowOrders {
 public:
  RowOrders(const Schedule& schedule, const std::vector<OpId>& called, const Coordinates& rank, std::size_t limit,
            std::vector<Violation>& found)
      : schedule_(schedule), called_(called), rank_(rank), limit_(limit), found_(found), of_(schedule.tensors.size()) {}

  void run() {
    for (const OpId op : called_) std::visit([&](const auto& work) { state(op, work); }, schedule_.operations[op].work);
    for (const OpId op : called_)
      if (const auto* work = std::get_if<WeightedActivation>(&schedule_.operations[op].work))
        compare_operands(op, work->capacity > 0 ? 1 : 0);
  }

 private:
  template <class Other>
  void state(OpId, const Other&) {}

  void state(OpId op, const GroupedGemm& work) {
    if (work.has_codes()) return;
    const std::vector<Access>& accesses = schedule_.operations[op].accesses;
    // Forward and dgrad: rows, weights, (offsets), rows. wgrad: rows, rows, (offsets), weights.
    const std::size_t result = accesses.size() - 1;
    for (const std::size_t i : {std::size_t{0}, work.pass == Pass::wgrad ? std::size_t{1} : result}) {
      const View& view = accesses[i].view;
      if (!has_rows(view)) continue;
      const std::int64_t first = first_row(view);
      if (!work.equal) {
        const View& offsets = accesses[2].view;
        take(op, view.tensor,
             {first, first + view.rows, {0, true, offsets.tensor, offsets.offset.eval(rank_), first}, op});
        continue;
      }
      const std::int64_t each = view.rows / work.groups;
      for (std::int64_t g = 0; g < work.groups; ++g)
        take(op, view.tensor, {first + g * each, first + (g + 1) * each, {g}, op});
    }
  }

  // Received rows lie by rank and then by expert, sorted ones by expert.
  void state(OpId op, const SortByExpert& work) {
    if (work.each == 0) return;
    const std::vector<Access>& accesses = schedule_.operations[op].accesses;
    for (const bool is_sorted : {false, true}) {
      const View& view = accesses[is_sorted == (work.pass == Pass::forward) ? 1 : 0].view;
      if (!has_rows(view)) continue;
      const std::int64_t parts = is_sorted ? work.local : work.ranks * work.local, each = view.rows / parts;
      for (std::int64_t part = 0; part < parts; ++part) {
        const std::int64_t begin = first_row(view) + part * each;
        take(op, view.tensor, {begin, begin + each, {part % work.local}, op});
      }
    }
  }

  // Whole rows of the tensor, which other views of it count as well.
  bool has_rows(const View& view) const {
    const Tensor& tensor = schedule_.tensors[view.tensor];
    return view.ld == tensor.cols && view.cols == tensor.cols && view.offset.eval(rank_) % tensor.cols == 0;
  }
  std::int64_t first_row(const View& view) const {
    return view.offset.eval(rank_) / schedule_.tensors[view.tensor].cols;
  }

  void take(OpId op, TensorId tensor, const RowRun& run) {
    std::map<std::int64_t, RowRun>& known = of_[tensor];
    auto at = known.upper_bound(run.begin);
    if (at != known.begin()) --at;
    std::int64_t begin = run.begin;  // of rows that no operation has said anything about
    RowRuns fresh;
    for (; at != known.end() && at->first < run.end; ++at) {
      const RowRun& other = at->second;
      if (other.end <= begin) continue;
      if (other.owner != run.owner)
        return report(op, tensor, run.owner, std::max(begin, other.begin), std::min(run.end, other.end), other);
      if (begin < other.begin) fresh.push_back({begin, other.begin, run.owner, op});
      begin = other.end;
    }
    if (begin < run.end) fresh.push_back({begin, run.end, run.owner, op});
    for (const RowRun& part : fresh) known.emplace(part.begin, part);
  }

  // The operands of an operation that works row by row.
  void compare_operands(OpId op, std::size_t first_operand) {
    const std::vector<Access>& accesses = schedule_.operations[op].accesses;
    const View& one = accesses[first_operand].view;
    if (!has_rows(one)) return;
    for (std::size_t i = first_operand + 1; i < accesses.size(); ++i) {
      const View& other = accesses[i].view;
      if (!has_rows(other)) continue;
      const std::int64_t shift = first_row(one) - first_row(other);
      for (const auto& [begin, run] : of_[one.tensor])
        for (const auto& [other_begin, known] : of_[other.tensor]) {
          const std::int64_t from = std::max({begin, other_begin + shift, first_row(one)}),
                             to = std::min({run.end, known.end + shift, first_row(one) + one.rows});
          if (from >= to) continue;
          RowOwner shifted = known.owner;
          if (shifted.by_data) shifted.first += shift;
          if (!(shifted == run.owner)) return report(op, other.tensor, run.owner, from - shift, to - shift, known);
        }
    }
  }

  void report(OpId op, TensorId tensor, const RowOwner& owner, std::int64_t begin, std::int64_t end,
              const RowRun& other) {
    if (found_.size() >= limit_) return;
    found_.push_back({Violation::Kind::wrong_value,
                      "wrong value: " + schedule_.operations[op].name + " takes rows [" + std::to_string(begin) + "," +
                          std::to_string(end) + ") of " + schedule_.tensors[tensor].name + " for " +
                          text_of(owner, schedule_) + ", but " + schedule_.operations[other.by].name +
                          " takes them for " + text_of(other.owner, schedule_)});
  }

  const Schedule& schedule_;
  const std::vector<OpId>& called_;
  const Coordinates& rank_;
  const std::size_t limit_;
  std::vector<Violation>& found_;
  std::vector<std::map<std::int64_t, RowRun>> of_;  // [tensor] by first row
};

}  // namespace

std::vector<Violation> check_row_orders(const Schedule& schedule, std::size_t limit) {
  std::vector<Violation> found;
  const std::vector<OpId> called = called_operations(schedule);
  const auto is_grouped = [&](OpId op) { return std::holds_alternative<GroupedGemm>(schedule.operations[op].work); };
  if (std::none_of(called.begin(), called.end(), is_grouped)) return found;
  for (const std::int64_t rank : {std::int64_t{0}, schedule.mesh.ranks() - 1}) {
    const Coordinates at = schedule.mesh.coordinates_of(rank);
    RowOrders(schedule, called, at, limit, found).run();
    if (!found.empty()) break;
  }
  return found;
}

}  // namespace stretto
