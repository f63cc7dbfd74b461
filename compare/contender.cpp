#include "compare/contender.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/overlap/overlap.hpp"
#include "model/schedule/json.hpp"

namespace stretto::compare {
namespace {

// All of a schedule but its name and what is said about it.
nlohmann::json content_of(const Schedule& schedule) {
  nlohmann::json content = write_schedule_json(schedule);
  content.erase("name");
  content.erase("notes");
  return content;
}

}  // namespace

double step_ms(const Timeline& timeline) { return to_ms(timeline.step_end - timeline.step_begin); }

std::vector<std::unique_ptr<Contender>> contenders_of(const Grid& grid, std::int64_t ranks,
                                                      const exec::Machine& machine, const exec::TokenSource& tokens) {
  std::vector<std::unique_ptr<Contender>> contenders;
  std::vector<nlohmann::json> contents;
  const auto add = [&](const std::string& mode) {
    Scenario scenario = with_mode(grid.scenario, mode, ranks);
    const exec::RunOptions options = exec::run_options(scenario);
    contenders.push_back(std::make_unique<Contender>(std::move(scenario), machine, options, tokens));
    contenders.back()->mode = mode;
  };
  for (const std::string& mode : grid.modes) {
    nlohmann::json content = content_of(build_schedule(with_mode(grid.scenario, mode, ranks)));
    if (const auto equal = std::find(contents.begin(), contents.end(), content); equal != contents.end()) {
      contenders[static_cast<std::size_t>(equal - contents.begin())]->equal_modes.push_back(mode);
      continue;
    }
    add(mode);
    contents.push_back(std::move(content));
  }
  add(grid.modes.front());
  return contenders;
}

}  // namespace stretto::compare
