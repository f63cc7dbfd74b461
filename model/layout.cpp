#include "model/layout.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"
#include "base/values_of.hpp"

namespace stretto {
namespace {

constexpr std::size_t kMostPieces = 1 << 20;  // characters of a layout after its repetitions are written out

Error layout_error(const std::string& what) { return input_error("pipeline_model_parallel_layout: expected " + what); }

// Writes repetitions out: the result has only E, t, L and |.
class Expander {
 public:
  explicit Expander(const std::string& text) : text_(text) {}

  std::string run() {
    std::string all = sequence(0);
    if (at_ < text_.size()) throw layout_error("an opening parenthesis before the one at character " + place());
    return all;
  }

 private:
  std::string place() const { return std::to_string(at_ + 1); }

  std::string sequence(int depth) {
    constexpr int kDeepest = 64;
    if (depth > kDeepest) throw layout_error("at most 64 nested parentheses");
    std::string all;
    while (at_ < text_.size() && text_[at_] != ')') {
      const char c = text_[at_];
      if (c == ' ' || c == ',') {
        ++at_;
        continue;
      }
      std::string piece;
      if (c == '(') {
        ++at_;
        piece = sequence(depth + 1);
        if (at_ == text_.size()) throw layout_error("a closing parenthesis at the end");
        ++at_;
      } else if (c == 'E' || c == 't' || c == 'L' || c == '|') {
        piece = c;
        ++at_;
      } else {
        throw layout_error(std::string("E, t, L, |, *, a number or parentheses at character ") + place() + ", got '" +
                           c + "'");
      }
      const std::size_t count = repetitions();
      if (all.size() + piece.size() * count > kMostPieces) throw layout_error("at most 2^20 layers and bars");
      for (std::size_t i = 0; i < count; ++i) all += piece;
    }
    return all;
  }

  std::size_t repetitions() {
    if (at_ == text_.size() || text_[at_] != '*') return 1;
    ++at_;
    std::size_t count = 0;
    bool has_digits = false;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])); ++at_) {
      count = count * 10 + static_cast<std::size_t>(text_[at_] - '0');
      has_digits = true;
      if (count > kMostPieces) throw layout_error("at most 2^20 repetitions");
    }
    if (!has_digits) throw layout_error("a number after * at character " + place());
    return count;
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

std::int64_t divided(std::int64_t layers, std::int64_t parts, const char* what) {
  if (layers < 0 || layers % parts != 0)
    throw input_error("pipeline_model_parallel_size: expected " + std::string(what) + " " + std::to_string(layers) +
                      " to divide by " + std::to_string(parts) +
                      "; num_layers_in_first_pipeline_stage, num_layers_in_last_pipeline_stage or "
                      "pipeline_model_parallel_layout split unevenly");
  return layers / parts;
}

// Returns the number of layers of every stage, as Megatron-LM counts them.
std::vector<std::int64_t> layers_of_stages(const Transformer& model, const Parallel& p) {
  const std::int64_t stages = p.pipeline_model_parallel_size;
  std::vector<std::int64_t> layers(static_cast<std::size_t>(stages), 0);
  std::int64_t rest = model.num_layers, others = stages;
  for (const auto& [given, stage] : {std::pair(p.num_layers_in_first_pipeline_stage, std::int64_t{0}),
                                     std::pair(p.num_layers_in_last_pipeline_stage, stages - 1)}) {
    if (given == 0) continue;
    layers[static_cast<std::size_t>(stage)] = given;
    rest -= given;
    --others;
  }
  if (others < 0)
    throw input_error("num_layers_in_last_pipeline_stage: expected at least 2 stages, got " + std::to_string(stages));
  rest += std::int64_t(p.account_for_embedding_in_pipeline_split) + std::int64_t(p.account_for_loss_in_pipeline_split);
  // The message names a key that was given.
  const std::string named = p.num_layers_in_first_pipeline_stage > 0 ? "num_layers_in_first_pipeline_stage"
                                                                     : "num_layers_in_last_pipeline_stage";
  if (others == 0 && rest != 0)
    throw input_error(named + ": expected all " + std::to_string(model.num_layers) +
                      " layers on the stages given, got " + std::to_string(model.num_layers - rest));
  if (rest < 0)
    throw input_error(named + ": expected at most " + std::to_string(model.num_layers) +
                      " layers on the stages given, got " + std::to_string(model.num_layers - rest));
  const std::int64_t each = others > 0 ? divided(rest, others, "the remaining layers") : 0;
  for (std::int64_t& stage : layers)
    if (stage == 0) stage = each;
  const StageMap map = stage_map(p);
  const auto of_stage = [&](std::int64_t stage) -> std::int64_t& { return layers[static_cast<std::size_t>(stage)]; };
  of_stage(map.first_stage()) -= std::int64_t(p.account_for_embedding_in_pipeline_split);
  of_stage(map.last_stage()) -= std::int64_t(p.account_for_loss_in_pipeline_split);
  return layers;
}

}  // namespace

std::vector<ModelChunk> parse_layout(const std::string& text) {
  std::vector<ModelChunk> chunks(1);
  std::int64_t layer = 0;
  for (const char c : Expander(text).run()) {
    ModelChunk& chunk = chunks.back();
    if (c == 'E' && (chunks.size() > 1 || layer > 0 || chunk.has_embedding))
      throw layout_error("one E, at the beginning");
    if (c != '|' && chunk.has_head) throw layout_error("one L, at the end");
    if (c == 'E') chunk.has_embedding = true;
    if (c == 't') chunk.end_layer = ++layer;
    if (c == 'L') chunk.has_head = true;
    if (c == '|') chunks.push_back({layer, layer, false, false});
  }
  if (!chunks.front().has_embedding) throw layout_error("E at the beginning");
  if (!chunks.back().has_head) throw layout_error("L at the end");
  return chunks;
}

std::vector<ModelChunk> model_chunks(const Transformer& model, const Parallel& p) {
  const StageMap map = stage_map(p);
  const auto count = static_cast<std::size_t>(map.pieces());
  if (!p.pipeline_model_parallel_layout.empty()) {
    std::vector<ModelChunk> chunks = parse_layout(p.pipeline_model_parallel_layout);
    if (chunks.size() != count)
      throw layout_error(std::to_string(count) +
                         " chunks (pipeline_model_parallel_size x "
                         "virtual_pipeline_model_parallel_size), got " +
                         std::to_string(chunks.size()));
    if (chunks.back().end_layer != model.num_layers)
      throw layout_error(std::to_string(model.num_layers) + " layers, got " + std::to_string(chunks.back().end_layer));
    for (const ModelChunk& chunk : chunks)
      if (chunk.layers() == 0 && !chunk.has_embedding && !chunk.has_head)
        throw layout_error("something in every chunk");
    return chunks;
  }
  const std::vector<std::int64_t> of_stage = layers_of_stages(model, p);
  std::vector<ModelChunk> chunks;
  std::int64_t layer = 0;
  for (std::size_t piece = 0; piece < count; ++piece) {
    const std::int64_t stage = map.stage_of(static_cast<std::int64_t>(piece));
    const bool is_first = piece == 0, is_last = piece + 1 == count;
    // The embedding and the head count as a layer of the first and of the last chunk.
    const std::int64_t counted_first = stage == map.first_stage() && p.account_for_embedding_in_pipeline_split,
                       counted_last = stage == map.last_stage() && p.account_for_loss_in_pipeline_split;
    std::int64_t layers = divided(of_stage[static_cast<std::size_t>(stage)] + counted_first + counted_last, map.chunks,
                                  "the layers of a stage");
    if (is_first) layers -= counted_first;
    if (is_last) layers -= counted_last;
    if (layers < 0 || (layers == 0 && !is_first && !is_last))
      throw input_error("pipeline_model_parallel_size: expected at least one layer for every model chunk, got " +
                        std::to_string(model.num_layers) + " layers for " + std::to_string(count) + " chunks");
    chunks.push_back({layer, layer + layers, is_first, is_last});
    layer += layers;
  }
  return chunks;
}

const char* name_of(Sharding sharding) {
  return name_in({"no_shard", "optim", "optim_grads", "optim_grads_params"}, sharding);
}

const char* name_of(TokenDispatcher dispatcher) { return name_in({"allgather", "alltoall", "flex"}, dispatcher); }
const char* name_of(FlexBackend backend) { return name_in({"deepep", "hybridep", "ncclep"}, backend); }

const char* name_of(PipelineSchedule schedule) { return name_in({"1f1b", "zb-h1", "zb-v", "dualpipev"}, schedule); }

const char* name_of(CpCommType type) { return name_in({"p2p", "all_gather", "a2a", "a2a+p2p"}, type); }

std::string names_of(const std::vector<CpCommType>& types) {
  std::string names;
  for (const CpCommType type : types) names += (names.empty() ? "\"" : ", \"") + std::string(name_of(type)) + "\"";
  return names;
}

std::vector<CpCommType> Parallel::cp_comm_types() const {
  std::vector<CpCommType> types;
  for (const CpCommType type : cp_comm_type)
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
  return types;
}

std::int64_t Parallel::cp_exchange_size(CpCommType type) const {
  if (type == CpCommType::a2a) return context_parallel_size;
  return type == CpCommType::a2a_p2p ? cp_neighbours() : 1;
}

bool Parallel::has_cp_ring() const {
  return std::any_of(cp_comm_type.begin(), cp_comm_type.end(), [&](CpCommType type) { return has_cp_ring(type); });
}

bool Parallel::has_cp_comm_type(CpCommType type) const {
  return std::find(cp_comm_type.begin(), cp_comm_type.end(), type) != cp_comm_type.end();
}

std::vector<Coord> axes_in_order(const Parallel& parallel) {
  const std::array axes = {
      std::pair{"tp", parallel.tensor_model_parallel_size}, std::pair{"cp", parallel.context_parallel_size},
      std::pair{"dp", parallel.data_parallel_size}, std::pair{"pp", parallel.pipeline_model_parallel_size}};
  const std::vector<std::string> known = {"tp", "cp", "ep", "dp", "pp"};
  std::vector<Coord> order;
  std::vector<std::string> seen;
  for (std::size_t begin = 0; begin <= parallel.order.size();) {
    const std::size_t end = std::min(parallel.order.find('-', begin), parallel.order.size());
    const std::string name = parallel.order.substr(begin, end - begin);
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw input_error("expected tp, cp, ep, dp and pp with dashes between them, got \"" + parallel.order + "\"");
    if (std::find(seen.begin(), seen.end(), name) != seen.end())
      throw input_error("expected " + name + " once, got \"" + parallel.order + "\"");
    seen.push_back(name);
    if (name == "tp") order.push_back(Coord::tp);
    if (name == "cp") order.insert(order.end(), {Coord::cp_exchange, Coord::cp});
    if (name == "dp") order.insert(order.end(), {Coord::dp, Coord::dp_instance});
    if (name == "pp") order.push_back(Coord::pp);
    begin = end + 1;
  }
  for (const auto& [name, size] : axes)
    if (size > 1 && std::find(seen.begin(), seen.end(), name) == seen.end())
      throw input_error(std::string("expected ") + name + " as well, of " + std::to_string(size) + " ranks, got \"" +
                        parallel.order + "\"");
  if (std::find(order.begin(), order.end(), Coord::dp) == order.end()) order.push_back(Coord::dp);
  return order;
}

Coord expert_tp_axis(const Parallel& parallel) {
  const bool is_tp = !parallel.experts_apart() || (parallel.expert_tp() == parallel.tensor_model_parallel_size &&
                                                   axes_in_order(parallel).front() == Coord::tp);
  return is_tp ? Coord::tp : Coord::etp;
}

std::int64_t Parallel::size_of(Coord axis) const {
  switch (axis) {
    case Coord::tp:
      return tensor_model_parallel_size;
    case Coord::cp:
      return context_parallel_size / cp_neighbours();
    case Coord::cp_exchange:
      return cp_neighbours();
    case Coord::dp:
      return instance_data_parallel_size();
    case Coord::dp_instance:
      return num_distributed_optimizer_instances;
    case Coord::pp:
      return pipeline_model_parallel_size;
    case Coord::ep:
      return expert_model_parallel_size;
    case Coord::edp:
      return expert_dp();
    case Coord::etp:
      return expert_tp();
    case Coord::micro_batch:
    case Coord::layer:
    case Coord::chunk:
    case Coord::slot:
    case Coord::buffer:
      break;
  }
  throw std::logic_error("no ranks lie along this coordinate");
}

std::vector<std::pair<Coord, std::int64_t>> axes_of_experts(const Parallel& parallel) {
  // An axis that the order leaves out lies in front of the next one here.
  constexpr int kApart = 4;
  const auto at = [&](const char* name, int otherwise) {
    const std::size_t found = parallel.order.find(name);
    return found == std::string::npos ? otherwise : kApart * static_cast<int>(found);
  };
  const int pp = at("pp", kApart * 100), dp = at("dp", pp - 1), ep = at("ep", dp - 1), tp = at("tp", -1);
  std::vector<std::pair<int, std::pair<Coord, std::int64_t>>> placed = {
      {ep, {Coord::ep, parallel.size_of(Coord::ep)}}, {dp, {Coord::edp, parallel.size_of(Coord::edp)}}};
  if (parallel.expert_tp() > 1) placed.push_back({tp, {expert_tp_axis(parallel), parallel.expert_tp()}});
  if (parallel.size_of(Coord::pp) > 1) placed.push_back({pp, {Coord::pp, parallel.size_of(Coord::pp)}});
  std::sort(placed.begin(), placed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::pair<Coord, std::int64_t>> axes;
  for (const auto& [place, axis] : placed) axes.push_back(axis);
  return axes;
}

std::vector<RankGroup> rank_groups(const Parallel& parallel) {
  const std::int64_t stages = parallel.pipeline_model_parallel_size;
  return {{"dp", Parallel::kReplicas, parallel.replicas()},
          {"tp", "tensor_model_parallel_size", parallel.tensor_model_parallel_size},
          {"cp", "context_parallel_size", parallel.context_parallel_size},
          {"pp", "pipeline_model_parallel_size", stages},
          {"ep", "expert_model_parallel_size", parallel.expert_model_parallel_size},
          {"edp", "ranks of a stage with equal experts", parallel.experts_apart() ? parallel.expert_dp() : 1},
          // The gradients of tied embeddings are summed on a lane of another group.
          {"embd", "pipeline_model_parallel_size", stages, false}};
}

}  // namespace stretto
