#include "sim/rounds.hpp"

#include <algorithm>
#include <set>
#include <span>
#include <tuple>
#include <vector>

namespace stretto::sim {
namespace {

constexpr std::uint32_t kNoTwin = ~std::uint32_t{0};

// One program with its rows, which have the index of their operation.
struct Part {
  const BoundProgram* program = nullptr;
  std::span<const TimelineRow> rows;
  std::vector<std::uint32_t> twin;   // [operation] the operation of a later micro-batch, or kNoTwin
  std::vector<Picoseconds> issued;   // [operation] when the host issued it; empty without a host
};

std::vector<std::uint32_t> twins_of(const BoundProgram& program, std::int64_t micro_batches) {
  using Key = std::tuple<OpId, std::int32_t, std::int16_t, std::int32_t>;
  const auto key_of = [&](std::uint32_t i) {
    const BoundOp& op = program.ops[i];
    return Key{op.op, op.layer, op.chunk, op.micro_batch};
  };
  std::vector<std::uint32_t> order(program.ops.size()), twin(program.ops.size(), kNoTwin);
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return key_of(a) < key_of(b); });
  std::size_t later = 0;
  for (const std::uint32_t i : order) {
    Key key = key_of(i);
    std::get<3>(key) += static_cast<std::int32_t>(micro_batches);
    while (later < order.size() && key_of(order[later]) < key) ++later;
    if (later < order.size() && key_of(order[later]) == key) twin[i] = order[later];
  }
  return twin;
}

// Returns when the host issued each operation (HostClock). The host begins with the step; its first operation tells
// when that was.
std::vector<Picoseconds> issue_times(const FlatProgram& flat, std::span<const TimelineRow> rows) {
  std::vector<const FlatOp*> in_order(rows.size());
  Picoseconds begin = kHorizon;
  for (const FlatOp& op : flat.ops) {
    in_order[op.op] = &op;
    if (op.segment == 0) begin = std::min(begin, rows[op.op].ready - op.issued);
  }
  std::vector<Picoseconds> begins = {begin}, issued(rows.size());
  for (std::uint32_t i = 0; i < rows.size(); ++i) {
    const FlatOp& op = *in_order[i];
    issued[i] = begins.at(op.segment) + op.issued;
    if (op.ends_segment) begins.push_back(std::max(begins.back() + op.awaited, rows[i].end));
  }
  return issued;
}

bool repeats(const Part& part, std::uint32_t i, Picoseconds period) {
  const std::uint32_t twin = part.twin[i];
  if (twin == kNoTwin) return false;
  const TimelineRow &now = part.rows[i], &then = part.rows[twin];
  return then.ready - now.ready == period && then.start - now.start == period &&
         then.transfer - now.transfer == period && then.end - now.end == period && then.waited == now.waited &&
         (part.issued.empty() || part.issued[twin] - part.issued[i] <= period);
}

// Returns whether the twins of the operations that are active in the window follow each other as these do.
bool positions_agree(const Part& part, Picoseconds begin, Picoseconds end) {
  const BoundProgram& program = *part.program;
  for (const std::vector<std::uint32_t>& lane : program.lanes) {
    std::optional<std::uint32_t> shift;
    for (const std::uint32_t i : lane) {
      if (part.rows[i].end <= begin || part.rows[i].ready >= end) continue;
      const std::uint32_t apart = program.ops[part.twin[i]].position - program.ops[i].position;
      if (program.ops[part.twin[i]].lane != program.ops[i].lane || shift.value_or(apart) != apart) return false;
      shift = apart;
    }
  }
  return true;
}

bool has_window(const std::vector<Part>& parts, Picoseconds period) {
  std::vector<std::pair<Picoseconds, Picoseconds>> others;  // when operations without a twin that repeats are active
  Picoseconds last = 0;
  for (const Part& part : parts)
    for (std::uint32_t i = 0; i < part.rows.size(); ++i) {
      last = std::max(last, part.rows[i].end);
      if (!repeats(part, i, period)) others.emplace_back(part.rows[i].ready, part.rows[i].end);
    }
  std::sort(others.begin(), others.end());
  others.emplace_back(last, last);
  Picoseconds free_from = others.front().second;
  for (const auto& [ready, end] : others) {
    if (ready - free_from >= period && std::all_of(parts.begin(), parts.end(), [&, from = free_from](const Part& part) {
          return positions_agree(part, from, from + period);
        }))
      return true;
    free_from = std::max(free_from, end);
  }
  return false;
}

}  // namespace

std::optional<Picoseconds> find_round(const SimInputs& inputs, const Timeline& timeline, std::int64_t micro_batches) {
  std::vector<Part> parts;
  std::size_t first = 0;
  for (std::size_t p = 0; p < inputs.programs.size(); ++p) {
    const BoundProgram& program = inputs.programs[p];
    Part part{&program, std::span(timeline.rows).subspan(first, program.ops.size()), twins_of(program, micro_batches),
              {}};
    if (!inputs.costs.host.issue.empty()) part.issued = issue_times(*inputs.flat[p], part.rows);
    first += program.ops.size();
    parts.push_back(std::move(part));
  }
  // Every distance of the operations that the first rank issues most often may be the period. Late ones come first,
  // because the pipeline is full then.
  const Part& of = parts.front();
  std::vector<std::uint32_t> count(inputs.schedule.operations.size());
  for (std::uint32_t i = 0; i < of.rows.size(); ++i)
    if (of.twin[i] != kNoTwin) ++count[of.program->ops[i].op];
  if (count.empty()) return std::nullopt;
  const auto most = static_cast<OpId>(std::max_element(count.begin(), count.end()) - count.begin());
  std::set<Picoseconds> tried;
  for (std::uint32_t i = static_cast<std::uint32_t>(of.rows.size()); i-- > 0;) {
    if (of.program->ops[i].op != most || of.twin[i] == kNoTwin) continue;
    const Picoseconds period = of.rows[of.twin[i]].end - of.rows[i].end;
    if (period > 0 && tried.insert(period).second && has_window(parts, period)) return period;
  }
  return std::nullopt;
}

}  // namespace stretto::sim
