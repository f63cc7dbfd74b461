#include "ask/run/diagnose.hpp"

#include <nlohmann/json.hpp>

#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "base/gpu_name.hpp"
#include "base/memory.hpp"
#include "base/toml.hpp"
#include "diagnose/page.hpp"
#include "habits/model_names.hpp"

namespace stretto::ask {
namespace {

diagnose::KnownModel known_model(const std::string& name) {
  if (name.empty()) return {};
  const habits::ModelName* model = habits::model_named(name);
  if (model == nullptr) {
    const std::string nearest = habits::nearest_model(name);
    throw input_error("--model: expected the name of a model (`stretto list models`), got " + in_quotes(name) +
                      (nearest.empty() ? "" : "; did you mean " + in_quotes(nearest) + "?"));
  }
  diagnose::KnownModel known{model->name, habits::keys_of_model(*model)};
  known.shape = parse_scenario("[model]\nseq_length = 4096\n" + known.keys, "model " + model->name).model;
  return known;
}

// The platform of the GPU that the trace names; "" where none has it.
std::string platform_of(const diagnose::Traces& traces) {
  const std::string device = traces.section.ranks.front().device;
  if (gpu_model(device).empty()) return "";
  for (const std::string& name : data_names("platforms"))
    if (gpu_model(sim::read_platform(data_file("platforms", name)).device) == gpu_model(device)) return name;
  return "";
}

}  // namespace

diagnose::Traces traces_of(const TraceRequest& of) {
  keep_within_free_memory();
  diagnose::Traces traces = diagnose::read_traces(trace::trace_files(of.trace), of.rank, of.section);
  if (!of.window.empty()) keep_window(traces, diagnose::parse_window(of.window));
  return traces;
}

diagnose::Found recognised(const TraceRequest& of) {
  const diagnose::KnownModel known = known_model(of.model);
  const diagnose::Traces traces = traces_of(of);
  return diagnose::recognise(traces, known, of.platform.empty() ? platform_of(traces) : of.platform);
}

std::unique_ptr<const Explained> explained(const Asked& asked, const TraceRequest& of) {
  auto result = std::make_unique<Explained>();
  const sim::Platform& platform = *asked.platform;
  result->traces = traces_of(of);
  diagnose::require_same_gpu(result->traces, platform);
  result->step = predict::predict_step(asked.scenario, platform);
  result->diagnosed = diagnose::diagnose(result->step, result->traces, asked.scenario.name,
                                         platform.gpu.has_value() || platform.accelerator.has_value());
  return result;
}

nlohmann::json json_of(const Explained& explained) {
  return diagnosis_json(explained.diagnosed, explained.traces, explained.step.prediction);
}

nlohmann::json json_of(const diagnose::Found& found) {
  nlohmann::json keys = nlohmann::json::object();
  for (const diagnose::FoundKey& key : found.keys)
    keys[key.section.empty() ? key.key : key.section + "." + key.key] = key.value;
  return {{"scenario", found.text()}, {"keys", keys}, {"not_known", found.unknown}};
}

}  // namespace stretto::ask
