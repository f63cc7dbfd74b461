#include "model/step_size.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>
#include <set>
#include <string>

#include "base/error.hpp"
#include "base/memory.hpp"
#include "model/acting_overlap.hpp"
#include "model/expert_slots.hpp"
#include "model/lower/layer_sizes.hpp"

namespace stretto {
namespace {

// Measured on schedules of 10^6 to 10^8 operations (docs/scenario.md).
constexpr double kOperation_bytes = 130;  // a bound operation, with its clocks and its row of the timeline
constexpr double kCall_bytes = 110;
constexpr double kStorage_bytes = 230;  // a storage with its name, lifetime and cells

// Returns whether groups of experts and of dense layers cut the ranks at strides where one is no multiple of another,
// as with tp 2 and ep 3. Then no ranks are folded (period_of() in model/schedule/folding.cpp).
bool experts_cut_across(const Scenario& scenario) {
  const Parallel& parallel = scenario.parallel;
  if (!scenario.model.experts.any() || !parallel.experts_apart()) return false;
  std::set<std::int64_t> strides;
  std::int64_t stride = 1;
  for (const Coord axis : axes_in_order(parallel)) {
    strides.insert(stride);
    stride *= parallel.size_of(axis);
  }
  stride = 1;
  for (const auto& [axis, size] : axes_of_experts(parallel)) {
    strides.insert(stride);
    stride *= size;
  }
  for (auto next = strides.begin(), one = next++; next != strides.end(); one = next++)
    if (*next % *one != 0) return true;
  return false;
}

// Returns the number of a stage's ranks that are kept, as fold_ranks() of the schedule keeps them
// (model/schedule/folding.cpp): whole devices along every axis, and all ranks where devices are not equal, stages share
// a device, or experts cut across.
double ranks_of_stage(const Scenario& scenario) {
  const Parallel& parallel = scenario.parallel;
  const std::int64_t ranks = parallel.ranks(), stages = parallel.pipeline_model_parallel_size;
  const std::int64_t given = scenario.cluster.ranks_per_device;
  std::int64_t left = given > 0 ? std::min(given, ranks) : ranks, kept = 1;
  const bool is_alone = left == 1;
  // Pairs of ranks send to different neighbours.
  const bool has_pairs =
      scenario.overlap.tp_comm_overlap &&
      std::any_of(scenario.overlap.tp_comm_overlap_cfg.begin(), scenario.overlap.tp_comm_overlap_cfg.end(),
                  [](const auto& gemm) { return gemm.second.aggregate; });
  const std::vector<Coord> axes = axes_in_order(parallel);  // the fastest axis first
  for (const Coord axis : axes) {
    if (axis == Coord::pp) continue;
    const std::int64_t size = parallel.size_of(axis);
    kept *= size % left != 0 || (axis == Coord::tp && has_pairs) ? size : left;
    left /= std::gcd(left, size);
  }
  const bool stages_are_apart = is_alone || stages == 1 || axes.back() == Coord::pp;
  return double(left == 1 && stages_are_apart && !experts_cut_across(scenario) ? kept : ranks / stages);
}

// Returns how many slots a layer's activations have, averaged over the stages.
double slots_of(const Parallel& parallel, double micro_batches) {
  const double stages = double(parallel.pipeline_model_parallel_size);
  if (stages == 1) return 1;
  if (parallel.pipeline_schedule == PipelineSchedule::dualpipe_v) return stages + 2.5;
  if (is_zero_bubble(parallel.pipeline_schedule)) return std::min(micro_batches, stages) + 1.5;
  if (parallel.virtual_pipeline_model_parallel_size == 1) return std::min(micro_batches, stages / 2 + 0.5);
  // Chunks of a stage share slots: the slots of the warm-up and one more, averaged over the stages.
  const double chunks = double(parallel.virtual_pipeline_model_parallel_size);
  const double group = std::max(stages, double(parallel.microbatch_group_size_per_vp_stage));
  return std::min(micro_batches, ((chunks - 1) * group + stages) / chunks);
}

// Sharded gradients are communicated layer by layer.
double units_of_layer(const Scenario& scenario) {
  const Parallel& parallel = scenario.parallel;
  if (!parallel.shards_gradients() || parallel.replicas() == 1) return 0;
  return parallel.tensor_model_parallel_size > 1 ? 2 : 1;
}

double buckets_of(const Scenario& scenario, double chunks) {
  const Parallel& parallel = scenario.parallel;
  if (const double units = units_of_layer(scenario); units > 0) return units * (double(scenario.model.num_layers) + 3);
  if (!scenario.overlap.overlap_grad_reduce || parallel.replicas() == 1) return chunks;
  const double size = double(scenario.overlap.bucket_size);
  const double elements =
      double(parameter_count(scenario.model)) / double(parallel.tensor_model_parallel_size) / chunks;
  const double arrays = double(parameters(scenario.model).size()) / chunks;  // only the first chunk is cut
  return chunks + std::min(arrays, size > 0 ? elements / size : 0);
}

std::string count_text(double count) {
  char text[32];
  std::snprintf(text, sizeof text, count >= 1e6 ? "%.0f million" : "%.0f", count >= 1e6 ? count / 1e6 : count);
  return text;
}

// Returns the largest number below `most` with which the schedule fits; 0: none.
std::int64_t largest_that_fits(std::int64_t most, double free, const std::function<double(std::int64_t)>& bytes_with) {
  std::int64_t fits = 0, fails = most;
  while (fits + 1 < fails) {
    const std::int64_t middle = fits + (fails - fits) / 2;
    (bytes_with(middle) <= free ? fits : fails) = middle;
  }
  return fits;
}

// Keeps two digits, so that the number reads like the estimate that it is.
std::int64_t rounded_down(std::int64_t number) {
  std::int64_t unit = 1;
  while (number / unit >= 100) unit *= 10;
  return number / unit * unit;
}

}  // namespace

StepSize step_size_of(const Scenario& scenario) {
  const Parallel& parallel = scenario.parallel;
  const Overlap& overlap = scenario.overlap;
  const double stages = double(parallel.pipeline_model_parallel_size), tp = double(parallel.tensor_model_parallel_size),
               chunks = stages * double(parallel.virtual_pipeline_model_parallel_size),
               layers = double(scenario.model.num_layers), micro_batches = double(scenario.num_microbatches()),
               kept = ranks_of_stage(scenario), buckets = buckets_of(scenario, chunks);
  double in_layers = 0, kept_values = 0;
  for (const LayerSize& layer : layer_sizes(scenario)) {
    in_layers += layer.operations;
    kept_values += layer.kept_values;
  }
  const bool recomputes = scenario.training.recompute.repeats_layers();
  // Ring exchange adds chunks, with a send and a receive each, to four to eight products of a layer. Flash-Overlap adds
  // slices too, with an addition where results are scattered.
  double slices = 0;
  for (const auto& [name, gemm] : overlap.tp_comm_overlap_cfg)
    if (gemm.method == TpMethod::flash) slices += 3.5 * double(gemm.num_slices);
  const bool exchanges = tp > 1 && overlap.tp_comm_overlap && parallel.sequence_parallel;
  // Rows of experts in shards: six messages to each other rank in both passes, each with a receive, and the pieces of
  // products and sorts.
  const double ep = double(parallel.expert_model_parallel_size);
  const double added = 7 * units_of_layer(scenario) + (exchanges_in_slots(scenario) ? 28 * ep : 0) +
                       (cuts_exchanges(scenario) ? 12 * ep + 12 * std::min(ep, double(overlap.ep_flash_shards)) : 0) +
                       (exchanges ? tp * (overlap.tp_comm_overlap_cfg.empty() ? 12 : std::max(18.0, slices)) : 0);
  const bool weights_apart = is_zero_bubble(parallel.pipeline_schedule) || delays_weights(scenario);
  const double messages = stages > 1 ? 2 * micro_batches * (chunks - 1) : 0;
  StepSize size;
  size.ranks = stages * kept;
  size.operations = kept * (micro_batches * (in_layers + layers * added + 10) + 2 * messages + 7 * buckets);
  const double calls =
      micro_batches * (layers * ((recomputes || weights_apart ? 3 : 2) + 7 * units_of_layer(scenario)) + 4) +
      2 * messages + 7 * buckets;
  const double storages = kept_values * slots_of(parallel, micro_batches) + 6 * buckets;
  // Bytes of the clocks of other ranks: a number for each lane of those ranks, at every rendezvous of two steps, in a
  // vector that doubles as it grows. Measured as the resident memory of simulate on 510 to 2,046 ranks with pp 2, and
  // on 1,364 with tp 4: a row for each collective of several kept ranks, 1.75 rows for each end of a message, times
  // 1.9. Where experts cut across, a quarter of the rows of messages: simulate took 6.9 GB on 1,536 ranks with pp 4, tp
  // 2 and ep 3, and 1.6 GB on 384 with pp 1.
  constexpr double kRowsOfEnd = 1.75, kGrowth = 1.9;
  const double lanes = 2 + (tp > 1 ? 1 : 0) + (parallel.num_distributed_optimizer_instances > 1 ? 1 : 0) +
                       (units_of_layer(scenario) > 0 ? 1 : 0) +
                       (stages > 1 ? (overlap.overlap_p2p_comm ? (weights_apart ? 8 : 4) : 1) : 0);
  const double collectives = tp > 1 && kept >= tp ? micro_batches * layers * 6 * kept / tp : 0;
  const double reductions = kept > 1 ? 4 * buckets * std::max(1.0, kept / double(parallel.replicas())) : 0;
  const double sends = experts_cut_across(scenario) ? 1 : 4;
  const double knowledge =
      (sends * kRowsOfEnd * messages * kept + 2 * collectives + reductions) * kGrowth * size.ranks * lanes * 4;
  size.bytes =
      size.operations * kOperation_bytes + calls * kCall_bytes + storages * (kStorage_bytes + 8 * stages) + knowledge;
  return size;
}

void require_size(const Scenario& scenario, std::int64_t free_bytes) {
  const StepSize size = step_size_of(scenario);
  const double free = double(free_bytes);
  if (size.bytes <= free) return;
  const auto failure = [&](const std::string& key, const std::string& expected, std::int64_t got) {
    return input_error((scenario.file.empty() ? scenario.name : scenario.file) + ": " + key + ": expected " + expected +
                       ", got " + std::to_string(got) + ": the schedule of a step would have about " +
                       count_text(size.operations) + " operations on " + count_text(size.ranks) +
                       " ranks and take about " + bytes_text(size.bytes) + " of memory; " + bytes_text(free) +
                       " are free");
  };
  const auto bytes_of = [&](const std::function<void(Scenario&)>& change) {
    Scenario other = scenario;
    change(other);
    return step_size_of(other).bytes;
  };
  const Parallel& parallel = scenario.parallel;
  if (experts_cut_across(scenario))
    throw failure("[parallel] expert_model_parallel_size",
                  "a size with which the groups of experts are multiples or divisors of those of dense layers, so that "
                  "equal ranks are simulated once",
                  parallel.expert_model_parallel_size);
  // The ranks per device are the cause when one rank a device would need at most a quarter of the free memory.
  if (ranks_of_stage(scenario) > 1 && 4 * bytes_of([](Scenario& s) { s.cluster.ranks_per_device = 1; }) <= free)
    throw failure("[cluster] ranks_per_device", "1, which makes all ranks of a stage equal",
                  scenario.cluster.ranks_per_device);
  const std::int64_t unit = scenario.training.micro_batch_size * parallel.data_parallel_size;
  std::int64_t micro_batches =
      rounded_down(largest_that_fits(scenario.num_microbatches(), free, [&](std::int64_t count) {
        return bytes_of([&](Scenario& s) { s.training.global_batch_size = count * unit; });
      }));
  if (parallel.virtual_pipeline_model_parallel_size > 1 && !is_zero_bubble(parallel.pipeline_schedule))
    micro_batches -=
        micro_batches % std::max(parallel.microbatch_group_size_per_vp_stage, parallel.pipeline_model_parallel_size);
  if (micro_batches > 0)
    throw failure("[training] global_batch_size",
                  "at most " + std::to_string(micro_batches * unit) + " (" + std::to_string(micro_batches) +
                      " micro-batches of a rank) with this model and layout",
                  scenario.training.global_batch_size);
  const std::int64_t layers = rounded_down(largest_that_fits(scenario.model.num_layers, free, [&](std::int64_t count) {
    return bytes_of([&](Scenario& s) { s.model.num_layers = count; });
  }));
  const std::int64_t chunks = parallel.pipeline_model_parallel_size * parallel.virtual_pipeline_model_parallel_size;
  if (layers >= chunks)
    throw failure("[model] num_layers", "at most " + std::to_string(layers - layers % chunks) + " with this layout",
                  scenario.model.num_layers);
  if (parallel.pipeline_model_parallel_size > 1)
    throw failure("[parallel] pipeline_model_parallel_size", "fewer stages", parallel.pipeline_model_parallel_size);
  throw failure("[parallel] tensor_model_parallel_size", "fewer ranks", parallel.tensor_model_parallel_size);
}

}  // namespace stretto
