// Tests of layers in low precision: products against plain ones, layouts, delayed scales.
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "base/values_of.hpp"
#include "exec/code_groups.hpp"
#include "exec/host/kernels/codes.hpp"
#include "tests/low_precision_layers.hpp"

namespace stretto::testing {
namespace {

// Compares what a schedule multiplied with plain codes and sums of the whole matrices that a rank's product is of.
class PlainProducts {
 public:
  PlainProducts(const Scenario& scenario, const SeenProducts& seen, int step)
      : scenario_(scenario),
        seen_(seen),
        step_(step),
        rules_(rules_of(scenario.training.low_precision, 0)),
        tp_(scenario.parallel.tensor_model_parallel_size) {}

  // Returns the number of different elements of the three products of a linear layer, on one rank.
  std::int64_t differences(const std::string& linear, std::int64_t rank) const {
    const std::string name = linear.substr(0, linear.find('#'));
    const bool is_row = name == "proj" || name.ends_with("fc2"),
               is_whole = name.ends_with("_down") || name.starts_with("experts.");
    const bool is_column = !is_row && !is_whole, sp = scenario_.parallel.sequence_parallel && !is_whole;
    const auto operand = [&](const char* factor, ScaledAlong along, bool gathers) {
      return codes_of(linear, factor, rank, along, gathers, is_column);
    };
    const PlainCodes x = operand("x", ScaledAlong::rows, sp && is_column),
                     x_down = operand("x", ScaledAlong::columns, sp && is_column),
                     w = operand("w", ScaledAlong::rows, false), w_down = operand("w", ScaledAlong::columns, false),
                     dy = operand("dy", ScaledAlong::rows, sp && is_row),
                     dy_down = operand("dy", ScaledAlong::columns, sp && is_row);
    // The gradient of the input of kv_down is added to that of q.
    return compare(of_group(linear, ".fprop"), rank, x, false, w, true) +
           (name == "kv_down" ? 0 : compare(of_group(linear, ".dgrad"), rank, dy, false, w_down, false)) +
           compare(of_group(linear, ".wgrad"), rank, dy_down, true, x_down, false);
  }

 private:
  // Returns the operation of a linear layer, or of a group of it: "experts.fc1#2" gives "experts.fc1.dgrad#2".
  static std::string of_group(const std::string& linear, const std::string& operation) {
    const std::size_t at = std::min(linear.find('#'), linear.size());
    return linear.substr(0, at) + operation + linear.substr(at);
  }

  PlainCodes codes_of(const std::string& linear, const std::string& factor, std::int64_t rank, ScaledAlong along,
                      bool gathers, bool is_column) const {
    const std::string operation = of_group(linear, ".quantise_" + factor), name = linear.substr(0, linear.find('#'));
    NumberMatrix all;
    for (std::int64_t r = gathers ? 0 : rank; r < (gathers ? tp_ : rank + 1); ++r) {
      const NumberMatrix& part = seen_.at(operation, r, 0).matrix;
      all.rows += part.rows;
      all.cols = part.cols;
      all.values.insert(all.values.end(), part.values.begin(), part.values.end());
    }
    const bool is_grouped = linear.find('#') != std::string::npos;
    if (is_grouped && factor != "w" && along == ScaledAlong::columns) {  // rounded up with zeros
      all.rows = GroupedRows::rounded(all.rows, group_rows_of(rules_.activations));
      all.values.resize(static_cast<std::size_t>(all.rows * all.cols));
    }
    const bool is_w = factor == "w", is_nv = rules_.recipe == LowPrecisionRules::Recipe::nvfp4;
    if (is_nv && !is_w && along == ScaledAlong::columns)
      for (std::int64_t c = 0; c < all.cols; ++c)
        for (std::int64_t top = 0; top < all.rows; top += kNvBlock) {
          float column[kNvBlock], turned[kNvBlock];
          for (int i = 0; i < kNvBlock; ++i) column[i] = all.values[static_cast<std::size_t>((top + i) * all.cols + c)];
          hadamard16(column, turned);
          for (int i = 0; i < kNvBlock; ++i) all.values[static_cast<std::size_t>((top + i) * all.cols + c)] = turned[i];
        }
    PlainCodes codes(factor == "dy" ? rules_.backward : rules_.forward, is_w ? rules_.weights : rules_.activations,
                     along, all.rows, all.cols, std::move(all.values));
    if (rules_.is_delayed()) codes.tensor_scale = seen_.at(operation, rank, 0).scale;
    if (is_nv && factor == "dy") {
      const std::uint64_t key = exec::dropout_key(scenario_, step_, 0);
      const std::array<std::uint32_t, 2> of_key{static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
      const std::vector<QuantisedLayer> layers = values_of<QuantisedLayer>();
      const auto layer = static_cast<std::uint32_t>(
          std::find_if(layers.begin(), layers.end(), [&](QuantisedLayer one) { return name_of(one) == name; }) -
          layers.begin());
      const std::uint32_t site = 16 + 2 * layer + (along == ScaledAlong::columns ? 1 : 0);
      if (is_grouped) {  // by the block of the number, as it is before the cast
        codes.word = [x = codes.x, cols = all.cols, along, site, of_key](std::int64_t r, std::int64_t c) {
          const bool down = along == ScaledAlong::columns;
          const std::int64_t step = down ? cols : 1, place = (down ? r : c) % 16,
                             first = down ? (r - place) * cols + c : r * cols + c - place;
          std::uint64_t hash = 14695981039346656037u;
          for (std::int64_t i = 0; i < 16; ++i)
            hash =
                (hash ^ std::bit_cast<std::uint32_t>(x[static_cast<std::size_t>(first + i * step)])) * 1099511628211u;
          return philox4x32({static_cast<std::uint32_t>(place / 4), static_cast<std::uint32_t>(hash),
                             static_cast<std::uint32_t>(hash >> 32), site},
                            of_key)[static_cast<std::size_t>(place % 4)];
        };
        return codes;
      }
      const bool has_own_rows = linear.ends_with("_down") && scenario_.parallel.sequence_parallel;
      const std::int64_t first_column = is_column ? rank * all.cols : 0, first_row = has_own_rows ? rank * all.rows : 0;
      codes.word = [=](std::int64_t r, std::int64_t c) {
        return philox4x32(
            {static_cast<std::uint32_t>((first_column + c) / 4), static_cast<std::uint32_t>(first_row + r), 0, site},
            of_key)[static_cast<std::size_t>((first_column + c) % 4)];
      };
    }
    return codes;
  }

  // Compares some rows of op(A) · op(B), summed in order.
  std::int64_t compare(const std::string& operation, std::int64_t rank, const PlainCodes& a, bool trans_a,
                       const PlainCodes& b, bool trans_b) const {
    const SeenProducts::Seen& seen = seen_.at(operation, rank, 0);
    const std::int64_t m = seen.matrix.rows, n = seen.matrix.cols, k = trans_a ? a.rows : a.cols;
    if ((trans_a ? a.cols : a.rows) != m || (trans_b ? b.rows : b.cols) != n || (trans_b ? b.cols : b.rows) != k)
      return m * n;
    std::vector<float> numbers_b(static_cast<std::size_t>(k * n));  // [k][n]
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        numbers_b[static_cast<std::size_t>(i * n + j)] = trans_b ? b.number_at(j, i) : b.number_at(i, j);
    const std::int64_t block = rule_of(rules_.activations).block == kBlockwise ? kBlockwise : k;
    const float factor = a.inverse() * b.inverse();
    std::int64_t different = 0;
    for (const std::int64_t row : std::set<std::int64_t>{0, 1, m / 3, m / 2, m - 1}) {
      std::vector<float> totals(static_cast<std::size_t>(n));
      for (std::int64_t begin = 0; begin < k; begin += block) {
        std::vector<float> sums(static_cast<std::size_t>(n));
        for (std::int64_t i = begin; i < begin + block; ++i) {
          const float number = trans_a ? a.number_at(i, row) : a.number_at(row, i);
          const float* from = numbers_b.data() + i * n;
          for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += number * from[j];  // products are exact
        }
        for (std::size_t j = 0; j < sums.size(); ++j) totals[j] += sums[j];
      }
      for (std::size_t j = 0; j < totals.size(); ++j) totals[j] *= factor;
      const bool is_bf16 = operation.find(".wgrad") == std::string::npos;
      for (std::size_t j = 0; j < totals.size(); ++j) {
        float expected = totals[j];
        if (!seen.bias.values.empty()) expected += seen.bias.values[j];
        if (is_bf16) expected = to_float(to_bf16(expected));
        different += expected != seen.matrix.values[static_cast<std::size_t>(row * n) + j];
      }
    }
    return different;
  }

  const Scenario& scenario_;
  const SeenProducts& seen_;
  const int step_;
  const LowPrecisionRules rules_;
  const std::int64_t tp_;
};

// A model of such sizes with latent attention.
Scenario latent_scenario(LowRecipe recipe, const Layout& layout, bool has_queries_latent) {
  Scenario scenario = low_precision_scenario(recipe, layout, layout.dp, true);
  const std::int64_t unit = rules_of(scenario.training.low_precision, 0).align;
  Transformer& model = scenario.model;
  model.latent.multi_latent_attention = true;
  model.latent.q_lora_rank = has_queries_latent ? 2 * unit : 0;
  model.latent.kv_lora_rank = model.latent.v_head_dim = unit;
  // As in DeepSeek-V3, the last block of kv_down's 1.5 is short.
  model.latent.qk_pos_emb_head_dim = recipe == LowRecipe::blockwise ? unit / 2 : unit;
  model.latent.qk_head_dim = unit;
  return scenario;
}
// Weights of experts are 128 rows at least, where codes of 4 bits are.
void widen(Scenario& scenario) {
  Transformer& model = scenario.model;
  model.hidden_size = model.ffn_hidden_size = 128;
}

SeenProducts products_of(const Scenario& scenario, int steps) {
  const Schedule schedule = build_schedule(scenario);
  SeenProducts seen;
  train_observed(scenario, schedule, steps, [&](int step, const auto& program, const auto& op, const auto& operands) {
    if (step == steps - 1) seen.see(schedule, program, op, operands);
  });
  return seen;
}

}  // namespace

TEST_CASE("products of a layer have the bits of plain ones, at every tensor parallelism", "[serial]") {
  for (const LowRecipe recipe : kLowRecipes)
    for (const Layout& layout : {Layout{1, 1}, Layout{1, 2}, Layout{1, 2, true}, Layout{1, 4}, Layout{1, 4, true}})
      for (const bool transposes : {false, true}) {
        const bool is_some = transposes == (layout.tp == 4) && (recipe != LowRecipe::blockwise || layout.tp != 2);
        if (is_fast() && !is_some) continue;
        INFO(name_of(recipe) << " " << layout.text() << (transposes ? ", transposes" : ""));
        Scenario scenario = low_precision_scenario(recipe, layout, 1, layout.tp == 2);
        scenario.training.low_precision.fp8_transposes = transposes;
        const int steps = recipe == LowRecipe::delayed ? 3 : 1;  // the first scales of delayed scaling are 1
        const SeenProducts seen = products_of(scenario, steps);
        const PlainProducts plain(scenario, seen, steps - 1);
        for (const char* linear : {"qkv", "proj", "fc1", "fc2"})
          for (std::int64_t rank = 0; rank < layout.tp; ++rank) {
            INFO(linear << " on rank " << rank);
            CHECK(plain.differences(linear, rank) == 0);
          }
      }
}

TEST_CASE("products of latent attention have the bits of plain ones", "[serial]") {
  for (const LowRecipe recipe : kLowRecipes)
    for (const Layout& layout : {Layout{1, 1}, Layout{1, 2}, Layout{1, 2, true}}) {
      const bool is_blockwise = recipe == LowRecipe::blockwise, transposes = layout.tp == 1;
      if (is_fast() && (is_blockwise || layout.tp == 1 || layout.sequence_parallel != (recipe == LowRecipe::mxfp8)))
        continue;
      INFO(name_of(recipe) << " " << layout.text());
      Scenario scenario = latent_scenario(recipe, layout, layout.tp == 2);
      scenario.training.low_precision.fp8_transposes = transposes;
      const int steps = recipe == LowRecipe::delayed ? 3 : 1;
      const SeenProducts seen = products_of(scenario, steps);
      const PlainProducts plain(scenario, seen, steps - 1);
      for (const char* linear : {"q", "q_down", "q_up", "kv_down", "kv_up", "proj"}) {
        const bool is_latent = *linear == 'q' && std::string(linear) != "q";
        if (*linear == 'q' && is_latent != (layout.tp == 2)) continue;
        for (std::int64_t rank = 0; rank < layout.tp; ++rank) {
          INFO(linear << " on rank " << rank);
          CHECK(plain.differences(linear, rank) == 0);
        }
      }
    }
}

TEST_CASE("products of experts have the bits of plain ones, each expert with scales of its own", "[serial][experts]") {
  struct Case {
    Layout layout;
    std::int64_t ep = 1;
    bool pads = false, gathers = false, sends = false;
  };
  for (const LowRecipe recipe : kLowRecipes)
    for (const Case& c : {Case{{1, 1}}, Case{{2, 1}, 2}, Case{{2, 1}, 4 / 2, true}, Case{{2, 1}, 2, false, true},
                          Case{{1, 2, true}, 2}, Case{{2, 1}, 2, false, false, true}}) {
      if (c.sends && recipe != LowRecipe::mxfp8) continue;
      // A kernel test has their groups.
      if (is_fast() && (recipe == LowRecipe::blockwise || (recipe == LowRecipe::nvfp4 && c.layout.tp == 1))) continue;
      INFO(name_of(recipe) << " " << c.layout.text() << " ep " << c.ep << (c.pads ? ", padded" : ""));
      Scenario scenario = low_precision_scenario(recipe, c.layout, c.layout.dp, true);
      if (recipe == LowRecipe::nvfp4) widen(scenario);
      add_experts(scenario);
      scenario.training.low_precision.fp8_transposes = c.layout.dp == 1 && c.layout.tp == 1;
      Parallel& parallel = scenario.parallel;
      parallel.expert_model_parallel_size = c.ep;
      parallel.expert_tensor_parallel_size = 1;
      if (c.gathers) parallel.moe_token_dispatcher_type = TokenDispatcher::allgather;
      if (c.sends) send_codes(scenario, true, true);
      if (c.pads) {
        parallel.moe_pad_expert_input_to_capacity = true;
        parallel.moe_expert_capacity_factor = 2;
      }
      const int steps = recipe == LowRecipe::delayed ? 3 : 1;
      const SeenProducts seen = products_of(scenario, steps);
      const PlainProducts plain(scenario, seen, steps - 1);
      for (const std::string linear : {"shared.fc1", "shared.fc2", "experts.fc1", "experts.fc2"})
        for (std::int64_t rank = 0; rank < c.layout.dp * c.layout.tp; ++rank)
          for (std::int64_t group = 0; group < (linear[0] == 'e' ? 4 / c.ep : 1); ++group) {
            if (linear[0] == 's' && c.layout.dp > 1) continue;
            INFO(linear << " on rank " << rank << ", group " << group);
            CHECK(plain.differences(linear + (linear[0] == 'e' ? "#" + std::to_string(group) : ""), rank) == 0);
          }
    }
}

// A row has the same codes before and after it is sent: forward passes and gradients of inputs keep their bits. Weight
// gradients whose factor came as codes are of numbers that were rounded twice, which changes only those that are far
// below the largest of their block.
TEST_CASE("rows of experts that are sent as codes change at most two weight gradients", "[serial][experts]") {
  for (const std::int64_t ranks : {2, 4}) {  // two experts a rank, and one
    if (is_fast() && ranks == 4) continue;
    Scenario scenario = low_precision_scenario(LowRecipe::mxfp8, {ranks, 1}, 2 * ranks, true);
    add_experts(scenario);
    scenario.parallel.expert_model_parallel_size = ranks;
    scenario.parallel.expert_tensor_parallel_size = 1;
    const auto trained = [&](bool rows, bool gradients) {
      send_codes(scenario, rows, gradients);
      return train(scenario, 1, false);
    };
    const Trained expected = trained(false, false);
    for (const auto& [rows, gradients] : {std::pair{true, false}, std::pair{false, true}, std::pair{true, true}}) {
      const Trained got = trained(rows, gradients);
      CHECK(got.losses == expected.losses);
      REQUIRE(got.gradients.size() == expected.gradients.size());
      for (std::size_t i = 0; i < got.gradients.size(); ++i) {
        const std::string& name = got.gradients[i].name;
        INFO(ranks << " ranks, " << rows << gradients << " " << name);
        const bool changes = (rows && name.find("experts.fc1.weight") != name.npos) ||
                             (gradients && name.find("experts.fc2.weight") != name.npos);
        if (changes)
          CHECK(worst_relative_difference({got.gradients[i]}, {expected.gradients[i]}) < 1e-3);
        else
          CHECK(got.gradients[i].values == expected.gradients[i].values);
      }
    }
  }
}

namespace {

// Scales of delayed scaling, as they follow from the order in which each rank ran its passes.
struct SeenPass {  // of a rank: what its Quantise operations saw and used, up to an update
  std::string direction;
  int chunk = 0;
  struct Cast {
    std::string factor;
    int layer = 0;
    float amax = 0, scale = 0;
  };
  std::vector<Cast> casts;
};
std::vector<std::vector<SeenPass>> passes_of(const Scenario& scenario, int steps) {
  const Schedule schedule = build_schedule(scenario);
  std::vector<std::vector<SeenPass>> passes(static_cast<std::size_t>(schedule.mesh.ranks()));
  // Casts that no update has followed, by rank and direction.
  std::map<std::pair<std::int64_t, std::string>, std::vector<SeenPass::Cast>> open;
  train_observed(scenario, schedule, steps, [&](int, const auto& program, const auto& op, const auto& operands) {
    const Work& work = program.works[op.op];
    const std::string name = schedule.operations[op.op].name;
    if (const auto* quantise = std::get_if<Quantise>(&work); quantise != nullptr && quantise->groups > 0) {
      SeenProducts seen;
      seen.see(schedule, program, op, operands);
      for (const auto& [key, of] : seen.of) {
        float amax = 0;
        for (const float x : of.matrix.values) amax = larger_magnitude(amax, x);
        open[{program.rank, name.ends_with("_dy") ? "fp8.backward" : "fp8.forward"}].push_back(
            {std::get<0>(key), op.layer, amax, of.scale});
      }
    } else if (quantise != nullptr) {
      float amax = 0;
      for (const float x : numbers_of(operands[0]).values) amax = larger_magnitude(amax, x);
      open[{program.rank, name.ends_with("_dy") ? "fp8.backward" : "fp8.forward"}].push_back(
          {name, op.layer, amax, *static_cast<const float*>(operands[1].data)});
    } else if (std::holds_alternative<UpdateScale>(work)) {
      const std::string direction = name.substr(0, name.rfind('.'));
      passes[static_cast<std::size_t>(program.rank)].push_back(
          {direction, op.chunk, std::exchange(open[{program.rank, direction}], {})});
    }
  });
  return passes;
}

std::int64_t wrong_scales(const Scenario& scenario, int steps) {
  const std::vector<std::vector<SeenPass>> passes = passes_of(scenario, steps);
  const LowPrecision& low = scenario.training.low_precision;
  const LowPrecisionRules rules = rules_of(low, 0);
  const auto mesh = build_schedule(scenario).mesh;
  std::int64_t wrong = 0, seen = 0;
  for (std::int64_t stage = 0; stage < scenario.parallel.pipeline_model_parallel_size; ++stage) {
    std::vector<std::size_t> ranks;
    for (std::int64_t rank = 0; rank < mesh.ranks(); ++rank)
      if (mesh.coordinates_of(rank)[Coord::pp] == stage) ranks.push_back(static_cast<std::size_t>(rank));
    struct State {
      float scale = 1;
      std::vector<float> history;  // the newest first
    };
    std::map<std::pair<std::string, int>, State> states;  // of a factor of a layer
    std::map<std::string, std::set<std::pair<std::string, int>>> of_chunk;
    const std::vector<SeenPass>& own = passes[ranks.front()];
    for (const SeenPass& pass : own)
      for (const SeenPass::Cast& cast : pass.casts)
        of_chunk[pass.direction + std::to_string(pass.chunk)].insert({cast.factor, cast.layer});
    for (std::size_t i = 0; i < own.size(); ++i) {
      std::map<std::pair<std::string, int>, float> amaxes;
      for (const std::size_t rank : ranks) {
        const SeenPass& pass = passes[rank][i];
        wrong += pass.direction != own[i].direction || pass.chunk != own[i].chunk;
        for (const SeenPass::Cast& cast : pass.casts) {
          float& amax = amaxes[{cast.factor, cast.layer}];
          amax = larger_magnitude(amax, cast.amax);
          wrong += cast.scale != states[{cast.factor, cast.layer}].scale;
          seen += cast.scale != 1;
        }
      }
      for (const auto& key : of_chunk[own[i].direction + std::to_string(own[i].chunk)]) {
        State& state = states[key];
        state.history.insert(state.history.begin(), amaxes.contains(key) ? amaxes[key] : 0.0f);
        state.history.resize(static_cast<std::size_t>(low.fp8_amax_history_len));
        float amax = state.history.front();
        if (low.fp8_amax_compute_algo == LowPrecision::AmaxAlgo::max)
          for (const float past : state.history) amax = larger_magnitude(amax, past);
        const bool is_backward = own[i].direction == "fp8.backward";
        const float largest = (is_backward ? rules.backward : rules.forward) == Dtype::e5m2 ? E5m2::kMax : E4m3::kMax;
        state.scale = delayed_scale(amax, state.scale, largest, static_cast<int>(low.fp8_margin));
      }
    }
  }
  CHECK(seen > 0);
  return wrong;
}

}  // namespace

TEST_CASE("delayed scales follow from the amaxes of earlier passes, in every pipeline", "[serial]") {
  struct Case {
    Layout layout;
    std::int64_t history;
    bool is_max;
    std::int64_t margin;
  };
  const PipelineSchedule plain = PipelineSchedule::one_f_one_b, zero_bubble = PipelineSchedule::zb_h1;
  for (const Case& c : {Case{{2, 2}, 1, false, 0}, Case{{1, 2, true}, 3, true, 1}, Case{{1, 1, false, 2}, 4, true, 0},
                        Case{{1, 2, false, 2, 2}, 2, false, 0},
                        Case{{1, 1, false, 2, 1, "", 0, 1, {CpCommType::p2p}, zero_bubble}, 3, true, 0},
                        Case{{2, 1, false, 2, 1, "", 0, 1, {CpCommType::p2p}, plain}, 1, false, 2}}) {
    INFO(c.layout.text());
    Scenario scenario = low_precision_scenario(LowRecipe::delayed, c.layout, 4 * c.layout.dp);
    LowPrecision low = scenario.training.low_precision;
    low.fp8_amax_history_len = c.history;
    low.fp8_amax_compute_algo = c.is_max ? LowPrecision::AmaxAlgo::max : LowPrecision::AmaxAlgo::most_recent;
    low.fp8_margin = c.margin;
    scenario.training.low_precision = low;
    CHECK(wrong_scales(scenario, 2) == 0);
    if (c.layout.dp != 2 || c.layout.pp > 1) continue;  // the first case
    for (const std::int64_t ep : {1, 2}) {              // every expert of a rank has scales, which ranks share
      INFO("experts, ep " << ep);
      scenario = low_precision_scenario(LowRecipe::delayed, c.layout, 4 * c.layout.dp, true);
      scenario.training.low_precision = low;
      add_experts(scenario);
      scenario.model.num_layers = 2;
      scenario.model.experts.moe_layer_freq = {2};
      scenario.parallel.expert_model_parallel_size = ep;
      scenario.parallel.expert_tensor_parallel_size = 1;
      CHECK(wrong_scales(scenario, 2) == 0);
    }
  }
}

// The rounding of experts' gradients depends on their numbers, and not on where in a matrix their rows are. (The scale
// of a tensor is that of the rows that an expert has on a rank, so that layouts which give it others have other codes.)
TEST_CASE("codes of experts' gradients in nvfp4 do not depend on the places of their rows", "[serial][experts]") {
  using RowsOf = std::map<std::tuple<std::string, std::int64_t, std::int64_t>, std::multiset<std::vector<float>>>;
  const auto rows_of = [](TokenDispatcher dispatcher, bool pads) {
    Scenario scenario = low_precision_scenario(LowRecipe::nvfp4, {2, 1}, 2, true);
    widen(scenario);
    add_experts(scenario, false);
    Parallel& parallel = scenario.parallel;
    parallel.expert_model_parallel_size = 2;
    parallel.expert_tensor_parallel_size = 1;
    parallel.moe_token_dispatcher_type = dispatcher;
    parallel.moe_pad_expert_input_to_capacity = pads;
    if (pads) parallel.moe_expert_capacity_factor = 2;
    const Schedule schedule = build_schedule(scenario);
    RowsOf rows;  // [layer, rank, group]
    train_observed(scenario, schedule, 1, [&](int, const auto& program, const auto& op, const auto& operands) {
      const auto* work = std::get_if<Quantise>(&program.works[op.op]);
      if (work == nullptr || work->groups == 0 || !work->stochastic) return;
      const exec::RowGroups groups(work->equal ? nullptr : &operands[2], work->grouped());
      groups.for_each(group_rows_of(work->scaling), [&](std::int64_t g, std::int64_t, std::int64_t count,
                                                        std::int64_t first, std::int64_t padded) {
        const exec::Codes codes = exec::codes_of(exec::codes_of_group(operands[work->equal ? 3 : 4], work->scaling,
                                                                      ScaledAlong::rows, first, padded, work->cols),
                                                 work->scaling, ScaledAlong::rows, padded, work->cols);
        for (std::int64_t r = 0; r < count; ++r) {
          std::vector<float> row(static_cast<std::size_t>(work->cols));
          host::decode(codes, r, 1, row.data());
          rows[{name_of(work->layer), program.rank, g}].insert(std::move(row));
        }
      });
    });
    return rows;
  };
  const RowsOf expected = rows_of(TokenDispatcher::alltoall, false);
  CHECK(expected.size() == 8);
  for (const RowsOf& other : {rows_of(TokenDispatcher::allgather, false), rows_of(TokenDispatcher::alltoall, true)}) {
    std::size_t missing = 0, all = 0;
    for (const auto& [key, rows] : expected)
      for (const std::vector<float>& row : rows) {
        ++all;
        missing += other.at(key).count(row) < rows.count(row);
      }
    CHECK(all > 0);
    CHECK(missing == 0);
  }
}

namespace {

// Codes, as numbers, that the first layer's Quantise operations made in the first pass: [operation, rank, whether along
// columns].
using CodesOf = std::map<std::tuple<std::string, std::int64_t, bool>, std::vector<float>>;
CodesOf first_codes(const Scenario& scenario) {
  const Schedule schedule = build_schedule(scenario);
  CodesOf codes;
  train_observed(scenario, schedule, 1, [&](int, const auto& program, const auto& op, const auto& operands) {
    const auto* work = std::get_if<Quantise>(&program.works[op.op]);
    if (work == nullptr || op.layer != 0 || op.micro_batch != 0) return;
    for (const bool down : {false, true}) {
      const bool second = down && work->columnwise != ColumnCopy::none;
      const host::Codes of = host::codes_of(operands[second ? 2 : 1], work->scaling,
                                            second ? ScaledAlong::columns : ScaledAlong::rows, work->rows, work->cols);
      std::vector<float>& values = codes[{schedule.operations[op.op].name, program.rank, down}];
      values.resize(static_cast<std::size_t>(work->rows * work->cols));
      host::decode(of, 0, work->rows, values.data());
    }
  });
  return codes;
}

}  // namespace

TEST_CASE("codes of mxfp8 and blockwise are equal at every layout that leaves blocks whole", "[serial]") {
  for (const LowRecipe recipe : {LowRecipe::mxfp8, LowRecipe::blockwise}) {
    const auto codes = [&](const Layout& layout) { return first_codes(low_precision_scenario(recipe, layout, 2)); };
    const CodesOf whole = codes({1, 1});
    for (const Layout& layout : {Layout{1, 2}, Layout{1, 2, true}, Layout{2, 1}, Layout{1, 4, true}}) {
      if (is_fast() && (layout.tp == 4 || (recipe == LowRecipe::blockwise && !layout.sequence_parallel))) continue;
      INFO(name_of(recipe) << " " << layout.text());
      const CodesOf cut = codes(layout);
      for (const bool down : {false, true})
        for (const char* operation : {"qkv.quantise_x", "fc1.quantise_w"}) {
          // Ranks have rows of the tokens under sequence parallelism, and rows of the weight.
          std::vector<float> rows;
          for (std::int64_t rank = 0; rank < layout.tp; ++rank) {
            const std::vector<float>& part = cut.at({operation, rank, down});
            const bool is_part = layout.sequence_parallel || operation[0] == 'f';
            if (is_part)
              rows.insert(rows.end(), part.begin(), part.end());
            else
              rows = part;
          }
          CHECK(rows == whole.at({operation, 0, down}));
        }
    }
  }
}

}  // namespace stretto::testing
