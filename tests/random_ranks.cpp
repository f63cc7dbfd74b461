#include <algorithm>

#include "tests/random_scenario.hpp"

namespace stretto::testing {
namespace {

constexpr std::int64_t kMostRanks = 16;

}  // namespace

void RandomScenario::add(const TomlSection& section, std::string& text) {
  text += section.text();
  keys_.insert(keys_.end(), section.keys().begin(), section.keys().end());
}

void RandomScenario::sizes() {
  do {
    pp_ = draw_.one_of({1, 2, 2, 2, 3, 3, 4, 5, 8});
    tp_ = draw_.one_of({1, 1, 1, 2, 2, 3, 4});
    dp_ = draw_.one_of({1, 1, 2, 2, 3, 4, 7});
    cp_ = draw_.one_of({1, 1, 1, 2, 2, 3, 4});
  } while (pp_ * tp_ * dp_ * cp_ > kMostRanks);
  if (pp_ > 1) vp_ = draw_.one_of({1, 1, 2, 2, 3});
  std::string schedule = pp_ > 1 ? draw_.one_of({"1f1b", "1f1b", "zb-h1", "zb-v", "dualpipev"}) : "1f1b";
  // Pairs of passes need a layout in which few draws are.
  pairs_ = others_.between(0, 9) == 0;
  if (pairs_) {
    pp_ = others_.one_of({1, 1, 2, 3});
    vp_ = pp_ > 1 ? 2 : 1;
    tp_ = others_.between(1, 2);
    dp_ = others_.between(2, pp_ == 3 ? 2 : 4);
    cp_ = 1;
    schedule = "1f1b";
  }
  zero_bubble_ = schedule != "1f1b";
  is_dual_ = schedule == "dualpipev";
  is_latent_ = cp_ == 1 && others_.one_of({false, false, true});
  if (zero_bubble_) vp_ = schedule == "zb-h1" ? 1 : 2;
  parallel_.set("pipeline_schedule", schedule);
  sequence_parallel_ = draw_.coin() || pairs_;
  parallel_.set("data_parallel_size", dp_);
  parallel_.set("tensor_model_parallel_size", tp_);
  parallel_.set("sequence_parallel", sequence_parallel_);
  distributed_optimizer_ = !draw_.seldom();
  has_instances_ = distributed_optimizer_ && !pairs_;
  parallel_.set("use_distributed_optimizer", distributed_optimizer_);
  sharding();
  instances();
  scatters_ = draw_.coin();
  parallel_.set("scatter_gather_tensors_in_pipeline", scatters_);
  has_order_ = draw_.coin() && !pairs_;
  if (has_order_)
    parallel_.set("order", cp_ > 1 ? draw_.one_of<std::string>({"tp-cp-pp-dp", "dp-tp-pp-cp", "pp-cp-dp-ep-tp"})
                                   : draw_.one_of<std::string>({"tp-pp-dp", "dp-tp-pp", "pp-cp-dp-ep-tp"}));
  parallel_.set("context_parallel_size", cp_);
  parallel_.set("pipeline_model_parallel_size", pp_);
  parallel_.set("virtual_pipeline_model_parallel_size", vp_);
  cluster_.set("ranks_per_device",
               draw_.one_of({std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, tp_, tp_ * cp_, tp_ * dp_}));
}

void RandomScenario::sharding() {
  const bool is_unit =
      distributed_optimizer_ && !pairs_ && (pp_ == 1 ? !draw_.seldom() : draw_.one_of({false, false, true}));
  if (is_unit) {
    const std::string strategy =
        zero_bubble_ ? "optim_grads_params" : draw_.one_of({"optim_grads", "optim_grads_params", "optim_grads_params"});
    parallel_.set("data_parallel_sharding_strategy", strategy);
    if (strategy == "optim_grads_params")
      parallel_.set("reshard_after_forward", !zero_bubble_ && (pp_ == 1 ? !draw_.seldom() : draw_.coin()));
  } else if (draw_.seldom()) {
    parallel_.set("data_parallel_sharding_strategy", distributed_optimizer_ ? "optim" : "no_shard");
  }
  const bool is_concurrent = !draw_.seldom();
  overlap_.set("fsdp_comm_overlap", is_concurrent);
  unit_overlap_ = is_unit && is_concurrent;
  overlap_.set("fsdp_prefetch_depth", draw_.between(0, 4));
}

void RandomScenario::instances() {
  if (!has_instances_) return;
  for (const std::int64_t count : {3, 2})
    if (dp_ % count == 0 && dp_ * cp_ > count && draw_.coin()) instances_ = count;
  if (instances_ > 1 || draw_.seldom()) parallel_.set("num_distributed_optimizer_instances", instances_);
}

void RandomScenario::context_of_layers() {
  const auto any = [&] { return std::string(draw_.one_of({"p2p", "p2p", "all_gather", "a2a", "a2a+p2p"})); };
  std::vector<std::string> types = {any()};
  if (draw_.coin()) {
    while (std::ssize(types) < layers_) types.push_back(any());
    parallel_.set("cp_comm_type", types);
  } else {
    parallel_.set("cp_comm_type", types.front());
  }
  if (std::count(types.begin(), types.end(), "a2a+p2p") > 0) {
    exchange_ = cp_ % 2 == 0 && draw_.coin() ? 2 : draw_.coin() ? 1 : cp_;
    parallel_.set("hierarchical_context_parallel_sizes", std::vector<std::int64_t>{exchange_, cp_ / exchange_});
  }
  if (std::count(types.begin(), types.end(), "a2a") > 0) exchange_ = cp_;
  may_have_rules_ = cp_ == 1 || std::count(types.begin(), types.end(), "a2a") == std::ssize(types);
}

void RandomScenario::split() {
  if (draw_.seldom())
    split_by_layout();
  else
    split_by_counts();
  model_.set("num_layers", layers_);
}

void RandomScenario::split_by_layout() {
  std::vector<std::string> chunks;
  for (std::int64_t c = 0; c < pp_ * vp_; ++c) {
    const bool is_first = c == 0, is_last = c + 1 == pp_ * vp_;
    const std::int64_t layers = draw_.between(is_first || is_last ? 0 : 1, 2);
    layers_ += layers;
    const std::string text = layers == 2 && draw_.coin() ? "t*2" : std::string(static_cast<std::size_t>(layers), 't');
    chunks.push_back((is_first ? "E" : "") + text + (is_last ? "L" : ""));
  }
  if (layers_ == 0) chunks.front() += "t", layers_ = 1;
  std::string text;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const bool is_repeated = c + 2 < chunks.size() && chunks[c] == chunks[c + 1] && draw_.coin();
    if (is_repeated) {
      text += "(" + chunks[c] + "|)*2";
      ++c;
    } else {
      text += chunks[c] + (c + 1 < chunks.size() ? draw_.one_of({"|", " | ", ",|"}) : "");
    }
  }
  parallel_.set("pipeline_model_parallel_layout", text);
}

void RandomScenario::split_by_counts() {
  const std::int64_t each = vp_ * draw_.between(1, pp_ * vp_ > 8 ? 1 : 2);
  layers_ = each * pp_;
  const auto uneven = [&](const char* key) {
    if (pp_ == 1 || !draw_.seldom()) return;
    const std::int64_t layers = vp_ * draw_.between(1, 3);
    layers_ += layers - each;
    parallel_.set(key, layers);
  };
  uneven("num_layers_in_first_pipeline_stage");
  uneven("num_layers_in_last_pipeline_stage");
  const auto account = [&](const char* key) {
    if (!draw_.seldom()) return;
    --layers_;
    parallel_.set(key, true);
  };
  account("account_for_embedding_in_pipeline_split");
  account("account_for_loss_in_pipeline_split");
}

}  // namespace stretto::testing
