// Pipelines on an ideal machine. Schedules come from real scenarios.
//
//   1F1B                      (m + P − 1)(F + B)                                Narayanan et al., SOSP 2019
//   interleaved               m(F + B) + (P − 1)(F + B) / V                     Narayanan et al., arXiv 2104.04473
//   uneven stages, messages   longest path over (stage, direction, micro-batch), computed here independently
//   ZB-H1                     m(F + B + W) + (P − 1) max(F, B, F + B − W), m ≥ P    Qi et al., arXiv 2401.10241
//   ZB-V, F = B = W           6mF + (P − 1)F, F of a chunk, m ≥ P                   Qi et al., and arXiv 2405.15362
//   overlap_p2p_comm          messages of T <= min(f, b), f and b of a chunk, V > 1: 2(PV - 1)T more, the way of the
//                             first micro-batch in and of the last one out; the steady state hides them. V = 1, P | m:
//                             2T(m(P - 1) / P + P - 2) more, because 1F1B has no slack in which to hide them
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <tuple>

#include "tests/ideal.hpp"

namespace stretto::testing {
namespace {

struct Stages {
  std::int64_t stages = 2, micro_batches = 4;
  std::int64_t chunks = 1;
  std::string split = "";
  bool overlap = false, batch = true;
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
};
Scenario scenario_of(const Stages& s, std::int64_t layers) {
  Scenario scenario =
      layout_scenario({1, 1, false, s.stages, s.chunks, s.split}, "plain", false, "fp32", 1, s.micro_batches);
  scenario.model.num_layers = layers;
  scenario.parallel.pipeline_schedule = s.schedule;
  scenario.overlap.overlap_p2p_comm = s.overlap;
  scenario.overlap.batch_p2p_comm = s.batch;
  return scenario;
}

// Lengths of a layer's forward and backward, of the embedding and of the head, and of a message.
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

// Longest paths through one step, by recursion over (stage, place in its order). It uses nothing of the engine or the
// lowering: the orders are computed again here, as Megatron-LM's schedules.py has them.

// A pipeline in which stages wait for their messages: 1F1B, one chunk a stage.
class BlockingPipeline {
 public:
  // `forward`, `backward`: times of each stage.
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
    int receiver = 0;  // stage; -1: none
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
    // A message begins when both ends are posted, and all messages of a group must be over before either stage goes on.
    for (const Message& message : item.messages)
      for (const auto& [other, place] : ends_.at(message)) result = std::max(result, end(other, place - 1) + message_);
    return end_[{stage, at}] = std::max(result, item.messages.empty() ? 0 : end(stage, at - 1) + message_);
  }

  std::vector<Time> time_[2];  // [direction][stage]
  Time message_;
  std::vector<std::vector<Item>> orders_;                     // [stage]
  std::map<Message, std::vector<std::pair<int, int>>> ends_;  // (stage, place in its order) of each message's ends
  std::map<std::pair<int, int>, Time> end_;
};

// A pipeline in which messages overlap with compute, one after the other on each link: 1F1B, interleaved with several
// chunks. Buffers are unlimited.
class OverlappedPipeline {
 public:
  // `forward`, `backward`: times of each model chunk, from input to head.
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

  // Micro-batches come in groups of `stages_`, chunk by chunk.
  void write_order(int stage, int m) {
    const int chunks = static_cast<int>(time_[0].size()) / stages_, total = m * chunks;
    const auto unit = [&](bool backward, int k) {
      if (chunks == 1) return Unit{backward, stage, k};
      const int chunk = k / stages_ % chunks, micro_batch = k / (stages_ * chunks) * stages_ + k % stages_;
      return Unit{backward, (backward ? chunks - 1 - chunk : chunk) * stages_ + stage, micro_batch};
    };
    const int after = stages_ - 1 - stage;
    const int warmup = std::min(total, chunks == 1 ? after : 2 * after + (chunks - 1) * stages_);
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

  // Returns the arrival of the unit's input: from the previous chunk, or of the gradient from the next one.
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

  std::vector<Time> time_[2];  // [direction][model chunk]
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
        const Lengths t{1001, 1999};  // a chunk has one layer
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
        for (const int kind : {0, 1, 2}) {  // batched, concurrent, overlapped
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

namespace {

// Simulates with F, B and W of a layer.
sim::SimResult zero_bubble(const Stages& s, std::int64_t layers, Time forward, Time backward, Time weights) {
  Ideal ideal(scenario_of(s, layers));
  ideal.set("fc1.fprop", forward);
  ideal.set("fc1.dgrad", backward);
  ideal.set("fc1.wgrad", weights);
  return ideal.run();
}

}  // namespace

namespace {

struct UnitTimes {
  Time forward, backward, weights;
};
constexpr UnitTimes kTimes[] = {{1000, 1000, 1000}, {1001, 1201, 803},  {1000, 1999, 5},
                                {1000, 2001, 1000}, {1000, 1000, 1500}, {1000, 800, 1200},
                                {500, 1000, 801},   {0, 1000, 700},     {400, 1000, 300}};

}  // namespace

TEST_CASE("ZB-H1: the bubble is (P - 1)(F + B - W)", "[closed]") {
  for (const std::int64_t stages : {2, 3, 4, 6})
    for (const std::int64_t micro_batches : {stages, stages + 1, 2 * stages, 3 * stages + 1})
      for (const auto& [f, b, w] : kTimes) {
        INFO(stages << " stages, " << micro_batches << " micro-batches, F " << f << " B " << b << " W " << w);
        Stages s{stages, micro_batches, 1, "", true};
        s.schedule = PipelineSchedule::zb_h1;
        const Time bubble = std::max({f, b, f + b - w});
        if (w <= std::min(f, b)) CHECK(bubble == f + b - w);  // the paper's formula
        CHECK(zero_bubble(s, 2 * stages, f, b, w).step == 2 * (micro_batches * (f + b + w) + (stages - 1) * bubble));
      }
}

TEST_CASE("ZB-V: the last stage waits for its first input, and no other waits then", "[closed]") {
  for (const std::int64_t stages : {2, 3, 4, 6})
    for (const std::int64_t micro_batches : {stages, stages + 1, 2 * stages, 3 * stages + 1})
      for (const int kind : {0, 1, 2}) {  // batched, concurrent, overlapped
        INFO(stages << " stages, " << micro_batches << " micro-batches, kind " << kind);
        const Stages s{stages, micro_batches, 2, "", kind == 2, kind == 0, PipelineSchedule::zb_v};
        const Time t = 1001;  // a chunk has one layer
        CHECK(zero_bubble(s, 2 * stages, t, t, t).step == 6 * micro_batches * t + (stages - 1) * t);
      }
}

TEST_CASE("DualPipeV: the bubble is (P - 1)(F + B - W) of a chunk, and what B is longer than F", "[closed]") {
  for (const std::int64_t stages : {2, 3, 4, 6})
    for (const std::int64_t micro_batches : {2 * stages, 2 * stages + 1, 3 * stages + 1})
      for (const auto& [f, b, w] : kTimes) {
        if (w > f || f > b) continue;
        INFO(stages << " stages, " << micro_batches << " micro-batches, F " << f << " B " << b << " W " << w);
        const Stages s{stages, micro_batches, 2, "", true, true, PipelineSchedule::dualpipe_v};
        const Time ways = stages - 1, bubble = ways * (f + b - w) + std::max(Time{0}, ways * (b - f) - f);
        CHECK(zero_bubble(s, 2 * stages, f, b, w).step == 2 * micro_batches * (f + b + w) + bubble);
      }
}

TEST_CASE("zero-bubble messages that block cost nothing while F, B and W are as long", "[closed]") {
  for (const std::int64_t stages : {2, 3, 4})
    for (const bool batch : {false, true}) {
      const std::int64_t micro_batches = 2 * stages;
      Stages s{stages, micro_batches, 1, "", false, batch, PipelineSchedule::zb_h1};
      CHECK(zero_bubble(s, stages, 1001, 1001, 1001).step == (3 * micro_batches + stages - 1) * 1001);
      // With unequal lengths blocking messages may cost more than overlapped ones.
      const Time blocking = zero_bubble(s, stages, 1000, 1500, 700).step;
      s.overlap = true;
      CHECK(zero_bubble(s, stages, 1000, 1500, 700).step <= blocking);
      const Stages dual{stages, micro_batches, 2, "", false, batch, PipelineSchedule::dualpipe_v};
      CHECK(zero_bubble(dual, 2 * stages, 1001, 1001, 1001).step == (6 * micro_batches + stages - 1) * 1001);
    }
}

TEST_CASE("zero-bubble steps are shorter than 1F1B's by W, or by 2W", "[closed]") {
  for (const std::int64_t stages : {2, 4, 8}) {
    const Time t = 1000;  // F, B and W of half a stage
    const std::int64_t m = 2 * stages;
    const auto step = [&](std::int64_t chunks, PipelineSchedule schedule) {
      return zero_bubble({stages, m, chunks, "", true, true, schedule}, 2 * stages, t, t, t).step;
    };
    const Time fbw = step(1, PipelineSchedule::one_f_one_b), h1 = step(1, PipelineSchedule::zb_h1),
               v = step(2, PipelineSchedule::zb_v);
    CHECK(fbw - h1 == (stages - 1) * 4 * t);  // without W in the bubble, and with W in it: 2 · 2t
    CHECK(fbw - v == (stages - 1) * 5 * t);
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

}  // namespace stretto::testing
