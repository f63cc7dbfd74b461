// On an ideal machine (cores for everybody, nothing slows anything, no overheads) where a few operations cost whole
// picoseconds and all others nothing, the simulated step is what a formula says, to the picosecond. Schedules are
// those that real scenarios give.
//
//   1F1B                      (m + P − 1)(F + B)                                Narayanan et al., SOSP 2019
//   interleaved               m(F + B) + (P − 1)(F + B) / V                     Narayanan et al., arXiv 2104.04473
//   uneven stages, messages   longest path over (stage, direction, micro-batch), written down here once more
//   overlap_p2p_comm          messages of T <= min(f, b), f and b of a chunk, V > 1: 2(PV - 1)T more, the way of the
//                             first micro-batch in and of the last one out; the steady state hides them. V = 1, P | m:
//                             2T(m(P - 1) / P + P - 2) more, because 1F1B has no slack to hide anything in
//   overlap_grad_reduce       f_b = max(r_b, f_{b−1}) + c_b
//   overlap_param_gather      s_k = max(t_k, g_k),  g_{k+1} = s_k + a_{k+1}
//   tp_comm_overlap, bulk     T_dgrad + T_wgrad + max(0, T_AG − T_dgrad) + max(0, T_RS − T_wgrad)
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <tuple>

#include "sim/engine.hpp"
#include "tests/training.hpp"

namespace stretto::testing {
namespace {

using Time = Picoseconds;

// A schedule on the ideal machine. Operations cost nothing unless told.
struct Ideal {
  explicit Ideal(const Scenario& scenario) : schedule(build_schedule(scenario)) {
    costs.compute.resize(schedule.operations.size());
    costs.collective.resize(schedule.operations.size());
    costs.link_bytes_per_s = 1e9;
  }
  // Of computation and of communication alike: the transfer takes as long, from when all are there.
  void set(const std::string& name, Time time) { set(schedule.find_operation(name).value(), time); }
  void set(OpId op, Time time) { costs.compute[op].alone = costs.collective[op].latency = time; }
  sim::SimResult run() const {
    sim::SimResult result = sim::simulate(schedule, costs);
    REQUIRE(result.steady);
    return result;
  }

  Schedule schedule;
  sim::Costs costs;
};

struct Stages {
  std::int64_t stages = 2, micro_batches = 4;
  std::int64_t chunks = 1;
  std::string split = "";
  bool overlap = false, batch = true;
};
Scenario scenario_of(const Stages& s, std::int64_t layers) {
  Scenario scenario =
      layout_scenario({1, 1, false, s.stages, s.chunks, s.split}, "plain", false, "fp32", 1, s.micro_batches);
  scenario.model.num_layers = layers;
  scenario.overlap.overlap_p2p_comm = s.overlap;
  scenario.overlap.batch_p2p_comm = s.batch;
  return scenario;
}

// Of a layer's forward and backward, of the embedding and of the head, and of a message.
struct Lengths {
  Time layer_forward = 0, layer_backward = 0, embedding = 0, head = 0, message = 0;
};
Time simulated(const Stages& s, std::int64_t layers, const Lengths& t) {
  Ideal ideal(scenario_of(s, layers));
  ideal.set("fc1.fprop", t.layer_forward);
  ideal.set("fc1.dgrad", t.layer_backward);
  ideal.set("embedding.fprop", t.embedding);
  ideal.set("lm_head.fprop", t.head);
  for (const char* name : {"pp.send_forward", "pp.recv_forward", "pp.send_backward", "pp.recv_backward"})
    ideal.set(name, t.message);
  return ideal.run().step;
}

// Longest paths through one step, by recursion over (stage, place in its order). Nothing of the engine, nor of the
// lowering: the orders are written down once more, as Megatron-LM's schedules.py has them.

// Stages wait for their messages: 1F1B, one chunk a stage.
class BlockingPipeline {
 public:
  // `forward`, `backward`: of each stage.
  BlockingPipeline(std::vector<Time> forward, std::vector<Time> backward, int micro_batches, Time message)
      : time_{std::move(forward), std::move(backward)}, message_(message), orders_(time_[0].size()) {
    for (int stage = 0; stage < stages(); ++stage) write_order(stage, micro_batches);
  }
  Time step() {
    Time latest = 0;
    for (int stage = 0; stage < stages(); ++stage)
      latest = std::max(latest, end(stage, static_cast<int>(orders_[stage].size()) - 1));
    return latest;
  }

 private:
  enum What { kForward, kBackward, kMessages };
  struct Message {
    int receiver = 0;  // stage; -1: there is none
    What what = kForward;
    int micro_batch = 0;
    auto operator<=>(const Message&) const = default;
  };
  struct Item {
    What what = kMessages;
    std::vector<Message> messages = {};
  };

  int stages() const { return static_cast<int>(orders_.size()); }

  void write_order(int s, int m) {
    std::vector<Item>& order = orders_[s];
    const int above = s + 1 < stages() ? s + 1 : -1, warmup = std::min(stages() - 1 - s, m);
    const auto receive_forward = [&](int i) { return Message{s > 0 ? s : -1, kForward, i}; };
    const auto send_forward = [&](int i) { return Message{above, kForward, i}; };
    const auto receive_backward = [&](int i) { return Message{above >= 0 ? s : -1, kBackward, i}; };
    const auto send_backward = [&](int i) { return Message{s - 1, kBackward, i}; };
    const auto exchange = [&](std::vector<Message> messages) {
      std::erase_if(messages, [](const Message& message) { return message.receiver < 0; });
      for (const Message& message : messages) ends_[message].push_back({s, static_cast<int>(order.size())});
      order.push_back({kMessages, messages});
    };
    for (int i = 0; i < warmup; ++i) {
      exchange({receive_forward(i)});
      order.push_back({kForward});
      exchange({send_forward(i)});
    }
    const int steady = m - warmup;
    if (steady > 0) exchange({receive_forward(warmup)});
    for (int i = 0; i < steady; ++i) {
      order.push_back({kForward});
      exchange({send_forward(warmup + i), receive_backward(i)});
      order.push_back({kBackward});
      if (i + 1 < steady)
        exchange({send_backward(i), receive_forward(warmup + i + 1)});
      else
        exchange({send_backward(i)});
    }
    for (int i = steady; i < m; ++i) {
      exchange({receive_backward(i)});
      order.push_back({kBackward});
      exchange({send_backward(i)});
    }
  }

  Time end(int stage, int at) {
    if (at < 0) return 0;
    const auto [known, fresh] = end_.try_emplace({stage, at}, 0);
    if (!fresh) return known->second;
    const Item& item = orders_[stage][at];
    Time result = end(stage, at - 1);
    if (item.what != kMessages) result += time_[item.what][stage];
    // A message begins when both ends are there, and all of a group must be over before anything goes on.
    for (const Message& message : item.messages)
      for (const auto& [other, place] : ends_.at(message)) result = std::max(result, end(other, place - 1) + message_);
    return end_[{stage, at}] = std::max(result, item.messages.empty() ? 0 : end(stage, at - 1) + message_);
  }

  std::vector<Time> time_[2];  // [direction][stage]
  Time message_;
  std::vector<std::vector<Item>> orders_;                     // [stage]
  std::map<Message, std::vector<std::pair<int, int>>> ends_;  // stage and place in its order
  std::map<std::pair<int, int>, Time> end_;
};

// Messages run beside compute, one after the other on each link: 1F1B, interleaved with several chunks. Buffers are no
// limit.
class OverlappedPipeline {
 public:
  // `forward`, `backward`: of each chunk of the model, from input to head.
  OverlappedPipeline(std::vector<Time> forward, std::vector<Time> backward, int stages, int micro_batches, Time message)
      : time_{std::move(forward), std::move(backward)}, stages_(stages), message_(message) {
    for (int stage = 0; stage < stages; ++stage) write_order(stage, micro_batches);
  }
  Time step() {
    Time latest = 0;
    for (int stage = 0; stage < stages_; ++stage)
      latest = std::max(latest, end(stage, static_cast<int>(orders_[stage].size()) - 1));
    return latest;
  }

 private:
  struct Unit {
    bool backward = false;
    int piece = 0, micro_batch = 0;
    auto operator<=>(const Unit&) const = default;
  };

  // Micro-batches in groups of `stages_`, chunk by chunk.
  void write_order(int stage, int m) {
    const int chunks = static_cast<int>(time_[0].size()) / stages_, total = m * chunks;
    const auto unit = [&](bool backward, int k) {
      if (chunks == 1) return Unit{backward, stage, k};
      const int chunk = k / stages_ % chunks, micro_batch = k / (stages_ * chunks) * stages_ + k % stages_;
      return Unit{backward, (backward ? chunks - 1 - chunk : chunk) * stages_ + stage, micro_batch};
    };
    const int behind = stages_ - 1 - stage;
    const int warmup = std::min(total, chunks == 1 ? behind : 2 * behind + (chunks - 1) * stages_);
    std::vector<Unit>& order = orders_.emplace_back();
    for (int k = 0; k < total + warmup; ++k) {
      if (k < total) order.push_back(unit(false, k));
      if (k >= warmup) order.push_back(unit(true, k - warmup));
    }
    for (int at = 0; at < static_cast<int>(order.size()); ++at) place_[order[at]] = {stage, at};
  }

  Time end(int stage, int at) {
    if (at < 0) return 0;
    const auto [known, fresh] = end_.try_emplace({stage, at}, 0);
    if (!fresh) return known->second;
    const Unit& unit = orders_[stage][at];
    return end_[{stage, at}] =
               std::max(end(stage, at - 1), arrival(unit)) + time_[unit.backward][static_cast<std::size_t>(unit.piece)];
  }

  // Of what the unit needs: from a chunk before it, or of the gradient from the one behind it.
  Time arrival(const Unit& unit) {
    const auto sender = place_.find({unit.backward, unit.piece + (unit.backward ? 1 : -1), unit.micro_batch});
    if (sender == place_.end()) return 0;
    const auto [known, fresh] = arrival_.try_emplace(unit, 0);
    if (!fresh) return known->second;
    const auto [stage, at] = sender->second;
    Time begin = end(stage, at);
    for (int before = at - 1; before >= 0; --before) {
      const Unit& made = orders_[stage][before];
      const Unit receiver{made.backward, made.piece + (made.backward ? -1 : 1), made.micro_batch};
      if (made.backward != unit.backward || !place_.contains(receiver)) continue;
      begin = std::max(begin, arrival(receiver));
      break;
    }
    return arrival_[unit] = begin + message_;
  }

  std::vector<Time> time_[2];  // [direction][piece]
  int stages_;
  Time message_;
  std::vector<std::vector<Unit>> orders_;  // [stage]
  std::map<Unit, std::pair<int, int>> place_;
  std::map<std::pair<int, int>, Time> end_;
  std::map<Unit, Time> arrival_;
};

}  // namespace

TEST_CASE("1F1B: a step is (m + P - 1)(F + B)", "[closed]") {
  for (const std::int64_t stages : {2, 3, 4, 6})
    for (const std::int64_t micro_batches : {1, 2, 3, 5, 8, 12})
      for (const bool overlap : {false, true}) {
        INFO(stages << " stages, " << micro_batches << " micro-batches, overlap " << overlap);
        const Lengths t{1001, 1999};
        CHECK(simulated({stages, micro_batches, 1, "", overlap}, 2 * stages, t) ==
              (micro_batches + stages - 1) * 2 * (t.layer_forward + t.layer_backward));
      }
}

namespace {

void check_interleaved(bool overlap) {
  for (const std::int64_t stages : {2, 3, 4})
    for (const std::int64_t chunks : {2, 3})
      for (const std::int64_t groups : {1, 2, 4}) {
        const std::int64_t micro_batches = groups * stages;
        INFO(stages << " stages, " << chunks << " chunks, " << micro_batches << " micro-batches");
        const Lengths t{1001, 1999};  // of a chunk of one layer
        const Time chunk = t.layer_forward + t.layer_backward;
        CHECK(simulated({stages, micro_batches, chunks, "", overlap}, stages * chunks, t) ==
              micro_batches * chunks * chunk + (stages - 1) * chunk);
      }
}

}  // namespace

TEST_CASE("interleaved: the bubble is (P - 1)(F + B) / V", "[closed]") { check_interleaved(false); }
TEST_CASE("interleaved and overlapped: the bubble is (P - 1)(F + B) / V", "[closed]") { check_interleaved(true); }

TEST_CASE("1F1B with uneven stages and with messages is the longest path", "[closed]") {
  const struct {
    const char* split;
    std::vector<Time> layers;
  } kSplits[] = {
      {"Et|tL", {1, 1}},        {"Ettt|tL", {3, 1}},         {"Et|tttL", {1, 3}},          {"E|tt|ttL", {0, 2, 2}},
      {"Et|ttt|tL", {1, 3, 1}}, {"E|tt|tt|L", {0, 2, 2, 0}}, {"Ett|t|tt|tL", {2, 1, 2, 1}}};
  for (const auto& [split, layers] : kSplits)
    for (const std::int64_t micro_batches : {1, 2, 5, 8})
      for (const Time message : {0, 1, 700, 5003})
        for (const int kind : {0, 1, 2}) {  // batched, side by side, overlapped
          INFO(split << ", " << micro_batches << " micro-batches, messages of " << message << ", kind " << kind);
          const Lengths t{1001, 1999, 333, 4001, message};
          std::vector<Time> forward, backward;
          Time all = 0;
          for (const Time of_stage : layers) {
            forward.push_back(of_stage * t.layer_forward);
            backward.push_back(of_stage * t.layer_backward);
            all += of_stage;
          }
          forward.front() += t.embedding;
          forward.back() += t.head;
          const Stages s{static_cast<std::int64_t>(layers.size()), micro_batches, 1, split, kind == 2, kind == 0};
          const int m = static_cast<int>(micro_batches);
          CHECK(simulated(s, all, t) ==
                (kind == 2 ? OverlappedPipeline(forward, backward, static_cast<int>(s.stages), m, message).step()
                           : BlockingPipeline(forward, backward, m, message).step()));
        }
}

TEST_CASE("overlap_p2p_comm: interleaved, messages shorter than a chunk cost the way in and out only", "[closed]") {
  for (const std::int64_t stages : {2, 3, 4})
    for (const std::int64_t chunks : {2, 3})
      for (const std::int64_t groups : {1, 2, 5})
        for (const Time message : {0, 1, 500, 1000}) {
          INFO(stages << " stages, " << chunks << " chunks, " << groups << " groups, messages of " << message);
          const Lengths t{1000, 2000, 0, 0, message};
          CHECK(simulated({stages, groups * stages, chunks, "", true}, stages * chunks, t) ==
                (groups * stages * chunks + stages - 1) * (t.layer_forward + t.layer_backward) +
                    2 * (stages * chunks - 1) * message);
        }
}

TEST_CASE("overlap_p2p_comm: 1F1B has no slack to hide a message in", "[closed]") {
  for (const std::int64_t stages : {2, 3, 4, 5})
    for (const std::int64_t groups : {1, 2, 5})
      for (const Time message : {0, 1, 500, 1000}) {
        INFO(stages << " stages, " << groups << " times as many micro-batches, messages of " << message);
        const Lengths t{1000, 2000, 0, 0, message};
        CHECK(simulated({stages, groups * stages, 1, "", true}, stages, t) ==
              (groups * stages + stages - 1) * (t.layer_forward + t.layer_backward) +
                  2 * message * (groups * (stages - 1) + stages - 2));
      }
}

TEST_CASE("overlap_p2p_comm: interleaved with longer messages is the longest path", "[closed]") {
  for (const int stages : {2, 3, 4})
    for (const int chunks : {2, 3})
      for (const int groups : {1, 2, 5})
        for (const Time message : {1300, 1700, 2000, 2600}) {
          INFO(stages << " stages, " << chunks << " chunks, " << groups << " groups, messages of " << message);
          const Lengths t{1000, 2000, 0, 0, message};
          const std::vector<Time> forward(static_cast<std::size_t>(stages * chunks), t.layer_forward),
              backward(forward.size(), t.layer_backward);
          const Time step = simulated({stages, groups * stages, chunks, "", true}, stages * chunks, t),
                     path = OverlappedPipeline(forward, backward, stages, groups * stages, message).step();
          // Messages that take longer than any chunk may have to wait for a buffer as well.
          if (message <= t.layer_backward)
            CHECK(step == path);
          else
            CHECK(step >= path);
        }
}

namespace {

// Rows of one rank's last step, and what they are of.
struct Rows {
  explicit Rows(const Ideal& ideal) : schedule(ideal.schedule), result(ideal.run()) {}
  const BoundOp& op(const TimelineRow& row) const { return result.programs[0].ops[row.op]; }
  const TimelineRow& of(OpId id) const {
    for (const TimelineRow& row : result.timeline.rows)
      if (op(row).op == id) return row;
    throw std::logic_error("no row of " + schedule.operations[id].name);
  }
  const TimelineRow& of(const std::string& name) const { return of(schedule.find_operation(name).value()); }
  // Rows of the compute lane that use a storage, of phases up to `last`, in order.
  std::vector<const TimelineRow*> users(StorageId storage, AccessMode mode, Phase last) const {
    std::vector<const TimelineRow*> rows;
    for (const TimelineRow& row : result.timeline.rows) {
      const Operation& operation = schedule.operations[op(row).op];
      if (operation.lane != 0 || operation.phase > last) continue;
      for (std::size_t a = 0; a < operation.accesses.size(); ++a)
        if (operation.accesses[a].mode == mode && resolve(schedule, result.programs[0], op(row), a).storage == storage)
          rows.push_back(&row);
    }
    std::sort(rows.begin(), rows.end(), [](auto* a, auto* b) { return a->start < b->start; });
    return rows;
  }
  StorageId storage(const std::string& tensor) const {
    return schedule.tensors[schedule.find_tensor(tensor).value()].places[0].storage;
  }

  const Schedule& schedule;
  sim::SimResult result;
};

// Every compute operation costs something else, and so does every bucket.
Ideal with_buckets(const std::string& mode, std::int64_t bucket_size) {
  Scenario scenario = tiny_scenario(4, mode, "fp32", 8);
  scenario.model.num_layers = 3;
  scenario.cluster.ranks_per_device = 1;
  scenario.overlap.bucket_size = bucket_size;
  Ideal ideal(scenario);
  for (OpId op = 0; op < ideal.schedule.operations.size(); ++op)
    if (!is_communication(ideal.schedule.operations[op].work)) ideal.set(op, 1000 + 37 * (op % 11));
  return ideal;
}

}  // namespace

TEST_CASE("overlap_grad_reduce: f_b = max(r_b, f_(b-1)) + c_b", "[closed]") {
  for (const Time transfer : {100, 5'000, 40'000}) {
    Ideal ideal = with_buckets("overlap_grad_reduce", 500);
    std::vector<Time> takes;
    while (ideal.schedule.find_operation("dp.reduce_scatter.b" + std::to_string(takes.size()))) {
      takes.push_back(transfer + 11 * static_cast<Time>(takes.size() % 3));
      ideal.set("dp.reduce_scatter.b" + std::to_string(takes.size() - 1), takes.back());
    }
    REQUIRE(takes.size() > 4);
    const Rows rows(ideal);
    Time done = 0;
    for (std::size_t b = 0; b < takes.size(); ++b) {
      const std::string number = ".b" + std::to_string(b);
      const auto gradients = rows.users(rows.storage("bucket.gradient" + number), AccessMode::accumulate, Phase::wgrad);
      REQUIRE_FALSE(gradients.empty());
      done = std::max(gradients.back()->end, done) + takes[b];
      INFO("bucket " << b << ", transfers of " << transfer);
      CHECK(rows.of("dp.reduce_scatter" + number).end == done);
    }
    // What comes then waits for the last bucket.
    CHECK(rows.of("norm.sum_squares.b" + std::to_string(takes.size() - 1)).start >= done);
  }
}

TEST_CASE("overlap_param_gather: s_k = max(t_k, g_k), g_(k+1) = s_k + a_(k+1)", "[closed]") {
  for (const Time transfer : {100, 5'000, 40'000}) {
    Ideal ideal = with_buckets("overlap_param_gather", 500);
    std::size_t count = 0;
    for (; ideal.schedule.find_operation("dp.all_gather.b" + std::to_string(count)); ++count)
      ideal.set("dp.all_gather.b" + std::to_string(count), transfer + 11 * static_cast<Time>(count % 3));
    REQUIRE(count > 4);
    const Rows rows(ideal);
    // Buckets by first use; those that one operation uses first are released together.
    std::map<std::pair<Time, const TimelineRow*>, std::vector<std::size_t>> first_uses;
    for (std::size_t b = 0; b < count; ++b) {
      const auto users =
          rows.users(rows.storage("bucket.parameter.b" + std::to_string(b)), AccessMode::read, Phase::forward);
      REQUIRE_FALSE(users.empty());
      first_uses[{users.front()->start, users.front()}].push_back(b);
    }
    REQUIRE(first_uses.size() > 3);
    Time gathered = 0, released = 0;
    bool is_first = true;
    for (const auto& [use, buckets] : first_uses) {
      const TimelineRow& user = *use.second;
      INFO("first used by " << rows.schedule.operations[rows.op(user).op].name << ", transfers of " << transfer);
      for (const std::size_t b : buckets) {
        const TimelineRow& gather = rows.of("dp.all_gather.b" + std::to_string(b));
        const Time takes = transfer + 11 * static_cast<Time>(b % 3);
        if (is_first)
          gathered = gather.end;  // nothing of this step is before it
        else
          gathered = std::max(released, gathered) + takes;
        CHECK(gather.end == gathered);
        is_first = false;
      }
      // t_k: when the compute lane comes to the first user.
      const std::uint32_t position = rows.op(user).position;
      Time reached = rows.result.timeline.step_begin;
      for (const TimelineRow& row : rows.result.timeline.rows)
        if (rows.op(row).lane == 0 && rows.op(row).position + 1 == position) reached = row.end;
      CHECK(user.start == std::max(reached, gathered));
      released = user.start;
    }
  }
}

TEST_CASE("tp_comm_overlap, bulk: each transfer is exposed for what it takes longer than its GEMM", "[closed]") {
  constexpr Time kDgrad = 2000, kWgrad = 3000;
  for (const Time gather : {0, 1500, 2000, 2700})
    for (const Time scatter : {0, 2900, 3000, 4100})
      for (const bool beside_dgrad : {false, true})
        for (const bool beside_wgrad : {false, true}) {
          Scenario scenario = layout_scenario({1, 2, true}, "tp_comm_overlap", false, "fp32", 1, 3);
          scenario.overlap.tp_comm_overlap_ag = scenario.overlap.tp_comm_overlap_rs = false;
          scenario.overlap.tp_comm_bulk_dgrad = beside_dgrad;
          scenario.overlap.tp_comm_bulk_wgrad = beside_wgrad;
          Ideal ideal(scenario);
          ideal.set("fc1.dgrad", kDgrad);
          ideal.set("fc1.wgrad", kWgrad);
          ideal.set("fc1.all_gather_wgrad", gather);
          ideal.set("fc1.dgrad.reduce_scatter", scatter);
          const Time exposed_gather = beside_dgrad ? std::max<Time>(0, gather - kDgrad) : gather,
                     exposed_scatter = beside_wgrad ? std::max<Time>(0, scatter - kWgrad) : scatter;
          INFO("all-gather " << gather << " ps, reduce-scatter " << scatter << " ps, bulk dgrad " << beside_dgrad
                             << ", bulk wgrad " << beside_wgrad);
          CHECK(ideal.run().step == scenario.model.num_layers * scenario.num_microbatches() *
                                        (kDgrad + kWgrad + exposed_gather + exposed_scatter));
        }
}

}  // namespace stretto::testing
