#include "ask/show.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/memory.hpp"
#include "model/build_schedule.hpp"
#include "model/model_json.hpp"
#include "model/schedule/json.hpp"
#include "model/schedule/print.hpp"

namespace stretto::ask {
namespace {

const Scenario& on_named_platform(Asked& asked) {
  if (!asked.request.platform.empty() && !asked.platform) asked.read_platform();
  return asked.scenario;
}

}  // namespace

ShowAnswer show(Asked& asked) {
  const Scenario& scenario = on_named_platform(asked);
  return {scenario.model, plan_and_verify(build_schedule(scenario, free_memory_bytes()))};
}

Gates gates(Asked& asked) { return gates_of(on_named_platform(asked)); }

std::string text_of(const ShowAnswer& answer) {
  const Schedule& schedule = answer.verified.schedule;
  const MemoryPlan& plan = answer.verified.plan;
  std::string text = model_text(answer.model) + print_schedule(schedule);
  for (std::size_t role = 0; role < plan.roles.size(); ++role)
    text += fmt::format("{}memory{}: {} bytes a rank planned, {} without sharing\n", role == 0 ? "\n" : "",
                        plan.roles.size() > 1 ? " of " + schedule.programs[role].role : "", plan.roles[role].bytes,
                        plan.roles[role].bytes_without_sharing);
  text += "verified: no race, no read of unwritten bytes, no deadlock\n";
  for (const std::string& note : schedule.notes) text += "note: " + note + "\n";
  return text;
}

nlohmann::json json_of(const ShowAnswer& answer) {
  nlohmann::json json = write_schedule_json(answer.verified.schedule);
  json["model"] = model_json(answer.model);
  return json;
}

}  // namespace stretto::ask
