#include "model/overlap/tp_methods.hpp"

#include <utility>

namespace stretto {
namespace {

// The methods that each GEMM of a layer allows: Megatron-Bridge's TransformerLayerTPOverlapCfg.
struct TpSlot {
  const char* name;
  enum class Kind : std::uint8_t { gathers, scatters, neither } kind;
  std::vector<std::string> methods;
};
const std::vector<TpSlot>& tp_slots() {
  using Kind = TpSlot::Kind;
  static const std::vector<TpSlot> kSlots = {
      {"qkv_fprop", Kind::gathers, {"none", "ring_exchange", "flash"}},
      {"qkv_dgrad", Kind::scatters, {"none", "bulk", "ring_exchange", "pipeline", "flash"}},
      {"qkv_wgrad", Kind::neither, {"none", "bulk"}},
      {"proj_fprop", Kind::scatters, {"none", "ring_exchange", "pipeline", "flash"}},
      {"proj_dgrad", Kind::gathers, {"none", "ring_exchange", "flash"}},
      {"fc1_fprop", Kind::gathers, {"none", "ring_exchange", "flash"}},
      {"fc1_dgrad", Kind::scatters, {"none", "bulk", "ring_exchange", "pipeline", "flash"}},
      {"fc1_wgrad", Kind::neither, {"none", "bulk"}},
      {"fc2_fprop", Kind::scatters, {"none", "ring_exchange", "pipeline", "flash"}},
      {"fc2_dgrad", Kind::gathers, {"none", "ring_exchange", "flash"}},
  };
  return kSlots;
}

TpGemm read_tp_gemm(TomlTable table, const TpSlot& slot) {
  TpGemm gemm;
  const std::string method = choice_or(table, "method", "none", slot.methods);
  gemm.method = method == "bulk"            ? TpMethod::bulk
                : method == "ring_exchange" ? TpMethod::ring_exchange
                : method == "pipeline"      ? TpMethod::pipeline
                : method == "flash"         ? TpMethod::flash
                                            : TpMethod::none;
  gemm.aggregate = value_or<bool>(table, "aggregate", false);
  gemm.num_splits = value_or<std::int64_t>(table, "num_splits", gemm.num_splits, {.min = 2, .max = 64});
  gemm.num_slices = value_or<std::int64_t>(table, "num_slices", gemm.num_slices, {.min = 1, .max = 64});
  if (choice_or(table, "accumulate", "ring", {"ring", "owner"}) == "owner") gemm.accumulate = TpAccumulate::owner;
  table.finish();
  if (gemm.aggregate && !(slot.kind == TpSlot::Kind::gathers && gemm.method == TpMethod::ring_exchange))
    throw table.failure("aggregate",
                        "expected method = \"ring_exchange\" of qkv_fprop, fc1_fprop, proj_dgrad or fc2_dgrad as well, "
                        "got method = \"" +
                            method + "\" of " + slot.name);
  if (table.has("num_splits") && gemm.method != TpMethod::pipeline)
    throw table.failure("num_splits", "expected method = \"pipeline\" as well, got \"" + method + "\"");
  if (table.has("num_slices") && gemm.method != TpMethod::flash)
    throw table.failure("num_slices", "expected method = \"flash\" as well, got \"" + method + "\"");
  if (table.has("accumulate") && !(slot.kind == TpSlot::Kind::scatters && gemm.method == TpMethod::flash))
    throw table.failure("accumulate",
                        "expected method = \"flash\" of proj_fprop, fc2_fprop, qkv_dgrad or fc1_dgrad as well, got "
                        "method = \"" +
                            method + "\" of " + slot.name);
  return gemm;
}

std::map<std::string, TpGemm> read_tp_cfg(TomlTable table) {
  std::map<std::string, TpGemm> cfg;
  for (const TpSlot& slot : tp_slots())
    if (TomlTable gemm = table.section(slot.name); gemm.present()) cfg[slot.name] = read_tp_gemm(std::move(gemm), slot);
  table.finish();
  for (const char* layer : {"qkv", "fc1"}) {
    const auto dgrad = cfg.find(std::string(layer) + "_dgrad"), wgrad = cfg.find(std::string(layer) + "_wgrad");
    if (dgrad == cfg.end() || wgrad == cfg.end() || wgrad->second.method != TpMethod::bulk) continue;
    if (is_split(dgrad->second))
      throw table.failure(wgrad->first,
                          "expected none together with a " + dgrad->first + " that scatters its own result, got bulk");
  }
  return cfg;
}

}  // namespace

bool is_split(const TpGemm& gemm) {
  return gemm.method == TpMethod::ring_exchange || gemm.method == TpMethod::pipeline || gemm.method == TpMethod::flash;
}

void read_tp_keys(TomlTable& table, Overlap& overlap) {
  overlap.tp_comm_overlap_cfg = read_tp_cfg(table.section("tp_comm_overlap_cfg"));
}

void check_tp_keys(TomlTable& table, const Overlap& overlap) {
  for (const auto& [layer, is_off] : {std::pair{std::string("qkv"), overlap.tp_comm_overlap_disable_qkv},
                                      std::pair{std::string("fc1"), overlap.tp_comm_overlap_disable_fc1}})
    for (const auto& [gemm, how] : overlap.tp_comm_overlap_cfg)
      if (is_off && gemm.starts_with(layer) && how.method != TpMethod::none)
        throw table.failure("tp_comm_overlap_disable_" + layer,
                            "expected only one of it and a method of " + gemm + " in tp_comm_overlap_cfg, got both");
}

TpMethods tp_methods(const Overlap& overlap, const Transformer& model, std::int64_t tp, std::int64_t rows,
                     std::int64_t block, std::vector<std::string>& notes) {
  const auto resolved = [&](const std::string& name, bool is_on, TpMethod by_default) {
    TpGemm gemm{is_on ? by_default : TpMethod::none};
    if (const auto given = overlap.tp_comm_overlap_cfg.find(name); given != overlap.tp_comm_overlap_cfg.end())
      gemm = given->second;
    const auto close = [&](const std::string& why) {
      notes.push_back("tp_comm_overlap of " + name + " is off: " + why);
      gemm.method = TpMethod::none;
    };
    if (gemm.method == TpMethod::pipeline && model.hidden_size % gemm.num_splits != 0)
      close("hidden_size " + std::to_string(model.hidden_size) + " does not divide into num_splits " +
            std::to_string(gemm.num_splits));
    else if (gemm.method == TpMethod::pipeline && model.hidden_size / gemm.num_splits % block != 0)
      close("num_splits " + std::to_string(gemm.num_splits) + " cut hidden_size " + std::to_string(model.hidden_size) +
            " within a block of " + std::to_string(block) + " codes");
    if (gemm.method == TpMethod::ring_exchange && gemm.aggregate && tp % 2 != 0)
      close("aggregate pairs ranks, and tensor_model_parallel_size is " + std::to_string(tp));
    if (gemm.method == TpMethod::flash && rows % gemm.num_slices != 0)
      close("a rank's " + std::to_string(rows) + " rows do not divide into num_slices " +
            std::to_string(gemm.num_slices));
    return gemm;
  };
  const bool ag = overlap.tp_comm_overlap_ag, rs = overlap.tp_comm_overlap_rs,
             rs_dgrad = overlap.tp_comm_overlap_rs_dgrad;
  const bool qkv = !overlap.tp_comm_overlap_disable_qkv, fc1 = !overlap.tp_comm_overlap_disable_fc1;
  TpMethods m;
  m.qkv_fprop = resolved("qkv_fprop", ag && qkv, TpMethod::ring_exchange);
  m.fc1_fprop = resolved("fc1_fprop", ag && fc1, TpMethod::ring_exchange);
  m.proj_dgrad = resolved("proj_dgrad", ag, TpMethod::ring_exchange);
  m.fc2_dgrad = resolved("fc2_dgrad", ag, TpMethod::ring_exchange);
  m.proj_fprop = resolved("proj_fprop", rs, TpMethod::pipeline);
  m.fc2_fprop = resolved("fc2_fprop", rs, TpMethod::pipeline);
  const TpMethod dgrad = rs_dgrad ? TpMethod::pipeline : TpMethod::bulk;
  m.qkv_dgrad = resolved("qkv_dgrad", qkv && (rs_dgrad || overlap.tp_comm_bulk_dgrad), dgrad);
  m.fc1_dgrad = resolved("fc1_dgrad", fc1 && (rs_dgrad || overlap.tp_comm_bulk_dgrad), dgrad);
  // Where dgrad's reduce-scatter is cut and overlaps with dgrad, nothing of it is left to overlap with wgrad.
  m.qkv_wgrad = resolved("qkv_wgrad", qkv && overlap.tp_comm_bulk_wgrad && !is_split(m.qkv_dgrad), TpMethod::bulk);
  m.fc1_wgrad = resolved("fc1_wgrad", fc1 && overlap.tp_comm_bulk_wgrad && !is_split(m.fc1_dgrad), TpMethod::bulk);
  return m;
}

}  // namespace stretto
