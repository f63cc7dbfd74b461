#include "sim/cost/host_costs.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "model/host_kind.hpp"
#include "model/schedule/gradient_reduction.hpp"
#include "sim/accelerator/kernel_time.hpp"
#include "sim/cost/cost_schedule.hpp"

namespace stretto::sim {
namespace {

// Returns whether an operation of a layer's forward or backward pass is in a CUDA graph.
bool is_captured(const Operation& operation, const Training& training, bool is_before_experts) {
  switch (operation.module) {
    case Module::attention_norm:
    case Module::attention:
      return training.captures(GraphModule::attn);
    case Module::mlp_norm:
      return training.captures(is_before_experts ? GraphModule::moe_router : GraphModule::mlp);
    case Module::mlp:
      return training.captures(GraphModule::mlp);
    case Module::router:
    case Module::shared_experts:
      return training.captures(GraphModule::moe_router);
    case Module::token_sort:
      return training.captures(GraphModule::moe_preprocess);
    case Module::none:
    case Module::embedding:
    case Module::experts:
    case Module::final_norm:
    case Module::head:
      return false;
  }
  return false;
}

// A function that a backward pass runs again saves and restores states and enters autograd again.
void recompute_functions(const Schedule& schedule, Picoseconds function, HostCosts& host) {
  if (function == 0) return;
  std::set<OpId> begin;
  for (const Block& block : schedule.blocks) {
    Recomputed before = Recomputed::none;
    for (const OpId id : block.ops) {
      const Recomputed now = schedule.operations[id].recomputed;
      // TransformerEngine has the norm before a dense MLP in one function with it.
      const bool goes_on = now == before || (before == Recomputed::layernorm && now == Recomputed::mlp);
      if (now != Recomputed::none && !goes_on) begin.insert(id);
      before = now;
    }
  }
  for (const OpId id : begin) host.issue[id] += function;
}

// The host launches one graph in place of neighbouring operations of a block that are captured.
void launch_graphs(const Schedule& schedule, Picoseconds launch, const Training& training, HostCosts& host) {
  if (training.cuda_graph_modules.empty()) return;
  if (training.captures(GraphModule::full_iteration)) {
    std::fill(host.issue.begin(), host.issue.end(), 0);
    host.step += launch;
    host.micro_batch = host.part = 0;
    host.waits_for_messages = false;
    host.waits_before.clear();
    host.waits_for_device_before.clear();
    return;
  }
  for (const Block& block : schedule.blocks) {
    const bool is_before_experts = std::any_of(
        block.ops.begin(), block.ops.end(), [&](OpId id) { return schedule.operations[id].module == Module::router; });
    bool was_captured = false;
    for (const OpId id : block.ops) {
      const bool is_now = is_captured(schedule.operations[id], training, is_before_experts);
      if (is_now) host.issue[id] = was_captured ? 0 : launch;
      was_captured = is_now;
    }
  }
}

// Messages to several ranks, or of several operands, that follow each other in a block are issued in one group
// (batch_isend_irecv of PyTorch), which costs the host one issue. A ring has one message of each direction at a time.
void issue_groups(const Schedule& schedule, HostCosts& host) {
  const auto is_message = [&](OpId id) { return std::holds_alternative<PointToPoint>(schedule.operations[id].work); };
  for (const Block& block : schedule.blocks)
    for (auto begin = block.ops.begin(); begin != block.ops.end();) {
      begin = std::find_if(begin, block.ops.end(), is_message);
      const auto end = std::find_if_not(begin, block.ops.end(), is_message);
      const auto sends = std::count_if(
          begin, end, [&](OpId id) { return std::get<PointToPoint>(schedule.operations[id].work).is_send; });
      for (auto id = begin; sends > 1 && id != end; ++id)
        if (id != begin) host.issue[*id] = 0;
      begin = end;
    }
}

// Modules and autograd around a layer's operations take the process as long once in each pass of the layer.
void enter_layers(const Schedule& schedule, const std::array<Picoseconds, 2>& of_pass, HostCosts& host) {
  std::set<OpId> first;
  for (const Block& block : schedule.blocks) {
    std::array<bool, 2> has_begun{};
    for (const OpId id : block.ops) {
      const Operation& operation = schedule.operations[id];
      const bool is_of_layer = operation.module == Module::attention_norm &&
                               (operation.recomputed == Recomputed::none || operation.recomputed == Recomputed::layer);
      if (is_of_layer && !std::exchange(has_begun[is_of_backward(operation)], true)) first.insert(id);
    }
  }
  for (const OpId id : first) host.issue[id] += of_pass[is_of_backward(schedule.operations[id])];
}

// Before the reduction of a bucket Megatron-LM asks the device for the norm of its gradients and whether it is finite,
// which are two synchronisations (Megatron-LM d98e8a64, core/distributed/param_and_grad_buffer.py:345, check_grads).
void check_gradients(const Schedule& schedule, HostCosts& host) {
  for (OpId id = 0; id < schedule.operations.size(); ++id)
    if (reduces_gradients(schedule, schedule.operations[id])) host.waits_for_device_before.insert(id);
}

// Returns the host's waits for the numbers of rows of experts.
std::map<OpId, OpId> waits_for_counts(const Schedule& schedule) {
  std::map<OpId, OpId> waits;
  // Megatron-LM copies the counts of rows to the host in the forward pass, and waits for them before it starts the
  // exchange (core/transformer/moe/token_dispatcher.py, cuda_sync_point "before_ep_alltoall"), and with gathered tokens
  // before it permutes them (dispatch_postprocess(), with padding as well); the gradient's rows have the same counts.
  // Padded rows that are exchanged have none. With slots (model/expert_slots.hpp) products alone need counts, all of
  // which come at once.
  std::map<TensorId, OpId> counts;  // what says where rows go → the operation that counts
  const bool has_slots = counts_slots(schedule);
  for (OpId id = 0; id < schedule.operations.size(); ++id) {
    const Operation& operation = schedule.operations[id];
    if (operation.phase != Phase::forward) continue;
    if (std::holds_alternative<CountRows>(operation.work))
      counts[operation.accesses[has_slots ? 1 : 0].view.tensor] = id;
    if (const auto* product = std::get_if<GroupedGemm>(&operation.work);
        has_slots && product != nullptr && !product->equal)
      waits[id] = counts.at(operation.accesses[2].view.tensor);
    if (const auto* sort = std::get_if<SortTokens>(&operation.work); !has_slots && sort != nullptr && sort->local > 0)
      counts[operation.accesses.back().view.tensor] = id;
    if (const auto* rows = std::get_if<Collective>(&operation.work);
        rows != nullptr && rows->kind == CollectiveKind::dispatch && rows->by_rows())
      waits[id] = counts.at(operation.accesses[1].view.tensor);
    if (const auto* rows = std::get_if<Permute>(&operation.work);
        rows != nullptr && rows->pass == Pass::forward && !rows->apart)
      if (const auto sorted = counts.find(operation.accesses.front().view.tensor); sorted != counts.end())
        waits[id] = sorted->second;
  }
  return waits;
}

}  // namespace

double issues_of(const Framework& framework, const Schedule& schedule, const Operation& operation) {
  if (host_kind_of(schedule, operation) == HostKind::codes) return 0;
  if (std::holds_alternative<Route>(operation.work) && framework.host.has(HostKind::router)) return 1;
  return kernels_of(framework, operation);
}

double launches_of(const Operation& operation, bool fuses_experts) {
  // One call of Python makes the codes of a tensor; its checks and allocations take as long as two launches (assumed).
  constexpr double kCast = 3;
  const auto more = [](std::int64_t groups) { return double(std::max<std::int64_t>(groups - 1, 0)); };
  if (const auto* product = std::get_if<GroupedGemm>(&operation.work))
    return fuses_experts ? 1 : double(product->groups);
  if (const auto* quantise = std::get_if<Quantise>(&operation.work))
    return kCast + (quantise->of_codes ? 0 : more(quantise->groups));
  if (const auto* amax = std::get_if<Amax>(&operation.work)) return 1 + more(amax->groups);
  if (const auto* update = std::get_if<UpdateScale>(&operation.work))
    return update->history > 0 ? 1 : double(update->elements);
  return std::holds_alternative<TransposeCodes>(operation.work) ? 1 : 0;
}

HostCosts host_costs(const Schedule& schedule, const Framework& framework, const Training& training, const Cpu& cpu,
                     bool fuses_experts) {
  HostCosts host;
  const FrameworkHost& takes = framework.host;
  if (!takes.is_modelled()) return host;
  const auto python = [&](HostKind kind, bool is_backward = false) {
    return takes.us_of(kind, is_backward) * cpu.python.value;
  };
  const double of_cpp = takes.us_of(HostKind::cpp) * cpu.cpp.value, of_codes = python(HostKind::codes);
  for (const Operation& operation : schedule.operations)
    host.issue.push_back(
        fuses_experts && is_part_of_experts(schedule, operation)
            ? 0
            : from_us(issues_of(framework, schedule, operation) *
                          python(host_kind_of(schedule, operation), is_of_backward(operation)) +
                      launches_of(operation, fuses_experts) *
                          (has_codes(operation.work) || is_of_low_precision(operation.work) ? of_codes : of_cpp)));
  issue_groups(schedule, host);
  host.micro_batch = from_us(python(HostKind::micro_batch));
  host.step = from_us(python(HostKind::step));
  host.part = from_us(python(HostKind::node));
  host.parameter = from_us(python(HostKind::parameter));
  host.waits_for_messages = takes.waits_for_messages;
  host.waits_before = waits_for_counts(schedule);
  host.sync = from_us(python(HostKind::sync));
  host.device_sync = 2 * host.sync;
  if (takes.checks_gradients) check_gradients(schedule, host);
  enter_layers(schedule, {from_us(python(HostKind::layer)), from_us(python(HostKind::layer, true))}, host);
  recompute_functions(schedule, from_us(python(HostKind::recompute)), host);
  launch_graphs(schedule, from_us(python(HostKind::graph)), training, host);
  return host;
}

}  // namespace stretto::sim
