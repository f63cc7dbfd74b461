#include "page/window.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "report/critical_path.hpp"
#include "report/prediction.hpp"
#include "report/traffic.hpp"

namespace stretto::page {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostWaiting = 3;

// An operation's name for readers: without the pass, which its colour says, and without the number of its piece.
struct Title {
  std::string text;
  Json piece = nullptr;
};

Title title_of(const std::string& name) {
  Title title;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t dot = std::min(name.find('.', at), name.size());
    std::string word = name.substr(at, dot - at);
    at = dot + 1;
    const bool is_number =
        !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    if (is_number && word.size() < 7) {
      title.piece = std::stoi(word);
      continue;
    }
    if (word == "fprop" || word == "dgrad" || word == "wgrad" || word == "backward") continue;
    std::replace(word.begin(), word.end(), '_', '-');
    title.text += (title.text.empty() ? "" : " ") + word;
  }
  return title;
}

class Window {
 public:
  Window(DrawnStep& drawn, const WindowRequest& request)
      : drawn_(drawn),
        request_(request),
        schedule_(drawn.step().schedule),
        at_(drawn.program_of(request.gpu)),
        program_(drawn.program(at_)),
        begin_(drawn.step().result.timeline.step_begin) {
    if (request.to <= request.from) throw input_error("to: expected a time after `from`");
  }

  Json json() {
    collect();
    find_waiting();
    Json lost = lost_json();  // also sums up what of each transfer is exposed
    return {{"gpu", request_.gpu},
            {"role", schedule_.programs[program_.role].role},
            {"step_ps", drawn_.step().result.step},
            {"from", request_.from},
            {"to", request_.to},
            {"lanes", lanes_json()},
            {"operations", operations_json()},  // before the kinds, which it collects
            {"kinds", std::move(kinds_)},
            {"labels", labels_json()},
            {"more", more_},
            {"lost", std::move(lost)},
            {"groups", groups_json()}};
  }

 private:
  Picoseconds end_of(const TimelineRow& row) const { return row.moved() - begin_; }

  void collect() {
    for (const TimelineRow& row : drawn_.rows_of(at_))
      if (row.start - begin_ < request_.to && end_of(row) > request_.from) rows_.push_back(&row);
    std::stable_sort(rows_.begin(), rows_.end(),
                     [](const TimelineRow* a, const TimelineRow* b) { return a->start < b->start; });
    const auto most = static_cast<std::size_t>(std::max<std::int64_t>(request_.most, 0));
    if (rows_.size() > most) {
      more_ = static_cast<std::int64_t>(rows_.size() - most);
      rows_.resize(most);
    }
    index_.assign(program_.ops.size(), -1);
    for (std::size_t i = 0; i < rows_.size(); ++i) index_[rows_[i]->op] = static_cast<std::int64_t>(i);
    exposed_.assign(rows_.size(), 0);
    waiting_.resize(rows_.size());
  }

  void find_waiting() {
    for (const BoundOp& op : program_.ops)
      for (std::uint32_t w = op.wait_begin; w < op.wait_end; ++w) {
        const BoundWait& wait = program_.waits[w];
        if (wait.steps_ago > 0 || wait.kind != EdgeKind::finish_start || index_[wait.op] < 0) continue;
        std::vector<OpId>& waiting = waiting_[static_cast<std::size_t>(index_[wait.op])];
        if (waiting.size() < kMostWaiting && std::find(waiting.begin(), waiting.end(), op.op) == waiting.end())
          waiting.push_back(op.op);
      }
  }

  Json lost_json() {
    Json list = Json::array();
    const std::size_t communicators = schedule_.communicators.size();
    for (const LostTime& one : drawn_.lost(at_)) {
      const bool is_exposed = one.cause == LossCause::exposed;
      const std::int64_t op = is_exposed ? index_[one.op] : -1;
      if (op >= 0) exposed_[static_cast<std::size_t>(op)] += one.end - one.begin;
      if (one.begin >= request_.to || one.end <= request_.from) continue;
      const std::size_t cause = is_exposed ? one.communicator : communicators + static_cast<std::size_t>(one.cause) - 1;
      list.push_back({one.begin, one.end, cause, op});
    }
    return list;
  }

  Json lanes_json() const {
    Json lanes = Json::array();
    for (LaneId lane = 0; lane < schedule_.lanes.size(); ++lane) {
      Json axis = nullptr;
      if (!program_.lanes[lane].empty())
        if (const Work& work = program_.work_of(program_.lanes[lane].front()); is_communication(work))
          axis = name_of(axis_of(schedule_.communicators[communicator_of(work)].axes));
      lanes.push_back({{"name", schedule_.lanes[lane].name},
                       {"is_compute", schedule_.lanes[lane].kind == LaneKind::compute},
                       {"axis", std::move(axis)}});
    }
    return lanes;
  }

  // Returns the index of a template in `kinds`.
  std::size_t kind_of(OpId op) {
    const auto found = kind_of_.find(op);
    if (found != kind_of_.end()) return found->second;
    const Operation& operation = schedule_.operations[op];
    Title title = title_of(operation.name);
    Json group = nullptr;
    if (is_communication(operation.work)) group = group_of(communicator_of(operation.work));
    const char* phase = operation.is_recomputed() ? "recompute" : name_of(operation.phase);
    kinds_.push_back({{"name", operation.name},
                      {"title", std::move(title.text)},
                      {"piece", std::move(title.piece)},
                      {"phase", phase},
                      {"work", describe(program_.works[op])},
                      {"group", std::move(group)}});
    return kind_of_[op] = kinds_.size() - 1;
  }

  std::size_t group_of(std::uint32_t communicator) {
    const auto found = std::find(groups_.begin(), groups_.end(), communicator);
    const auto index = static_cast<std::size_t>(found - groups_.begin());
    if (found == groups_.end()) groups_.push_back(communicator);
    return index;
  }

  std::set<std::uint32_t> critical() const {
    std::set<std::uint32_t> ops;
    if (!request_.wants_critical) return ops;
    for (const TimelineRow& row : critical_path(drawn_.step().result, drawn_.step().result.timeline).rows)
      if (row.rank == program_.rank) ops.insert(row.op);
    return ops;
  }

  Json operations_json() {
    Json list = Json::array();
    const std::set<std::uint32_t> critical = this->critical();
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const TimelineRow& row = *rows_[i];
      const BoundOp& op = program_.ops[row.op];
      const Operation& operation = schedule_.operations[op.op];
      const bool sends = is_communication(operation.work) && !operation.accesses.empty();
      Json waiting = Json::array();
      for (const OpId one : waiting_[i]) waiting.push_back(kind_of(one));
      list.push_back({kind_of(op.op), op.lane, row.start - begin_, row.transfer - begin_, end_of(row), op.micro_batch,
                      op.chunk, sends ? sent_bytes(schedule_, operation) : 0, exposed_[i], std::move(waiting),
                      critical.count(row.op) > 0});
    }
    return list;
  }

  Json labels_json() const {
    Json labels = Json::array();
    for (const TimelineRow* row : rows_) labels.push_back(label(schedule_, program_.ops[row->op]));
    return labels;
  }

  Json groups_json() const {
    Json groups = Json::array();
    for (const std::uint32_t c : groups_) {
      const Communicator& communicator = schedule_.communicators[c];
      Json group = link_json(drawn_, communicator);
      group["communicator"] = communicator.name;
      group["axis"] = name_of(axis_of(communicator.axes));
      group["gpus"] = schedule_.mesh.members(request_.gpu, communicator.axes);
      groups.push_back(std::move(group));
    }
    return groups;
  }

  DrawnStep& drawn_;
  const WindowRequest& request_;
  const Schedule& schedule_;
  const std::size_t at_;
  const BoundProgram& program_;
  const Picoseconds begin_;
  std::vector<const TimelineRow*> rows_;
  std::vector<std::int64_t> index_;         // [op] → index into rows_, -1: not in the window
  std::vector<Picoseconds> exposed_;        // [row]
  std::vector<std::vector<OpId>> waiting_;  // [row]
  std::map<OpId, std::size_t> kind_of_;
  std::vector<std::uint32_t> groups_;
  Json kinds_ = Json::array();
  std::int64_t more_ = 0;
};

}  // namespace

Json window_json(DrawnStep& drawn, const WindowRequest& request) { return Window(drawn, request).json(); }

}  // namespace stretto::page
