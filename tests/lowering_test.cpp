// Tests of the schedules that lowering and the overlap rewrites build: all verify, and each mode has its edges.
#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "model/schedule/bind.hpp"
#include "model/schedule/json.hpp"
#include "model/verify/dataflow.hpp"
#include "tests/training.hpp"

namespace stretto::testing {
namespace {

constexpr std::uint32_t kNowhere = ~0u;

// One rank's bound operations, by name and by accessed storage.
struct Built {
  Schedule schedule;
  BoundProgram program;

  explicit Built(const Scenario& scenario) : schedule(build_schedule(scenario)), program(bind(schedule, 0)) {}

  const Operation& operation(std::uint32_t op) const { return schedule.operations[program.ops[op].op]; }
  std::uint32_t find(const std::string& name) const {
    for (std::uint32_t i = 0; i < program.ops.size(); ++i)
      if (operation(i).name == name) return i;
    return kNowhere;
  }
  StorageId storage(const std::string& name) const {
    for (StorageId s = 0; s < schedule.storages.size(); ++s)
      if (schedule.storages[s].name == name) return s;
    return kNowhere;
  }
  bool touches(std::uint32_t op, StorageId storage, Phase phase) const {
    if (operation(op).phase != phase) return false;
    for (std::size_t a = 0; a < operation(op).accesses.size(); ++a)
      if (resolve(schedule, program, program.ops[op], a).storage == storage) return true;
    return false;
  }
  std::uint32_t first_use(StorageId parameters) const {
    for (std::uint32_t i = 0; i < program.ops.size(); ++i)
      if (touches(i, parameters, Phase::forward)) return i;
    return kNowhere;
  }
  std::uint32_t last_wgrad(StorageId gradients) const {
    for (auto i = static_cast<std::uint32_t>(program.ops.size()); i-- > 0;)
      if (touches(i, gradients, Phase::wgrad)) return i;
    return kNowhere;
  }
  bool waits(std::uint32_t op, EdgeKind kind, std::uint32_t on, int steps_ago = 0) const {
    const BoundOp& bound = program.ops[op];
    return std::any_of(program.waits.begin() + bound.wait_begin, program.waits.begin() + bound.wait_end,
                       [&](const BoundWait& w) { return w.kind == kind && w.op == on && w.steps_ago == steps_ago; });
  }
  // Returns whether the operation, or an earlier one on its lane, waits for `on` or for a later one on that one's lane.
  bool comes_after(std::uint32_t op, std::uint32_t on, int steps_ago = 0) const {
    const BoundOp &bound = program.ops[op], &other = program.ops[on];
    const auto& lane = program.lanes[bound.lane];
    return std::any_of(lane.begin(), lane.begin() + bound.position + 1, [&](std::uint32_t before) {
      const BoundOp& b = program.ops[before];
      return std::any_of(program.waits.begin() + b.wait_begin, program.waits.begin() + b.wait_end,
                         [&](const BoundWait& w) {
                           return w.kind == EdgeKind::finish_start && w.lane == other.lane &&
                                  w.position >= other.position && w.steps_ago == steps_ago;
                         });
    });
  }
  std::size_t wait_count(std::uint32_t op) const { return program.ops[op].wait_end - program.ops[op].wait_begin; }
  std::vector<std::string> names_on(const std::string& lane) const {
    std::vector<std::string> names;
    for (std::size_t l = 0; l < schedule.lanes.size(); ++l)
      if (schedule.lanes[l].name == lane)
        for (const std::uint32_t op : program.lanes[l]) names.push_back(operation(op).name);
    return names;
  }
  std::size_t buckets() const {
    std::size_t count = 0;
    while (storage("parameters.b" + std::to_string(count)) != kNowhere) ++count;
    return count;
  }
};

std::string numbered(const std::string& name, std::size_t b) { return name + ".b" + std::to_string(b); }

}  // namespace

TEST_CASE("every mode verifies, with its memory plan, whatever the buckets, ranks and micro-batches") {
  Cases cases;
  for (const OverlapMode& mode : data_parallel_modes())
    for (const std::int64_t ranks : {1, 2, 3, 5, 8})
      for (const std::int64_t micro_batches : {1, 2, 3})
        for (const std::int64_t bucket_size : {1, 333, 1500, 1'000'000'000})
          for (const bool fp32 : {true, false}) {
            // Without overlap_grad_reduce there is one bucket.
            if ((mode.name == "plain" && bucket_size != 333) || !cases.takes_next()) continue;
            const char* precision = micro_batches == 2 ? "fp64" : "fp32";
            INFO(mode.name << ", " << ranks << " ranks, " << micro_batches << " micro-batches, buckets of "
                           << bucket_size << ", " << precision << ", reduced in " << (fp32 ? "fp32" : "bf16"));
            Scenario scenario = tiny_scenario(ranks, mode.name, precision, ranks * micro_batches);
            scenario.overlap.bucket_size = bucket_size;
            scenario.overlap.grad_reduce_in_fp32 = fp32;
            for (const Scenario& styled : {scenario, with_llama(scenario)}) {
              const Schedule schedule = build_schedule(styled);
              const MemoryPlan plan = plan_memory(schedule);
              for (const Violation& violation : verify(schedule, &plan)) FAIL_CHECK(violation.message);
              for (const RolePlan& role : plan.roles) CHECK(role.bytes <= role.bytes_without_sharing);
            }
          }
}

TEST_CASE("every combination of styles verifies") {
  Cases cases;
  for (int bits = 0; bits < 128; ++bits) {
    if (!cases.takes_next()) continue;
    INFO("combination " << bits);
    Scenario scenario = tiny_scenario(2, "overlap_param_gather", "fp32", 4);
    Transformer& model = scenario.model;
    model.hidden_size = 24, model.num_attention_heads = 6;
    const Transformer llama = with_llama(scenario).model;
    if (bits & 1) model.normalization = llama.normalization;
    if (bits & 2) model.swiglu = true;
    if (bits & 4) model.position_embedding_type = llama.position_embedding_type;
    if (bits & 8) model.num_query_groups = llama.num_query_groups;
    if (bits & 16) model.add_bias_linear = false;
    if (bits & 32) model.untie_embeddings_and_output_weights = true;
    if (bits & 64) scenario.training.attention_backend = AttentionBackend::unfused;
    const Schedule schedule = build_schedule(scenario);
    const MemoryPlan plan = plan_memory(schedule);
    for (const Violation& violation : verify(schedule, &plan)) FAIL_CHECK(violation.message);
    for (const StateBucket& bucket : schedule.state.buckets) CHECK(bucket.window(StatePart::gradients));
  }
}

TEST_CASE("the state map has every element of the model, and AdamW updates what a rank owns") {
  for (const Layout& layout : {Layout{3}, Layout{2, 3, true}, Layout{2, 2, true, 2, 1, "Ett|ttttL"}})
    for (const char* precision : {"fp32", "bf16"})
      for (const bool llama : {false, true}) {
        INFO(layout.text() << ", " << precision << (llama ? ", llama" : ", gpt"));
        const Scenario scenario = layout_scenario(layout, "overlap_grad_reduce", llama, precision);
        const Schedule schedule = build_schedule(scenario);
        const StateMap& state = schedule.state;
        std::vector<std::string> names, expected;
        for (const Parameter& p : parameters(scenario.model)) expected.push_back(p.full_name());
        for (std::size_t first = 0; first < state.pieces.size(); first += state.copies(first).size()) {
          names.push_back(state.full_name(state.pieces[first]));
          for (const StatePiece& piece : state.copies(first))
            for (const StatePart part : {StatePart::parameters, StatePart::gradients, StatePart::adam_m,
                                         StatePart::adam_v, StatePart::master}) {
              if (part == StatePart::master && std::string(precision) == "fp32") continue;
              std::vector<int> owners(static_cast<std::size_t>(state.array_of(piece).elements()));
              for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank)
                for (const StateRun& run : runs_of(schedule, piece, part, rank, Share::owned))
                  for (std::int64_t i = 0; i < run.elements; ++i) ++owners[static_cast<std::size_t>(run.begin + i)];
              const bool is_cut = state.array_of(piece).cuts.front().begin.depends_on(Coord::tp);
              CHECK(owners == std::vector<int>(owners.size(), is_cut ? 1 : static_cast<int>(layout.tp)));
            }
        }
        CHECK(names == expected);

        for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank) {
          const BoundProgram program = bind(schedule, rank);
          std::size_t left = 0;  // buckets that are not updated
          for (const StateBucket& bucket : state.buckets)
            left += bucket.program == schedule.role_of(program.coordinates) ? 1 : 0;
          for (const BoundOp& op : program.ops) {
            const auto* adamw = std::get_if<AdamW>(&schedule.operations[op.op].work);
            if (adamw == nullptr) continue;
            --left;
            const auto bucket = std::find_if(state.buckets.begin(), state.buckets.end(), [&](const StateBucket& b) {
              return b.window(StatePart::parameters)->storage == resolve(schedule, program, op, 3).storage;
            });
            REQUIRE(bucket != state.buckets.end());
            const std::pair<std::size_t, StatePart> operands[] = {{0, StatePart::gradients},
                                                                  {3, StatePart::parameters},
                                                                  {4, StatePart::adam_m},
                                                                  {5, StatePart::adam_v},
                                                                  {6, StatePart::master}};
            for (const auto& [access, part] : operands) {
              if (part == StatePart::master && !adamw->master) continue;
              const BoundView view = resolve(schedule, program, op, access);
              CHECK(view.storage == bucket->window(part)->storage);
              CHECK(view.cols == bucket->own_elements);
              CHECK(view.offset + bucket->window(part)->begin.eval(program.coordinates) ==
                    bucket->own_begin.eval(program.coordinates));
            }
          }
          CHECK(left == 0);
        }
      }
}

TEST_CASE("Llama's style: what is in a layer") {
  const Built built(with_llama(tiny_scenario(1, "plain", "fp32", 1)));
  std::vector<std::string> layer;
  for (const Block& block : built.schedule.blocks)
    if (block.name.starts_with("layer."))
      for (const OpId op : block.ops) layer.push_back(built.schedule.operations[op].name);
  CHECK(layer == std::vector<std::string>{"ln_1.fprop",      "qkv.fprop",        "rope.fprop",       "attention.fprop",
                                          "proj.fprop",      "residual_1.fprop", "ln_2.fprop",       "fc1.fprop",
                                          "swiglu.fprop",    "fc2.fprop",        "residual_2.fprop", "fc2.dgrad",
                                          "fc2.wgrad",       "swiglu.dgrad",     "fc1.dgrad",        "fc1.wgrad",
                                          "ln_2.wgrad",      "ln_2.dgrad",       "proj.dgrad",       "proj.wgrad",
                                          "attention.dgrad", "rope.dgrad",       "qkv.dgrad",        "qkv.wgrad",
                                          "ln_1.wgrad",      "ln_1.dgrad"});
  CHECK_FALSE(built.schedule.find_tensor("wpe.weight"));
  CHECK_FALSE(built.schedule.find_tensor("qkv.bias"));
  const Operation& head = built.operation(built.find("lm_head.fprop"));
  CHECK(built.schedule.tensors[head.accesses[1].view.tensor].name == "lm_head.weight");
}

TEST_CASE("every mode computes what the plain schedule computes") {
  Cases cases;
  for (const OverlapMode& mode : data_parallel_modes())
    for (const std::int64_t ranks : {1, 2, 3})
      for (const std::int64_t bucket_size : {1, 300, 1500})
        for (const bool fp32 : {true, false}) {
          if (!cases.takes_next()) continue;
          INFO(mode.name << ", " << ranks << " ranks, buckets of " << bucket_size);
          const auto build = [&](const std::string& name, bool llama) {
            Scenario scenario = tiny_scenario(ranks, name, "fp32", 2 * ranks);
            scenario.overlap.bucket_size = bucket_size;
            scenario.overlap.grad_reduce_in_fp32 = fp32;
            return build_schedule(llama ? with_llama(scenario) : scenario);
          };
          for (const bool llama : {false, true})
            for (const std::string& line : verify_equivalent(build("plain", llama), build(mode.name, llama)))
              FAIL_CHECK(line);
        }
}

TEST_CASE("buckets hold every parameter once, and one bucket holds all without overlap_grad_reduce") {
  for (const OverlapMode& mode : data_parallel_modes())
    for (const std::int64_t ranks : {1, 2, 5}) {
      INFO(mode.name << ", " << ranks << " ranks");
      const Scenario scenario = tiny_scenario(ranks, mode.name, "fp32", ranks);
      const Lowered lowered = lower_plain(scenario);
      std::int64_t elements = 0;
      for (const Bucket& bucket : lowered.buckets) {
        for (const BucketEntry& entry : bucket.entries)
          elements += parameters(scenario.model)[entry.parameter].elements();
        CHECK(bucket.elements % ranks == 0);
      }
      CHECK(elements == parameter_count(scenario.model));
      if (mode.name == "plain" || ranks == 1)
        CHECK(lowered.buckets.size() == 1);
      else
        CHECK(lowered.buckets.size() > 3);
      CHECK(lowered.bucket_ops.size() == lowered.buckets.size());
    }
}

TEST_CASE("bucket size 1 gives every parameter a bucket of its own") {
  Scenario scenario = tiny_scenario(2, "overlap_param_gather", "fp32", 2);
  scenario.overlap.bucket_size = 1;
  CHECK(Built(scenario).buckets() == parameters(scenario.model).size());
  scenario.overlap.bucket_size = 0;  // Megatron's default is far larger than this model
  CHECK(Built(scenario).buckets() == 1);
}

TEST_CASE("plain: nothing overlaps") {
  const Built built(tiny_scenario(3, "plain", "fp32", 6));
  CHECK(built.names_on("dp") ==
        std::vector<std::string>{"dp.reduce_scatter.b0", "dp.all_reduce_metrics", "dp.all_gather.b0"});
  const std::uint32_t scatter = built.find("dp.reduce_scatter.b0"), gather = built.find("dp.all_gather.b0");
  const std::uint32_t last =
      built.find("embedding.wgrad") == kNowhere ? kNowhere : built.last_wgrad(built.storage("gradients.b0"));
  CHECK(built.operation(last).name == "embedding.wgrad");
  CHECK(built.program.ops[last].micro_batch == 1);
  CHECK(built.waits(scatter, EdgeKind::finish_start, last));
  CHECK(built.waits(built.find("norm.sum_squares.b0"), EdgeKind::finish_start, scatter));
  CHECK(built.waits(built.find("adamw.b0"), EdgeKind::finish_start, built.find("dp.all_reduce_metrics")));
  CHECK(built.waits(gather, EdgeKind::finish_start, built.find("adamw.b0")));
  CHECK(built.waits(0, EdgeKind::finish_start, gather, 1));  // the next step waits for all parameters
}

TEST_CASE("overlap_grad_reduce: a bucket is reduced once its last gradient of the last micro-batch is complete") {
  for (const bool fp32 : {true, false})
    for (const std::int64_t bucket_size : {1, 300, 1500}) {
      INFO("buckets of " << bucket_size << (fp32 ? "" : ", reduced in bf16"));
      Scenario scenario = tiny_scenario(2, "overlap_grad_reduce", "fp32", 6);
      scenario.overlap.bucket_size = bucket_size;
      scenario.overlap.grad_reduce_in_fp32 = fp32;
      const Built built(scenario);
      const std::size_t buckets = built.buckets();
      REQUIRE(buckets > 1);
      std::uint32_t released_before_the_end = 0;
      std::set<std::uint32_t> completed;  // operations
      const std::uint32_t end_of_backward =
          built.last_wgrad(built.storage("gradients.b" + std::to_string(buckets - 1)));
      for (std::size_t b = buckets; b-- > 0;) {
        INFO("bucket " << b);
        const std::uint32_t scatter = built.find(numbered("dp.reduce_scatter", b));
        const std::uint32_t complete = built.last_wgrad(built.storage(numbered("gradients", b)));
        CHECK(built.program.ops[complete].micro_batch == 2);
        // When one operation completes two buckets, the first reduction follows the second on its lane.
        const bool is_known = fp32 && !completed.insert(complete).second;
        CHECK(built.wait_count(scatter) == (is_known ? 0 : 1));
        if (fp32) {
          CHECK((is_known || built.waits(scatter, EdgeKind::finish_start, complete)));
        } else {
          // The cast runs directly after the gradient, on the gradient's lane.
          const std::uint32_t cast = built.find(numbered("dp.cast_to_bf16", b));
          CHECK(built.waits(scatter, EdgeKind::finish_start, cast));
          CHECK(built.program.ops[cast].position > built.program.ops[complete].position);
          for (std::uint32_t p = built.program.ops[complete].position + 1; p < built.program.ops[cast].position; ++p)
            CHECK(built.operation(built.program.lanes[0][p]).name.starts_with("dp.cast_to_bf16"));
        }
        released_before_the_end += complete < end_of_backward;
        // The optimizer's operations wait for it, backward does not.
        const std::string first = fp32 ? "norm.sum_squares" : "dp.cast_to_f32";
        CHECK(built.waits(built.find(numbered(first, b)), EdgeKind::finish_start, scatter));
      }
      // wte, whose gradient comes last, may share a release with another
      CHECK(released_before_the_end + 1 >= buckets - 1);
      // The lane has all of them, in the order in which they become ready.
      std::vector<std::string> lane = built.names_on("dp");
      REQUIRE(lane.size() == 2 * buckets + 1);
      CHECK(lane[buckets] == "dp.all_reduce_metrics");
      lane.resize(buckets);
      std::uint32_t ready_before = 0;
      std::set<std::string> distinct;
      for (const std::string& name : lane) {
        distinct.insert(name);
        const std::uint32_t ready = built.last_wgrad(built.storage("gradients" + name.substr(name.rfind('.'))));
        CHECK(ready >= ready_before);
        ready_before = ready;
      }
      CHECK(distinct.size() == buckets);
    }
}

TEST_CASE("overlap_param_gather: a bucket is gathered from the start of the first use of the one before") {
  for (const std::int64_t bucket_size : {1, 300, 1500}) {
    INFO("buckets of " << bucket_size);
    Scenario scenario = tiny_scenario(2, "overlap_param_gather", "fp32", 6);
    scenario.overlap.bucket_size = bucket_size;
    const Built built(scenario);
    const std::size_t buckets = built.buckets();
    struct Gather {
      std::uint32_t first_use, gather, adamw;
    };
    std::vector<Gather> gathers;
    for (std::size_t b = 0; b < buckets; ++b)
      gathers.push_back({built.first_use(built.storage(numbered("parameters", b))),
                         built.find(numbered("dp.all_gather", b)), built.find(numbered("adamw", b))});
    std::stable_sort(gathers.begin(), gathers.end(),
                     [](const Gather& a, const Gather& b) { return a.first_use < b.first_use; });
    std::vector<std::string> expected;
    for (std::size_t k = 0; k < buckets; ++k) {
      const Gather& g = gathers[k];
      INFO(built.operation(g.gather).name);
      expected.push_back(built.operation(g.gather).name);
      CHECK(built.program.ops[g.first_use].micro_batch == 0);
      CHECK(built.comes_after(g.first_use, g.gather));
      CHECK(built.comes_after(g.gather, g.adamw, 1));
      const auto before = std::find_if(gathers.rbegin(), gathers.rend(),
                                       [&](const Gather& other) { return other.first_use < g.first_use; });
      if (before == gathers.rend())
        CHECK(built.wait_count(g.gather) == 1);  // the first starts with the step
      else
        CHECK(built.waits(g.gather, EdgeKind::start_start, before->first_use));
      CHECK(g.gather < g.first_use);  // issued before its use
    }
    std::vector<std::string> lane = built.names_on("dp");
    lane.resize(buckets);
    CHECK(lane == expected);
    // compute need not wait for all of them
    CHECK(built.wait_count(0) + built.wait_count(built.find("metrics.zero")) <= 1);
  }
}

TEST_CASE("types of context parallelism: a list of one type is that type, several share what they have in common") {
  for (const char* mode : {"plain", "tp_comm_overlap"}) {
    const auto schedule_of = [&](std::vector<CpCommType> types) {
      return build_schedule(
          layout_scenario({.tp = 2, .sequence_parallel = true, .cp = 2, .cp_type = std::move(types)}, mode, true));
    };
    const auto of_layers = [](const Schedule& schedule) {
      std::set<OpId> ops;
      for (const Block& block : schedule.blocks)
        if (block.name.starts_with("layer.")) ops.insert(block.ops.begin(), block.ops.end());
      return ops;
    };
    const auto is_of = [](const Schedule& schedule, const char* type) {
      return [&schedule, type](OpId op) { return schedule.operations[op].name.starts_with(type); };
    };
    const Schedule p2p = schedule_of({CpCommType::p2p}), a2a = schedule_of({CpCommType::a2a}),
                   both = schedule_of({CpCommType::p2p, CpCommType::a2a});
    CHECK(write_schedule_json(schedule_of({CpCommType::p2p, CpCommType::p2p})) == write_schedule_json(p2p));
    CHECK(both.blocks.size() == p2p.blocks.size() + 2);
    const std::set<OpId> ops = of_layers(both), ops_p2p = of_layers(p2p), ops_a2a = of_layers(a2a);
    const auto of_p2p = std::count_if(ops.begin(), ops.end(), is_of(both, "attention.p2p.")),
               of_a2a = std::count_if(ops.begin(), ops.end(), is_of(both, "attention.a2a."));
    CHECK(of_p2p == std::count_if(ops_p2p.begin(), ops_p2p.end(), is_of(p2p, "attention.")));
    CHECK(of_a2a == std::count_if(ops_a2a.begin(), ops_a2a.end(), is_of(a2a, "attention.")));
    CHECK(std::ssize(ops) == std::ssize(ops_p2p) + of_a2a);
  }
}

TEST_CASE("on one rank nothing communicates, and the knobs that cannot act are named") {
  const Built built(tiny_scenario(1, "overlap_param_gather", "fp32", 2));
  CHECK(built.schedule.lanes.size() == 1);
  CHECK(built.schedule.communicators.empty());
  for (const Operation& operation : built.schedule.operations) CHECK_FALSE(is_communication(operation.work));
  REQUIRE(built.schedule.notes.size() == 2);
  CHECK_THAT(built.schedule.notes[0], Catch::Matchers::Contains("overlap_grad_reduce is off"));
  CHECK_THAT(built.schedule.notes[1], Catch::Matchers::Contains("overlap_param_gather is off"));
  CHECK(build_schedule(tiny_scenario(2, "overlap_param_gather", "fp32", 2)).notes.empty());
  Scenario plain = tiny_scenario(1, "plain", "fp32", 2);
  CHECK_THAT(build_schedule(plain).notes.at(0), Catch::Matchers::Contains("bucket_size is off"));
  plain.overlap.bucket_size = 0;
  CHECK(build_schedule(plain).notes.empty());
}

}  // namespace stretto::testing
