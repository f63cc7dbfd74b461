#include "model/schedule/json.hpp"

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <variant>

namespace stretto {
namespace {

using Json = nlohmann::json;

template <class Enum, std::size_t n>
const char* pick(const std::array<const char*, n>& names, Enum value) {
  return names.at(static_cast<std::size_t>(value));
}

const char* text_of(AccessMode mode) { return pick(std::array{"read", "write", "accumulate"}, mode); }
const char* text_of(EdgeKind kind) { return pick(std::array{"finish_start", "start_start"}, kind); }
const char* text_of(LaneKind kind) { return pick(std::array{"compute", "communication"}, kind); }
const char* text_of(CommEngine engine) { return pick(std::array{"sm", "copy_engine", "nic"}, engine); }

Json to_json(const Expr& expr) { return expr.is_constant() ? Json(expr.eval({})) : Json(expr.text()); }

Json to_json(const std::vector<AdamW::Range>& ranges) {
  Json array = Json::array();
  for (const AdamW::Range& range : ranges) array.push_back({range.begin, range.end});
  return array;
}
Json to_json(const SequenceParts& parts) {
  return {{"of", parts.of}, {"first", to_json(parts.first)}, {"count", parts.count}};
}
template <class Scaling>
requires std::is_same_v<Scaling, RopeScaling> || std::is_same_v<Scaling, YarnScaling> ||
    std::is_same_v<Scaling, ScoreRules>
        Json to_json(const Scaling& scaling) {
  Json json;
  for_each_field(scaling, [&](const char* name, auto value) { json[name] = value; });
  return json;
}
template <class T>
requires std::is_arithmetic_v<T> Json to_json(T number) { return number; }
template <class Enum>
requires std::is_enum_v<Enum> Json to_json(Enum value) { return name_of(value); }

Json to_json(const Work& work) {
  Json json;
  const auto add = [&](const char* name, const auto& field) { json[name] = to_json(field); };
  std::visit([&](const auto& kind) { for_each_field(kind, add); }, work);
  json["kind"] = kind_of(work);
  return json;
}

Json to_json(const Access& access) {
  const View& view = access.view;
  return {{"mode", text_of(access.mode)},
          {"tensor", view.tensor},
          {"layer", to_json(view.layer)},
          {"slot", to_json(view.slot)},
          {"offset", to_json(view.offset)},
          {"rows", view.rows},
          {"cols", view.cols},
          {"ld", view.ld}};
}

Json to_json(const Edge& edge) {
  return {{"kind", text_of(edge.kind)},         {"op", edge.on.op},       {"layer", edge.on.layer},
          {"micro_batch", edge.on.micro_batch}, {"chunk", edge.on.chunk}, {"steps_ago", edge.on.steps_ago}};
}

template <class T>
Json array_of(const std::vector<T>& items, Json (*one)(const T&)) {
  Json array = Json::array();
  for (const T& item : items) array.push_back(one(item));
  return array;
}

Json to_json(const MeshAxis& axis) { return {{"coord", name_of(axis.coord)}, {"size", axis.size}}; }
Json to_json(const Lane& lane) {
  return {{"name", lane.name}, {"kind", text_of(lane.kind)}, {"priority", lane.priority}, {"queue", lane.queue}};
}
Json to_json(const Communicator& communicator) {
  Json axes = Json::array();
  for (const Coord axis : communicator.axes) axes.push_back(name_of(axis));
  return {{"name", communicator.name},
          {"axes", axes},
          {"engine", text_of(communicator.engine)},
          {"channels", communicator.channels},
          {"size", communicator.size},
          {"subset", communicator.subset}};
}
Json to_json(const Storage& storage) {
  return {{"name", storage.name},
          {"dtype", name_of(storage.dtype)},
          {"kind", name_of(storage.kind)},
          {"elements", storage.elements}};
}
Json to_json(const TensorPlace& place) { return Json::array({place.storage, place.offset}); }
Json to_json(const Tensor& tensor) {
  return {{"name", tensor.name},     {"rows", tensor.rows},   {"cols", tensor.cols},
          {"layers", tensor.layers}, {"slots", tensor.slots}, {"places", array_of(tensor.places, to_json)}};
}
Json to_json(const ArrayCut& cut) {
  return {{"begin", to_json(cut.begin)}, {"rows", cut.rows}, {"cols", cut.cols}, {"ld", cut.ld}};
}
Json to_json(const ModelArray& array) {
  return {{"name", array.name}, {"rows", array.rows},           {"cols", array.cols},
          {"mean", array.mean}, {"deviation", array.deviation}, {"cuts", array_of(array.cuts, to_json)}};
}
Json to_json(const StateBucket& bucket) {
  Json windows = Json::object();
  for (int i = 0; i < kStateParts; ++i)
    if (const auto part = static_cast<StatePart>(i); const auto& window = bucket.window(part))
      windows[name_of(part)] = {{"storage", window->storage}, {"begin", to_json(window->begin)}};
  return {{"program", bucket.program},
          {"own_begin", to_json(bucket.own_begin)},
          {"own_elements", bucket.own_elements},
          {"windows", windows}};
}
Json to_json(const StatePiece& piece) { return Json::array({piece.array, piece.layer, piece.bucket, piece.offset}); }
Json to_json(const StateMap& state) {
  return {{"arrays", array_of(state.arrays, to_json)},
          {"buckets", array_of(state.buckets, to_json)},
          {"pieces", array_of(state.pieces, to_json)}};
}
Json to_json(const StepData& data) {
  return {{"tokens", data.tokens},
          {"targets", data.targets},
          {"dropout_keys", data.dropout_keys ? Json(*data.dropout_keys) : Json()},
          {"documents", data.documents ? Json(*data.documents) : Json()},
          {"loss_weight", data.loss_weight ? Json(*data.loss_weight) : Json()},
          {"hyper", data.hyper},
          {"metrics", data.metrics},
          {"first_sample", to_json(data.first_sample)},
          {"parts", to_json(data.parts)}};
}
Json to_json(const Operation& operation) {
  return {{"name", operation.name},
          {"work", to_json(operation.work)},
          {"lane", operation.lane},
          {"phase", name_of(operation.phase)},
          {"accesses", array_of(operation.accesses, to_json)}};
}
Json to_json(const BlockWait& wait) { return {{"op", wait.op}, {"kind", text_of(wait.kind)}, {"on", wait.on}}; }
Json to_json(const Block& block) {
  return {{"name", block.name}, {"ops", block.ops}, {"waits", array_of(block.waits, to_json)}};
}
Json to_json(const Call& call) {
  return {{"block", call.block},   {"layer", call.layer},       {"micro_batch", call.micro_batch},
          {"chunk", call.chunk},   {"slot", call.slot},         {"buffer", call.buffer},
          {"first", call.first},   {"count", call.count},       {"waits", array_of(call.waits, to_json)},
          {"joined", call.joined}, {"sequence", call.sequence}, {"concurrent", call.concurrent}};
}
Json to_json(const Program& program) { return {{"role", program.role}, {"order", array_of(program.order, to_json)}}; }

Json other_views(const Mesh& mesh) {
  Json views = Json::array();
  for (std::size_t v = 1; v < mesh.decompositions().size(); ++v)
    views.push_back(array_of(mesh.decompositions()[v], to_json));
  return views;
}

}  // namespace

Json write_schedule_json(const Schedule& schedule) {
  return {{"format", "stretto-schedule-1"},
          {"name", schedule.name},
          {"compute_dtype", name_of(schedule.compute_dtype)},
          {"notes", schedule.notes},
          {"mesh", {{"axes", array_of(schedule.mesh.axes(), to_json)}, {"other_views", other_views(schedule.mesh)}}},
          {"placement",
           {{"ranks_per_device", schedule.placement.ranks_per_device},
            {"threads_per_rank", schedule.placement.threads_per_rank}}},
          {"lanes", array_of(schedule.lanes, to_json)},
          {"communicators", array_of(schedule.communicators, to_json)},
          {"storages", array_of(schedule.storages, to_json)},
          {"tensors", array_of(schedule.tensors, to_json)},
          {"state", to_json(schedule.state)},
          {"step_data", to_json(schedule.step_data)},
          {"operations", array_of(schedule.operations, to_json)},
          {"blocks", array_of(schedule.blocks, to_json)},
          {"programs", array_of(schedule.programs, to_json)}};
}

}  // namespace stretto
