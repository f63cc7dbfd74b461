#include "ask/request.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/error.hpp"
#include "exec/documents.hpp"
#include "habits/model_names.hpp"
#include "habits/question.hpp"
#include "model/scenario/overrides.hpp"

namespace stretto::ask {
namespace {

// Refuses a name that is longer than a path can be, so that the name does not come back in a message.
const std::string& short_name(const char* what, const std::string& name) {
  constexpr std::size_t kMost = 4096;  // PATH_MAX of Linux
  if (name.size() > kMost)
    throw input_error(
        fmt::format("{}: expected a name or a path of at most {} bytes, got {}", what, kMost, name.size()));
  return name;
}

}  // namespace

Request found(Request of) {
  if (habits::is_question(of.set)) {
    of.scenario = habits::scenario_of_names(of.scenario, of.set, of.platform);
    return of;
  }
  if (habits::answer_of(of.scenario) != nullptr) return of;
  std::error_code problem;
  if (!std::filesystem::exists(of.scenario, problem) && habits::model_named(of.scenario) != nullptr &&
      !predict::is_scenario_name(of.scenario))
    throw input_error(
        fmt::format("{}: expected --gpus N with the name of a model, or a scenario file, got none", of.scenario));
  return of;
}

Request checked(Request of) {
  short_name("scenario", of.scenario);
  short_name("platform", of.platform);
  of.set = full_settings(std::move(of.set));
  return found(std::move(of));
}

Asked::Asked(Request of) : request(checked(std::move(of))), input(request.scenario), scenario(with({})) {}

void Asked::read_platform(std::shared_ptr<const sim::Platform> known) {
  platform = known ? std::move(known)
                   : std::make_shared<const sim::Platform>(predict::read_platform_input(request.platform, scenario));
  fusions = predict::open_fusions(scenario, request.scenario, request.set, *platform);
  fusions.apply(scenario);
}

Scenario Asked::with(const std::vector<std::string>& further) const {
  std::vector<std::string> set = request.set;
  set.insert(set.end(), further.begin(), further.end());
  Scenario read = exec::with_measured_documents(input.read(std::move(set), request.platform));
  fusions.apply(read);
  return read;
}

}  // namespace stretto::ask
