// Tests that the state of training goes through checkpoints of several processes to any other layout, bit for bit.
#include "exec/state/saved_state.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <tuple>

#include "base/rng.hpp"
#include "model/build_schedule.hpp"
#include "tests/as_processes.hpp"
#include "tests/random_layout.hpp"
#include "tests/temp_dir.hpp"
#include "tests/training.hpp"

namespace stretto::testing {
namespace {

using namespace exec;
constexpr StatePart kParts[] = {StatePart::parameters, StatePart::adam_m, StatePart::adam_v};

// The memory of all ranks of a layout, without an executor.
struct State {
  explicit State(const Scenario& s) : scenario(s), schedule(build_schedule(s)) {
    const MemoryPlan plan = plan_memory(schedule);
    for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank)
      memories.push_back(std::make_unique<host::RankMemory>(schedule, plan.roles[bind(schedule, rank).role]));
    clear_state(schedule, all());
  }
  MemoryOf all() {
    return [this](std::int64_t rank) { return memories[static_cast<std::size_t>(rank)].get(); };
  }
  MemoryOf alone(std::int64_t mine) {
    return [=, this](std::int64_t rank) {
      return rank == mine ? memories[static_cast<std::size_t>(rank)].get() : nullptr;
    };
  }
  // Fills whole tensors with values that bf16 can hold, different in all places.
  void fill() {
    FullTensor full;
    for (const StatePart part : kParts)
      scatter_state(schedule, all(), part, [&](const std::string& name) -> const FullTensor& {
        const std::string bare = name.substr(std::strlen(prefix_in_files(part)));
        for (const StatePiece& piece : schedule.state.pieces)
          if (schedule.state.full_name(piece) == bare) {
            const ModelArray& array = schedule.state.array_of(piece);
            full = {name, {array.rows, array.cols}, std::vector<double>(static_cast<std::size_t>(array.elements()))};
          }
        for (std::size_t i = 0; i < full.values.size(); ++i)
          full.values[i] = double(random_bits(1, stream_of(name), i) % 255) - 127;
        return full;
      });
  }
  // Returns whether all persistent storages of every rank are equal.
  bool equals(State& other) {
    bool is_equal = true;
    for (StorageId id = 0; id < schedule.storages.size(); ++id)
      for (std::size_t rank = 0; rank < memories.size(); ++rank)
        if (is_persistent(schedule.storages[id].kind) && memories[rank]->has(id))
          is_equal = is_equal && std::memcmp(memories[rank]->at(id), other.memories[rank]->at(id),
                                             static_cast<std::size_t>(schedule.storages[id].bytes())) == 0;
    return is_equal;
  }
  // Saves as processes, each with its own rank, or as one process that has all of them.
  void save(const std::string& dir, bool apart) {
    if (!apart) {
      const MemoryOf memory = all();
      write_checkpoint(dir, 1, -1, {}, saved_state(schedule, memory));
      return;
    }
    for (const std::string& error : as_processes(schedule.mesh.ranks(), 60, [&](launch::ProcessGroup& group) {
           const MemoryOf memory = alone(group.rank());
           write_checkpoint(dir, 1, -1, {}, saved_state(schedule, memory), &group);
         }))
      CHECK(error == "");
  }
  void load(const std::string& dir, bool apart) {
    if (!apart) return read_saved_state(schedule, all(), *find_latest(dir).file);
    for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank)
      read_saved_state(schedule, alone(rank), TensorFile::open(dir + "/step-00000001.safetensors"));
  }

  Scenario scenario;
  Schedule schedule;
  std::vector<std::unique_ptr<host::RankMemory>> memories;
};

// Returns layouts of one model.
std::vector<Scenario> layouts(bool llama, const std::string& precision) {
  std::vector<Scenario> all;
  const auto add = [&](const Layout& layout, const std::function<void(Scenario&)>& change = {}) {
    Scenario scenario = layout_scenario(layout, "plain", llama, precision);
    scenario.model.num_layers = 6;
    scenario.model.seq_length = scenario.model.max_position_embeddings = 12;
    if (change) change(scenario);
    all.push_back(scenario);
  };
  add({1, 1});
  add({3, 1});
  add({2, 2, true});
  add({1, 3});
  add({1, 1, false, 3});
  add({2, 1, false, 2, 3}, [](Scenario& s) { s.parallel.order = "tp-cp-ep-pp-dp"; });
  add({.cp = 2});
  add({2, 2}, [](Scenario& s) { s.parallel.data_parallel_sharding_strategy = Sharding::no_shard; });
  add({4, 1}, [](Scenario& s) { s.parallel.num_distributed_optimizer_instances = 2; });
  for (const Sharding sharding : {Sharding::optim_grads, Sharding::optim_grads_params})
    add({2, 2}, [&](Scenario& s) { s.parallel.data_parallel_sharding_strategy = sharding; });
  if (precision == "bf16")
    add({2, 2, true}, [](Scenario& s) {
      OptimizerPrecision& types = s.training.optimizer_precision;
      types.use_precision_aware_optimizer = true;
      types.exp_avg_dtype = types.exp_avg_sq_dtype = OptimizerPrecision::Moment::bf16;
    });
  return all;
}

}  // namespace

TEST_CASE("a checkpoint of any layout, of processes or threads, fills any other", "[checkpoint][serial]") {
  Cases cases;
  bool llama = false;
  std::size_t turn = 0;
  for (const std::string precision : {"fp32", "bf16", "fp64"}) {
    const std::vector<Scenario> all = layouts(llama, precision);
    std::vector<std::unique_ptr<State>> filled(all.size()), read(all.size());
    const auto make = [&](std::size_t layout) {
      if (filled[layout]) return;
      filled[layout] = std::make_unique<State>(all[layout]);
      filled[layout]->fill();
      read[layout] = std::make_unique<State>(all[layout]);
    };
    for (std::size_t i = 0; i < all.size(); ++i) {
      // Every layout is written in one precision, and read in all.
      if (i % 3 != turn || !cases.takes_next()) continue;
      const TempDir dir;
      make(i);
      filled[i]->save(dir.str(), i % 4 != 3);
      for (std::size_t j = 0; j < all.size(); ++j) {
        if (is_fast_suite() && j % 4 != 1) continue;
        INFO(precision << (llama ? " llama" : "") << " from layout " << i << " to " << j);
        make(j);
        clear_state(read[j]->schedule, read[j]->all());
        read[j]->load(dir.str(), j % 3 != 2);
        CHECK(read[j]->equals(*filled[j]));
      }
    }
    llama = !llama;
    ++turn;
  }
}

TEST_CASE("biases of experts are in checkpoints, without optimizer state", "[checkpoint][serial]") {
  std::vector<Scenario> layouts;
  for (const auto& [layout, ep, etp] : {std::tuple{Layout{1, 1}, 1, 0},
                                        {Layout{2, 2, true}, 2, 0},
                                        {Layout{1, 1, false, 3}, 1, 0},
                                        {Layout{2, 1, false, 2, 3}, 2, 0},
                                        {Layout{4, 1}, 2, 2}})
    for (const Sharding sharding : {Sharding::optim, Sharding::optim_grads_params}) {
      Scenario scenario = layout_scenario(layout, "plain", true, "bf16");
      scenario.parallel.expert_model_parallel_size = ep;
      scenario.parallel.expert_tensor_parallel_size = etp;
      scenario.model.num_layers = 6;
      scenario.model.experts.num_moe_experts = 6;
      scenario.model.experts.moe_ffn_hidden_size = 12;
      scenario.model.experts.moe_layer_freq = {0, 1, 1, 0, 1, 1};
      scenario.model.experts.moe_router_score_function = RouterScore::sigmoid;
      scenario.model.experts.moe_router_enable_expert_bias = true;
      scenario.parallel.data_parallel_sharding_strategy = sharding;
      layouts.push_back(scenario);
    }
  for (const Scenario& from : layouts) {
    State filled(from);
    filled.fill();
    const TempDir dir;
    filled.save(dir.str(), true);
    const TensorFile file = TensorFile::open(dir.file("step-00000001.safetensors"));
    CHECK(file.find("h.4.router.bias") != nullptr);
    CHECK(file.find("h.3.router.bias") == nullptr);
    CHECK(file.find("adam.m.h.4.router.bias") == nullptr);
    for (const Scenario& to : layouts) {
      State read(to), expected(to);
      expected.fill();
      read.load(dir.str(), false);
      CHECK(read.equals(expected));
    }
  }
}

TEST_CASE("the shards of random layouts have each element once", "[checkpoint][serial]") {
  for (std::uint64_t seed = 1; seed <= static_cast<std::uint64_t>(share_of(16 / kCaseStride)); ++seed) {
    const RandomLayout layout = random_layout(seed);
    INFO("seed " << seed << "\n" << layout.toml);
    const TempDir dir;
    State state(layout.scenario), again(layout.scenario);
    state.fill();
    state.save(dir.str(), true);
    again.load(dir.str(), true);
    CHECK(again.equals(state));
    // The shards have all of each tensor, equal to a file that one process would write.
    const TensorFile file = TensorFile::open(dir.file("step-00000001.safetensors"));
    std::vector<std::byte> scratch;
    for (const StoredTensor& tensor : file.tensors())
      CHECK(static_cast<std::int64_t>(file.data(tensor, scratch).size()) ==
            tensor.shape[0] * tensor.shape[1] * bytes_of_spelled(tensor.dtype));
  }
}

}  // namespace stretto::testing
