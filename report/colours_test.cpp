#include "report/colours.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "model/build_schedule.hpp"
#include "tests/cases.hpp"
#include "tests/random_layout.hpp"

namespace stretto {

TEST_CASE("no two colours are equal, and all are in the style", "[html]") {
  const std::string css = palette_css();
  std::set<std::string> names, light, dark;
  for (const Colour& colour : palette()) {
    INFO(colour.name << " " << colour.light << " " << colour.dark);
    CHECK(names.insert(colour.name).second);
    CHECK(light.insert(colour.light).second);
    CHECK(dark.insert(colour.dark).second);
    CHECK(css.find("--" + colour.name + ": " + colour.light) != std::string::npos);
    CHECK(css.find("--" + colour.name + ": " + colour.dark) != std::string::npos);
    CHECK(css.find("\n." + colour.name + " {") != std::string::npos);
  }
  for (int phase = 0; phase <= static_cast<int>(Phase::param_sync); ++phase)
    CHECK(names.count(colour_of_phase(static_cast<Phase>(phase))) == 1);
  for (const CollectiveKind kind : {CollectiveKind::dispatch, CollectiveKind::combine})
    CHECK(names.count(colour_of_exchange(kind)) == 1);
}

TEST_CASE("every communicator of a schedule has a colour of its own", "[html]") {
  std::set<std::string> names;
  for (const Colour& colour : palette()) names.insert(colour.name);
  std::set<std::string> seen;
  for (int seed = 1; seed <= testing::share_of(150); ++seed) {
    const testing::RandomLayout layout = testing::random_layout(static_cast<std::uint64_t>(seed));
    std::map<std::string, std::string> communicator_of;  // [colour]
    for (const Communicator& communicator : build_schedule(layout.scenario).communicators) {
      const std::string colour = colour_of_communicator(communicator.name);
      INFO(communicator.name << " " << colour);
      CHECK(names.count(colour) == 1);
      CHECK(colour != "comm-other");
      CHECK(communicator_of.try_emplace(colour, communicator.name).second);
      seen.insert(communicator.name);
    }
  }
  CHECK(seen.size() > (testing::is_fast_suite() ? 5 : 20));
}

}  // namespace stretto
