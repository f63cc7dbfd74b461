#include "model/schedule/order.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace stretto {
namespace {

// Finds the operations that use given storages.
class Search {
 public:
  Search(const Schedule& schedule, std::span<const StorageId> storages)
      : schedule_(schedule), found_(storages.size()), missing_(storages.size()) {
    for (std::size_t i = 0; i < storages.size(); ++i) index_.emplace(storages[i], i);
  }

  bool is_over() const { return missing_ == 0; }
  std::vector<std::optional<OrderPosition>> found() && { return std::move(found_); }

  void visit(const Call& call, OrderPosition at, bool writes_only) {
    const Operation& operation = schedule_.operations[schedule_.blocks[call.block].ops[call.first + at.within]];
    if (schedule_.lanes[operation.lane].kind != LaneKind::compute) return;
    const Coordinates coordinates = coordinates_of(call);
    for (const Access& access : operation.accesses) {
      if (writes_only && access.mode == AccessMode::read) continue;
      const auto wanted = index_.find(storage_of(schedule_, access.view, coordinates));
      if (wanted == index_.end() || found_[wanted->second]) continue;
      found_[wanted->second] = at;
      --missing_;
    }
  }

 private:
  const Schedule& schedule_;
  std::unordered_map<StorageId, std::size_t> index_;
  std::vector<std::optional<OrderPosition>> found_;
  std::size_t missing_;
};

}  // namespace

std::size_t cut_before(Program& program, OrderPosition at) {
  if (at.within == 0) return at.call;
  Call second = program.order[at.call];
  second.first += at.within;
  second.count -= at.within;
  second.waits.clear();
  second.joined = false;
  program.order[at.call].count = at.within;
  program.order.insert(program.order.begin() + static_cast<std::ptrdiff_t>(at.call) + 1, std::move(second));
  return at.call + 1;
}

bool continues(const Call& before, const Call& call) {
  return call.first > 0 && before.block == call.block && before.first + before.count == call.first &&
         before.layer == call.layer && before.micro_batch == call.micro_batch && before.chunk == call.chunk;
}

OpAddress address_of(const Schedule& schedule, const Program& program, OrderPosition at, int steps_ago) {
  const Call& call = program.order[at.call];
  return {schedule.blocks[call.block].ops[call.first + at.within], call.layer, call.micro_batch, call.chunk, steps_ago};
}

Coordinates coordinates_of(const Call& call, Coordinates at) {
  at[Coord::layer] = call.layer;
  at[Coord::micro_batch] = call.micro_batch;
  at[Coord::chunk] = call.chunk;
  at[Coord::slot] = call.slot;
  at[Coord::buffer] = call.buffer;
  return at;
}

StorageId storage_of(const Schedule& schedule, const View& view, const Coordinates& at) {
  const Tensor& tensor = schedule.tensors[view.tensor];
  return tensor.places[static_cast<std::size_t>(view.layer.eval(at) * tensor.slots + view.slot.eval(at))].storage;
}

std::vector<std::optional<OrderPosition>> first_users(const Schedule& schedule, const Program& program,
                                                      std::span<const StorageId> storages, std::size_t begin) {
  Search search(schedule, storages);
  for (std::size_t c = begin; c < program.order.size() && !search.is_over(); ++c)
    for (std::uint32_t i = 0; i < program.order[c].count; ++i) search.visit(program.order[c], {c, i}, false);
  return std::move(search).found();
}

std::vector<std::optional<OrderPosition>> last_writers(const Schedule& schedule, const Program& program,
                                                       std::span<const StorageId> storages, std::size_t end) {
  Search search(schedule, storages);
  for (std::size_t c = end; c-- > 0 && !search.is_over();)
    for (std::uint32_t i = program.order[c].count; i-- > 0;) search.visit(program.order[c], {c, i}, true);
  return std::move(search).found();
}

std::vector<std::size_t> calls_of(const Schedule& schedule, const Program& program, std::span<const OpId> ops) {
  std::unordered_map<OpId, std::size_t> index;
  for (std::size_t i = 0; i < ops.size(); ++i) index.emplace(ops[i], i);
  constexpr std::size_t kNowhere = ~std::size_t{0};
  std::vector<std::size_t> calls(ops.size(), kNowhere);
  std::size_t missing = ops.size();
  // The search runs from the end, where the optimizer's operations are.
  for (std::size_t c = program.order.size(); c-- > 0 && missing > 0;) {
    const Call& call = program.order[c];
    if (call.count != 1) continue;
    const auto wanted = index.find(schedule.blocks[call.block].ops[call.first]);
    if (wanted == index.end()) continue;
    calls[wanted->second] = c;
    --missing;
  }
  for (std::size_t i = 0; i < ops.size(); ++i)
    if (calls[i] == kNowhere) throw std::logic_error("no call consists of " + schedule.operations[ops[i]].name);
  return calls;
}

OrderPosition OrderEdits::normal(OrderPosition at) const {
  return at.call < program_.order.size() && at.within == program_.order[at.call].count ? OrderPosition{at.call + 1, 0}
                                                                                       : at;
}

void OrderEdits::insert(OrderPosition at, std::vector<Call> calls) {
  edits_.push_back({normal(at), std::move(calls), std::nullopt});
}

void OrderEdits::wait(OrderPosition at, const Edge& edge) { edits_.push_back({at, {}, edge}); }

void OrderEdits::apply() {
  std::stable_sort(edits_.begin(), edits_.end(), [](const Edit& a, const Edit& b) { return a.at < b.at; });
  std::sort(removed_.begin(), removed_.end());
  auto removed = removed_.begin();
  std::vector<Call> order;
  order.reserve(program_.order.size() + 2 * edits_.size());
  auto edit = edits_.begin();
  // Applies the edits at one place: [edit, after).
  const auto insert_calls = [&](auto after) {
    for (auto last = after; last != edit;) {
      --last;
      std::move(last->calls.begin(), last->calls.end(), std::back_inserter(order));
    }
  };
  const auto place_ends = [&] {
    return std::find_if(edit, edits_.end(), [&](const Edit& other) { return other.at != edit->at; });
  };
  for (std::size_t c = 0; c < program_.order.size(); ++c) {
    Call rest = std::move(program_.order[c]);
    std::uint32_t cut = 0;  // operations of the call that are in the new order
    while (edit != edits_.end() && edit->at.call == c) {
      const auto after = place_ends();
      if (const std::uint32_t within = edit->at.within; within > cut) {
        Call part = rest;
        part.count = within - cut;
        order.push_back(std::move(part));
        rest.first += within - cut;
        rest.count -= within - cut;
        rest.waits.clear();
        rest.joined = false;
        cut = within;
      }
      insert_calls(after);
      for (; edit != after; ++edit)
        if (edit->edge) rest.waits.push_back(*edit->edge);
    }
    if (removed != removed_.end() && *removed == c)
      ++removed;
    else
      order.push_back(std::move(rest));
  }
  if (edit != edits_.end()) insert_calls(edits_.end());
  program_.order = std::move(order);
  edits_.clear();
  removed_.clear();
}

}  // namespace stretto
