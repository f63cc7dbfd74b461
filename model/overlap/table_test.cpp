#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/overlap/overlap.hpp"

namespace stretto {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  REQUIRE(file.good());
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::size_t count_of(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("every overlap mode that a file of this folder makes is in the table, and in docs/schedule.md") {
  const fs::path folder = fs::path(__FILE__).parent_path();
  std::size_t made = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".cpp" && entry.path() != fs::path(__FILE__))
      made += count_of(text_of(entry.path()), "_mode() {\n");
  CHECK(made == overlap_modes().size());
  const std::string document = text_of(folder / "../../docs/schedule.md");
  for (const OverlapMode& mode : overlap_modes()) {
    INFO(mode.name);
    CHECK((mode.knob.empty() || document.find("| `" + mode.name + "` |") != std::string::npos));
  }
}

TEST_CASE("each row of the table sets its own mode, clears it, and has the gates of its knob") {
  const OverlapMode& plain = overlap_modes().front();
  CHECK(plain.knob.empty());
  Overlap every;
  for (const OverlapMode& mode : overlap_modes()) {
    if (mode.on) every.*mode.on = true;
    if (mode.configure) mode.configure(every);
  }
  set_mode(every, plain);
  CHECK(mode_name(every) == "plain");
  for (const OverlapMode& mode : overlap_modes()) {
    INFO(mode.name);
    CHECK(&find_overlap_mode(mode.name) == &mode);
    CHECK_FALSE(mode.meaning.empty());
    CHECK_FALSE(mode.is_set(every));
    Scenario scenario;
    set_mode(scenario.overlap, mode);
    CHECK(mode_name(scenario.overlap) == mode.name);
    CHECK(mode.knob.empty() == (mode.on == nullptr));
    if (mode.knob.empty()) continue;
    CHECK((mode.name != mode.knob || mode.gates));
    CHECK(&find_overlap_mode(mode.knob) != &plain);  // the mode with the knob's keys
    // A single rank does not communicate: the gates know the knob, which does not act or needs one that is refused.
    const Gates gates = gates_of(scenario);
    CHECK((!gates.acts(mode.knob) || gates.refused({}) != nullptr));
    for (const Gate& gate : gates.all()) CHECK((gate.open || !gate.reason().empty()));
  }
}

}  // namespace stretto
