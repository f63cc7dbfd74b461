// Decides which communication of a layer overlaps by which method (Megatron-LM's tp_comm_overlap, TransformerEngine's
// user buffers): one knob and three modes. The files tp_* state edges and exposed parts of the cuts.
#include <algorithm>
#include <tuple>
#include <utility>

#include "model/lower/builder.hpp"
#include "model/overlap/mode.hpp"
#include "model/overlap/tp_methods.hpp"
#include "model/overlap/tp_split.hpp"

namespace stretto {
namespace {

bool exchanges(const TpGemm& gemm) { return gemm.method == TpMethod::ring_exchange || gemm.method == TpMethod::flash; }
bool adds_on_the_way(const TpGemm& gemm) {
  return gemm.method == TpMethod::flash && gemm.accumulate == TpAccumulate::ring;
}

class TpOverlap {
 public:
  TpOverlap(Lowered& lowered, const TpMethods& methods, std::int64_t compute_lanes)
      : lowered_(lowered), methods_(methods), context_{lowered.schedule} {
    Schedule& schedule = lowered.schedule;
    context_.compute = {lowered.compute};
    context_.tp = lowered.tp;
    const auto all = {&methods.qkv_fprop,  &methods.fc1_fprop, &methods.proj_dgrad, &methods.fc2_dgrad,
                      &methods.proj_fprop, &methods.fc2_fprop, &methods.qkv_dgrad,  &methods.fc1_dgrad};
    const auto any = [&](bool (*has)(const TpGemm&)) {
      return std::any_of(all.begin(), all.end(), [&](const TpGemm* gemm) { return has(*gemm); });
    };
    context_.send = context_.recv = context_.tp.lane;
    // TransformerEngine's communication streams have the highest priority too.
    schedule.lanes[context_.tp.lane].priority = kHighPriority;
    if (any(exchanges)) {
      context_.send = add_lane("tp.send", LaneKind::communication, kHighPriority);
      context_.recv = add_lane("tp.recv", LaneKind::communication, kHighPriority);
      schedule.communicators.push_back(
          {"tp.ring", {Coord::tp}, CommEngine::copy_engine, 1, context_.tp.size, {}, true});
      context_.ring_communicator = static_cast<std::uint32_t>(schedule.communicators.size() - 1);
      const Tensor& x = schedule.tensors[schedule.find_tensor("x").value()];  // [R, hidden]
      context_.partials = add_tensor(schedule, "tp.partials", schedule.compute_dtype, BufferKind::workspace,
                                     context_.tp.size, x.elements());
    }
    // An addition that waits for the cores of a concurrent GEMM holds up the whole ring.
    const auto scatters = {&methods.proj_fprop, &methods.fc2_fprop, &methods.qkv_dgrad, &methods.fc1_dgrad};
    if (std::any_of(scatters.begin(), scatters.end(), [](const TpGemm* gemm) { return adds_on_the_way(*gemm); }))
      context_.add = add_lane("tp.add", LaneKind::compute, kHighPriority);
    if (any(is_split))
      for (std::int64_t i = 1; i < compute_lanes; ++i)
        context_.compute.push_back(add_lane("compute." + std::to_string(i), LaneKind::compute, 0));
  }

  void run() {
    for (const BlockId id : lowered_.layer_blocks) {
      BlockEditor block(lowered_, id);
      for (const std::string kind : {"", ".numbers"}) {  // BlockWriter::label
        const auto of = [&](const char* layer) { return layer + kind; };
        for (const char* again : {"", ".recompute"}) {
          gather(block, of("qkv"), ".all_gather", ".fprop", again, methods_.qkv_fprop, false);
          scatter(block, of("proj"), ".fprop", ".reduce_scatter", again, methods_.proj_fprop);
          gather(block, of("fc1"), ".all_gather", ".fprop", again, methods_.fc1_fprop, false);
          scatter(block, of("fc2"), ".fprop", ".reduce_scatter", again, methods_.fc2_fprop);
        }
        gather(block, of("fc2"), ".all_gather_dgrad", ".dgrad", "", methods_.fc2_dgrad, true);
        gather(block, of("proj"), ".all_gather_dgrad", ".dgrad", "", methods_.proj_dgrad, true);
        column_backward(block, of("fc1"), methods_.fc1_dgrad, methods_.fc1_wgrad);
        column_backward(block, of("qkv"), methods_.qkv_dgrad, methods_.qkv_wgrad);
      }
      block.commit();
    }
    // TransformerEngine does not overlap the head; Megatron-LM's own linear layer has both bulk overlaps.
    for (const BlockId id : lowered_.end_blocks) {
      BlockEditor block(lowered_, id);
      column_backward(block, "lm_head", methods_.qkv_dgrad, methods_.qkv_wgrad);
      block.commit();
    }
  }

 private:
  LaneId add_lane(const std::string& name, LaneKind kind, int priority) {
    lowered_.schedule.lanes.push_back({name, kind, priority});
    return static_cast<LaneId>(lowered_.schedule.lanes.size() - 1);
  }

  void gather(BlockEditor& block, const std::string& layer, const std::string& gather, const std::string& gemm,
              const std::string& again, const TpGemm& how, bool keeps_whole) {
    if (!exchanges(how) || !block.has(layer + gather + again)) return;
    // A weight gradient reads codes that are scaled along the other axis, unless a tensor has one scale.
    const View all = block.operation(layer + gather + again).accesses[1].view;
    if (is_code(lowered_.schedule.dtype_of(all)))
      keeps_whole = keeps_whole && (reads(block, layer + ".wgrad", all) || reads(block, layer + ".transpose_dy", all));
    if (how.aggregate)
      split_gather_aggregate(block, context_, layer + gather + again, layer + gemm + again);
    else
      split_gather(block, context_, layer + gather + again, layer + gemm + again, keeps_whole, how.num_slices);
  }
  static bool reads(const BlockEditor& block, const std::string& name, const View& view) {
    return block.has(name) && block.operation(name).accesses[0].view.tensor == view.tensor;
  }
  void scatter(BlockEditor& block, const std::string& layer, const std::string& gemm, const std::string& scatter,
               const std::string& again, const TpGemm& how) {
    if (!block.has(layer + scatter + again)) return;
    if (adds_on_the_way(how))
      flash_scatter(block, context_, layer + gemm + again, layer + scatter + again, how.num_slices);
    else if (exchanges(how))
      split_scatter(block, context_, layer + gemm + again, layer + scatter + again, how.num_slices);
    if (how.method == TpMethod::pipeline)
      pipeline_scatter(block, context_, layer + gemm + again, layer + scatter + again, how.num_splits);
  }
  // Bulk dgrad: only wgrad needs the gathered input, so the gather may be concurrent with dgrad. Exposed: max(0, T_AG −
  // T_dgrad). Bulk wgrad: the sum of the dgrad is needed only after wgrad. Exposed: max(0, T_RS − T_wgrad).
  void column_backward(BlockEditor& block, const std::string& layer, const TpGemm& dgrad, const TpGemm& wgrad) {
    // Flash-Overlap sends its pieces on other lanes, so the gather can be concurrent with them. Where the weight
    // gradient has a block of its own, the gather is concurrent with the product before.
    if (block.has(layer + ".all_gather_wgrad") && (dgrad.method == TpMethod::bulk || dgrad.method == TpMethod::flash))
      block.set_free(layer + ".all_gather_wgrad");
    if (!block.has(layer + ".dgrad.reduce_scatter")) return;
    if (is_split(dgrad) && layer != "lm_head")
      scatter(block, layer, ".dgrad", ".dgrad.reduce_scatter", "", dgrad);
    else if (wgrad.method == TpMethod::bulk || dgrad.method == TpMethod::flash)  // the head's GEMM, which is not cut
      block.set_free(layer + ".dgrad.reduce_scatter");
  }

  Lowered& lowered_;
  const TpMethods& methods_;
  SplitContext context_;
};

void rewrite(Lowered& lowered, const Scenario& scenario, const Gates&) {
  const Parallel& p = scenario.parallel;
  const std::int64_t rows = scenario.training.micro_batch_size * scenario.model.seq_length / p.context_parallel_size /
                            p.tensor_model_parallel_size;
  const Scaling weights = rules_of(scenario.training.low_precision, scenario.compute_capability).weights;
  const std::int64_t block = weights == Scaling::block_128x128 ? rule_of(weights).block : 1;
  const TpMethods methods =
      tp_methods(scenario.overlap, scenario.model, p.tensor_model_parallel_size, rows, block, lowered.schedule.notes);
  TpOverlap(lowered, methods, scenario.overlap.tp_comm_overlap_compute_lanes).run();
}

void add_gates(const Scenario& scenario, Gates& gates) {
  const Parallel& p = scenario.parallel;
  const Overlap& o = scenario.overlap;
  const char* main_knob = "tp_comm_overlap";
  // Megatron-LM removes sequence_parallel where nothing is cut, and then refuses the knob.
  const GateSource source =
      megatron("arguments.py:1442; off with a warning in Megatron-Bridge 067f987d training/comm_overlap.py:443");
  gates.add({.knob = main_knob,
             .needs = "tensor_model_parallel_size above 1",
             .kind = GateKind::error,
             .source = source,
             .asked = o.tp_comm_overlap,
             .open = p.tensor_model_parallel_size > 1,
             .got = std::to_string(p.tensor_model_parallel_size)});
  gates.add({.knob = main_knob,
             .needs = "sequence_parallel = true",
             .kind = GateKind::error,
             .source = source,
             .asked = o.tp_comm_overlap,
             .open = p.sequence_parallel,
             .got = "false",
             .why = "async_tensor_model_parallel_allreduce is what overlaps without it"});
  gates.add({.knob = main_knob,
             .needs = "recompute_granularity none, selective or full",
             .source = kOwnGate,
             .asked = o.tp_comm_overlap,
             .open = scenario.training.recompute.granularity != Recompute::Granularity::selective_op,
             .why = "recompute_granularity is \"selective_op\", which computes gate and up of fc1 apart"});
  for (const auto& [knob, asked, line] :
       {std::tuple{"tp_comm_overlap_rs_dgrad", o.tp_comm_overlap_rs_dgrad, "1457"},
        std::tuple{"tp_comm_overlap_disable_qkv", o.tp_comm_overlap_disable_qkv, "1473"},
        std::tuple{"tp_comm_overlap_disable_fc1", o.tp_comm_overlap_disable_fc1, "1477"},
        std::tuple{"tp_comm_overlap_compute_lanes", o.tp_comm_overlap_compute_lanes > 1, ""},
        std::tuple{"tp_comm_overlap_cfg", !o.tp_comm_overlap_cfg.empty(), "1457"}})
    gates.add({.knob = knob,
               .needs = "tp_comm_overlap = true",
               .source = *line ? megatron(std::string("core/extensions/transformer_engine.py:") + line) : kNothingToActOn,
               .asked = asked,
               .open = o.tp_comm_overlap,
               .why = "it needs tp_comm_overlap = true"});
  for (const auto& [knob, asked, line] : {std::tuple{"tp_comm_bulk_dgrad", o.tp_comm_bulk_dgrad, "1404"},
                                          std::tuple{"tp_comm_bulk_wgrad", o.tp_comm_bulk_wgrad, "1398"}})
    gates.add({.knob = knob,
               .needs = "tp_comm_overlap_rs_dgrad = false",
               .source = transformer_engine(std::string("pytorch/module/layernorm_linear.py:") + line),
               .asked = asked && o.tp_comm_overlap,
               .open = !o.tp_comm_overlap_rs_dgrad,
               .why = "tp_comm_overlap_rs_dgrad is on, which reduces and scatters during dgrad already"});
}

// The four modes of the knob tp_comm_overlap.
enum class Kind : std::uint8_t { bulk, pieces, ring_exchange, flash };
Kind kind_of(const Overlap& o) {
  const auto proj = o.tp_comm_overlap_cfg.find("proj_fprop");
  if (proj != o.tp_comm_overlap_cfg.end() && proj->second.method == TpMethod::ring_exchange) return Kind::ring_exchange;
  if (proj != o.tp_comm_overlap_cfg.end() && proj->second.method == TpMethod::flash) return Kind::flash;
  return o.tp_comm_overlap_ag || o.tp_comm_overlap_rs || !o.tp_comm_overlap_cfg.empty() ? Kind::pieces : Kind::bulk;
}

template <Kind kind>
OverlapMode mode(const char* name, const char* meaning, void (*configure)(Overlap& overlap)) {
  return {.name = name,
          .meaning = meaning,
          .memory = kind == Kind::bulk ? "" : "results of a layer before they are summed: tp times a rank's part",
          .knob = "tp_comm_overlap",
          .on = &Overlap::tp_comm_overlap,
          .applies = [](const Parallel& p) { return p.tensor_model_parallel_size > 1 && p.sequence_parallel; },
          .configure = configure,
          .is_meant = [](const Overlap& o) { return kind_of(o) == kind; },
          .rewrite = rewrite};
}

// A file may set how many slices the mode tp_flash_overlap has; the other modes have none.
void drop_flash(Overlap& o) {
  std::erase_if(o.tp_comm_overlap_cfg, [](const auto& gemm) { return gemm.second.method == TpMethod::flash; });
}

}  // namespace

OverlapMode tp_comm_bulk_mode() {
  return mode<Kind::bulk>("tp_comm_bulk",
                          "a layer's input is gathered over tp during its dgrad, its dgrad scattered during its wgrad",
                          [](Overlap& o) {
                            o.tp_comm_overlap_ag = o.tp_comm_overlap_rs = o.tp_comm_overlap_rs_dgrad = false;
                            o.tp_comm_overlap_cfg.clear();
                          });
}

OverlapMode tp_comm_overlap_mode() {
  OverlapMode pieces = mode<Kind::pieces>(
      "tp_comm_overlap", "also: inputs are gathered, and results scattered, in pieces during the GEMM they belong to",
      drop_flash);
  pieces.read = read_tp_keys;
  pieces.check = check_tp_keys;
  pieces.gates = add_gates;
  return pieces;
}

OverlapMode tp_comm_ring_exchange_mode() {
  return mode<Kind::ring_exchange>("tp_comm_ring_exchange",
                                   "the same with results sent to their owners piece by piece and summed there",
                                   [](Overlap& o) {
                                     drop_flash(o);
                                     for (const char* gemm : {"proj_fprop", "fc2_fprop"})
                                       o.tp_comm_overlap_cfg.emplace(gemm, TpGemm{TpMethod::ring_exchange});
                                   });
}

OverlapMode tp_flash_overlap_mode() {
  return mode<Kind::flash>(
      "tp_flash_overlap",
      "inputs and results go round the ring in slices, results are added up on the way, a rank's own slice is last",
      [](Overlap& o) {
        for (const char* gemm :
             {"qkv_fprop", "fc1_fprop", "proj_fprop", "fc2_fprop", "proj_dgrad", "fc2_dgrad", "qkv_dgrad", "fc1_dgrad"})
          if (const std::string name = gemm; !(o.tp_comm_overlap_disable_qkv && name.starts_with("qkv")) &&
                                             !(o.tp_comm_overlap_disable_fc1 && name.starts_with("fc1")))
            if (TpGemm& how = o.tp_comm_overlap_cfg[name]; how.method != TpMethod::flash) how = {TpMethod::flash};
        for (const char* gemm : {"qkv_wgrad", "fc1_wgrad"}) o.tp_comm_overlap_cfg.erase(gemm);
      });
}

}  // namespace stretto
