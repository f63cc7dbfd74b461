#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "diagnose/recognition.hpp"

namespace stretto::diagnose {
namespace {

using trace::KernelClass;

// A gradient's collectives have at least this share of the weights' elements; norms and metrics have far less.
constexpr double kLeastOfWeights = 0.01;

bool sums(KernelClass cls) { return cls == KernelClass::reduce_scatter || cls == KernelClass::all_reduce; }

}  // namespace

// Tokens of a micro-batch are gathered and summed within a layer by tensor parallelism alone.
void Recognition::find_tensor_groups() {
  const std::int64_t whole = tokens_ * hidden_;
  double most = 0;
  for_messages([&](const SeenMessages& m) {
    const bool joins = m.cls == KernelClass::all_gather || m.cls == KernelClass::reduce_scatter;
    if (m.members > kMostCuts || m.elements != whole || !(joins || m.cls == KernelClass::all_reduce) || m.count <= most)
      return;
    most = m.count;
    tp_ = m.members;
    tensor_group_ = m.group;
    is_sequence_parallel_ = joins;
  });
  set("parallel", "tensor_model_parallel_size", tp_,
      tp_ > 1 ? fmt::format("collectives of {} x {} elements", tokens_, hidden_) : "no collective of a layer's tokens");
  if (tp_ > 1)
    set("parallel", "sequence_parallel", is_sequence_parallel_ ? "true" : "false",
        is_sequence_parallel_ ? "they gather and scatter" : "they are all-reduces");
}

void Recognition::find_pipeline() {
  const std::int64_t whole = tokens_ * hidden_;
  const SeenAttention& a = attention_;
  const std::int64_t keys = a.batch > 0 && a.seq > 0 ? tokens_ * a.kv_heads * (a.dim + a.value_dim) : 0;
  std::int64_t ring = 1;
  std::map<std::pair<std::string, std::int64_t>, double> sends;  // [group and members]
  for_messages([&](const SeenMessages& m) {
    if (m.members > kMostCuts || m.cls != KernelClass::send_recv || m.group == tensor_group_) return;
    if (m.elements == keys) ring = m.members;  // keys and values go round
    if (m.elements != keys && (m.elements == whole || m.elements * tp_ == whole))
      sends[{m.group, m.members}] += m.count;
  });
  // Rings within layers send more often. Both directions may have a group, and send equally often.
  // The first stage alone has the embedding.
  const bool has_stages =
      !is_own_ || std::any_of(ranks_.begin(), ranks_.end(), [](const Evidence& rank) { return rank.embeddings == 0; });
  if (!has_stages) sends.clear();
  double least = 0;
  for (const auto& [group, count] : sends)
    if (least == 0 || count < least) {
      least = count;
      pp_ = group.second;
    }
  for (const auto& [group, count] : sends)
    if (group.second == pp_ && count == least) sends_ += count;
  set("parallel", "pipeline_model_parallel_size", pp_,
      pp_ > 1 ? "the group of messages between stages" : "no message between stages");
  if (a.batch > 0 && a.seq > 0) cp_ = std::max<std::int64_t>(1, a.batch * a.seq / tokens_);
  cp_ = std::max(cp_, ring);
  if (cp_ > kMostCuts) refuse("attention has far more tokens than products have rows; expected one step of a model");
  if (is_own_ || cp_ > 1 || a.seq > 0)
    set("parallel", "context_parallel_size", cp_, "rows of attention over those of products");
  else
    found_.unknown.push_back("context_parallel_size: attention has no shapes; 1 is assumed");
}

void Recognition::find_experts() {
  if (experts_.experts == 0) return;
  set("model", "num_moe_experts", experts_.experts, "what the router chooses from");
  set("model", "moe_router_topk", experts_.topk, "what it chooses");
  if (experts_.local > 0) ep_ = std::max<std::int64_t>(1, experts_.experts / experts_.local);
  set("parallel", "expert_model_parallel_size", ep_, fmt::format("{} experts on a rank", experts_.local));
  // Ranks that cut experts gather the rows of all of them; otherwise a rank routes its own.
  const double share = double(experts_.rows) / std::max(1., double(experts_.routed_rows * experts_.topk));
  etp_ = tp_ > 1 && share * 2 > double(tp_) ? tp_ : 1;
  if (tp_ > 1) set("parallel", "expert_tensor_parallel_size", etp_, "rows of experts over rows of the router");
  for (const SeenWeight& weight : experts_.weights)
    if (weight.out == hidden_) set("model", "moe_ffn_hidden_size", weight.in * etp_, "products of experts");
  if (experts_.is_sigmoid) set("model", "moe_router_score_function", std::string("\"sigmoid\""), "the router's work");
}

// Gradients are summed by data-parallel ranks, and tied embeddings by the first and the last stage.
void Recognition::find_data_groups() {
  double elements = 0;
  for (const SeenWeight& weight : weights_) elements += double(weight.in) * double(weight.out);
  std::map<std::int64_t, double> summed, gathered;  // [members]
  for_messages([&](const SeenMessages& m) {
    if (m.group == tensor_group_) return;
    if (head_ != nullptr && pp_ > 1 && m.elements == head_->in * head_->out && m.members == 2) return;
    if (sums(m.cls)) summed[m.members] += double(m.elements) * m.count;
    if (m.cls == KernelClass::all_gather) gathered[m.members] += double(m.elements) * m.count;
  });
  std::erase_if(summed, [&](const auto& group) { return group.second < kLeastOfWeights * elements; });
  std::int64_t members = 1;
  for (const auto& [size, total] : summed) members = std::max(members, size);
  // Weights outside the experts, and experts, are summed by groups of ranks whose numbers follow from each other.
  // Of two ways to explain the groups the one fits whose sums have the sizes of the weights.
  double of_dense = 0, of_experts = 0;
  for (const SeenWeight& w : weights_) of_dense += double(w.in) * double(w.out) * w.gradients;
  for (const Evidence& rank : ranks_)
    for (const SeenWeight& w : rank.experts.weights)
      of_experts += double(w.in) * double(w.out) * double(rank.experts.local) * w.gradients;
  double least = INFINITY;
  const auto try_groups = [&](std::int64_t dense, std::int64_t expert) {
    if (dense < 1 || expert < 1 || dense * tp_ != expert * ep_ * etp_) return;
    double distance = 0;
    for (const auto& [size, total] : summed) {
      if (size != dense && size != expert) return;
      const double size_of_group =
          ((size == dense ? of_dense : 0) + (size == expert ? of_experts : 0)) / std::max(1., micro_batches_);
      distance += std::abs(std::log(total / std::max(1., size_of_group)));
    }
    if (distance >= least) return;
    least = distance;
    members = dense;
  };
  if (experts_.experts > 0)
    for (const auto& [size, total] : summed) {
      try_groups(size, size * tp_ / (ep_ * etp_));
      try_groups(size * ep_ * etp_ / tp_, size);
    }
  const std::int64_t world = ranks_.front().ranks, others = tp_ * pp_ * cp_;
  if (world > 0 && world % others == 0)
    dp_ = world / others;
  else if (members % cp_ == 0)
    dp_ = members / cp_;
  set("parallel", "data_parallel_size", dp_,
      world > 0 ? fmt::format("{} ranks in all", world) : fmt::format("gradients are summed by {} ranks", members));
  const bool scatters = [&] {
    bool any = false;
    for_messages([&](const SeenMessages& m) {
      any = any || (m.cls == KernelClass::reduce_scatter && m.group != tensor_group_ && m.members == members);
    });
    return any;
  }();
  if (dp_ > 1 && !scatters && summed.contains(members))
    set("parallel", "use_distributed_optimizer", std::string("false"), "gradients are all-reduced");
  // A step gathers sharded weights for each pass, updated ones once.
  if (scatters && gathered[members] > 1.5 * summed[members] && micro_batches_ >= 1)
    set("parallel", "data_parallel_sharding_strategy", std::string("\"optim_grads_params\""),
        "weights are gathered more often than gradients are summed");
}

void Recognition::find_batch() {
  const std::int64_t batch = std::max<std::int64_t>(attention_.batch, 1);
  if (attention_.batch > 0)
    set("training", "micro_batch_size", batch, "the batch of attention");
  else
    found_.unknown.push_back(fmt::format(
        "micro_batch_size and seq_length: attention has no shapes; {} rows are taken for one sequence", tokens_));
  set("model", "seq_length", attention_.seq > 0 ? attention_.seq : tokens_ * cp_, "tokens of attention");
  if (micro_batches_ < 1) {
    found_.unknown.push_back("global_batch_size: the traced ranks have no embedding and no loss");
    return;
  }
  if (double(batch) * micro_batches_ * double(dp_) > double(std::int64_t{1} << 32))
    refuse("has more sequences in a step than a scenario may; expected one step of a model");
  const auto steps = static_cast<std::int64_t>(std::llround(micro_batches_));
  set("training", "global_batch_size", batch * steps * dp_,
      fmt::format("{} micro-batches in each of {} replicas", steps, dp_));
  if (pp_ < 2) return;
  if (!is_own_ || traced_replicas() < 1) {
    found_.unknown.push_back("virtual_pipeline_model_parallel_size: not all stages are traced with their messages");
    return;
  }
  // A micro-batch passes between chunks on neighbouring stages, forward and backward.
  const double hops = sends_ / traced_replicas() / 2 / micro_batches_, chunks = (hops + 1) / double(pp_);
  const auto virtual_stages = static_cast<std::int64_t>(std::llround(chunks));
  const bool is_interleaved = virtual_stages > 1 && std::abs(chunks - double(virtual_stages)) < 1e-6;
  if (is_interleaved)
    set("parallel", "virtual_pipeline_model_parallel_size", virtual_stages,
        fmt::format("a micro-batch goes {:.0f} times from a stage to another", hops));
  // Two stages with virtual ones pass messages side by side (Megatron-LM's condition, arguments.py:1006).
  if (is_interleaved && pp_ == 2)
    set("overlap", "overlap_p2p_comm", std::string("true"), "two stages with virtual ones need it");
  if (std::abs(hops - 2 * double(pp_ - 1)) < 1e-6)
    found_.unknown.push_back("pipeline_schedule: stages have two chunks each in the form of a V (zb-v or dualpipev)");
}

}  // namespace stretto::diagnose
