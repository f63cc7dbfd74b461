#include "calibrate/notebook.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <stdexcept>

#include "tests/temp_dir.hpp"

namespace stretto::calibrate {

TEST_CASE("a notebook measures each part once, whoever opens it next", "[calibrate]") {
  const testing::TempDir dir;
  const std::string path = (dir.path() / "host.toml.partial").string();
  int measured = 0;
  const auto samples = [&] {
    ++measured;
    return std::vector<Sample>{{"gemm", {1, 2.5}, sim::DemandClass::attention, 0.1, 3}};
  };
  {
    Notebook first(path, {{"cores", 2}});
    first.part("samples", samples);
    CHECK(first.part("samples", samples).size() == 1);
    // A probe that ends in the middle keeps the results before it.
    CHECK_THROWS(first.part("second", []() -> std::vector<double> { throw std::runtime_error("interrupted"); }));
  }
  Notebook next(path, {{"cores", 2}});
  CHECK(next.parts() == 1);
  const std::vector<Sample> kept = next.part("samples", samples);
  CHECK(measured == 1);
  CHECK(kept[0].key == "gemm");
  CHECK(kept[0].features == std::vector<double>{1, 2.5});
  CHECK(kept[0].cls == sim::DemandClass::attention);
  CHECK(kept[0].us == 0.1);

  Notebook other(path, {{"cores", 4}});
  CHECK(other.parts() == 0);
  CHECK_THAT(other.why_not(), Catch::Contains("another machine"));
  next.remove();
  CHECK(Notebook(path, {{"cores", 2}}).parts() == 0);
  CHECK(Notebook(path, {{"cores", 2}}).why_not().empty());
}

TEST_CASE("what is not a notebook's is not used", "[calibrate]") {
  const testing::TempDir dir;
  const std::string path = (dir.path() / "partial").string();
  for (const std::string text : {"", "no JSON", "[]", "{}", R"({"format": 1})",
                                 R"({"format": "stretto-calibration-1", "about": {}, "parts": [], "saved_s": 0})",
                                 R"({"format": "stretto-calibration-1", "about": {}, "parts": {}, "saved_s": 0})"}) {
    INFO(text);
    std::ofstream(path, std::ios::trunc) << text;
    if (text.find("\"parts\": {}") != std::string::npos) {
      const Notebook notebook(path, nlohmann::json::object());
      CHECK(notebook.parts() == 0);
      CHECK_FALSE(notebook.why_not().empty());
    } else {
      CHECK_THROWS_WITH(Notebook(path, nlohmann::json::object()),
                        Catch::Contains("is no calibration that was interrupted, and would be overwritten"));
    }
  }
  // A result of another kind is measured again.
  {
    Notebook notebook(path, nlohmann::json::object());
    notebook.part("times", [] { return std::string("none"); });
  }
  CHECK(Notebook(path, nlohmann::json::object()).part("times", [] { return std::vector<double>{1}; }).size() == 1);
}

// Ctrl-C takes effect before the next run of a probe, whichever it is.
TEST_CASE("a probe ends when it is interrupted", "[calibrate]") {
  struct Enough {};
  for (const int last : {0, 1, 3}) {
    int calls = 0;
    const Machine machine = ending(host_machine(2), [&] {
      if (calls++ == last) throw Enough{};
    });
    CHECK_THROWS_AS(probe_collectives(machine, 2, 1), Enough);
    CHECK(calls == last + 1);
    calls = 0;
    CHECK_THROWS_AS(probe_interference(machine, 2), Enough);
    CHECK(calls == last + 1);
    calls = 0;
    Notebook notebook;
    CHECK_THROWS_AS(probe_steps([&](int) { return machine; }, 2, notebook, [](const std::string&) {}), Enough);
    CHECK(calls == last + 1);
  }
}

}  // namespace stretto::calibrate
