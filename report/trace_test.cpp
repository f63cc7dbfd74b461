#include "report/trace.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "tests/temp_dir.hpp"
#include "tests/test_program.hpp"

using namespace stretto;
using Catch::Matchers::Contains;
using stretto::test::HandMade;

namespace {

nlohmann::json traced(const std::vector<TraceSection>& sections) {
  const stretto::testing::TempDir folder;
  const std::string path = folder.file("trace.json");
  write_trace(path, sections);
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

}  // namespace

TEST_CASE("a trace holds a slice per operation, in processes and threads from top to bottom", "[trace]") {
  HandMade made(4);
  made.timeline.step_begin = 5'000'000, made.timeline.step_end = 105'000'000;
  made.compute(5'000'000, 5'500'001, 45'000'000);
  const auto reduce = made.add(1, 45'000'000, 46'000'000, 50'000'000, 80'000'000, {{0}});
  made.compute(80'000'000, 80'000'000, 105'000'000, {{reduce}});
  made.wait_for_previous_step(0, reduce);
  const BoundStep step = test::step_of(made.schedule, {made.program});
  const auto json = traced({{"predicted \"plain\"", &made.schedule, &step, &made.timeline},
                            {"measured", &made.schedule, &step, &made.timeline}});

  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> threads;
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> slices;
  std::vector<nlohmann::json> first_section;
  for (const auto& event : json.at("traceEvents")) {
    const int pid = event.at("pid"), tid = event.at("tid");
    if (event.at("name") == "process_name") processes[pid] = event.at("args").at("name");
    if (event.at("name") == "process_sort_index") CHECK(event.at("args").at("sort_index") == pid);
    if (event.at("name") == "thread_name") threads[{pid, tid}] = event.at("args").at("name");
    if (event.at("ph") != "X") continue;
    slices[{pid, tid}].emplace_back(event.at("ts"), event.at("ts").get<double>() + event.at("dur").get<double>());
    if (pid == 1) first_section.push_back(event);
  }
  CHECK(processes == std::map<int, std::string>{{1, "predicted \"plain\", rank 4"}, {2, "measured, rank 4"}});
  CHECK(threads.at({1, 1}) == "compute");
  CHECK(threads.at({2, 2}) == "dp");
  std::size_t count = 0;
  for (auto& [thread, spans] : slices) {
    CHECK(threads.count(thread) == 1);
    std::sort(spans.begin(), spans.end());
    for (std::size_t i = 1; i < spans.size(); ++i) CHECK(spans[i].first >= spans[i - 1].second - 1e-9);
    count += spans.size();
  }
  CHECK(count == 6);

  REQUIRE(first_section.size() == 3);
  const auto &compute = first_section[0], &communication = first_section[1];
  CHECK(compute.at("ts").get<double>() == Approx(0.500001));
  CHECK(compute.at("dur").get<double>() == Approx(39.499999));
  CHECK(compute.at("args").at("queued_us").get<double>() == Approx(0.500001));
  CHECK_THAT(compute.at("args").at("waits").get<std::string>(),
             Contains("dp: ") && Contains("dp.1") && Contains("(1 step ago)"));
  CHECK(communication.at("args").at("waited_for_peers_us").get<double>() == Approx(4));
  CHECK(communication.at("args").at("transfer_us").get<double>() == Approx(30));
  CHECK_THAT(first_section[2].at("args").at("waits").get<std::string>(), Contains("dp: ") && Contains("dp.1"));
}

TEST_CASE("time 0 is the first operation, and the step's begin is marked", "[trace]") {
  HandMade made;
  made.timeline.step_begin = 2'000'000, made.timeline.step_end = 3'000'000;
  made.compute(1'500'000, 1'500'000, 2'500'000);
  const BoundStep step = test::step_of(made.schedule, {made.program});
  const auto json = traced({{"a", &made.schedule, &step, &made.timeline}});
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") == "X") CHECK(event.at("ts").get<double>() == Approx(0));
    if (event.at("ph") == "i") CHECK(event.at("ts").get<double>() == Approx(0.5));
  }
}

TEST_CASE("a trace that cannot be written is a runtime error naming the path", "[trace]") {
  for (const std::string path : {"/dev/full", "/absent/directory/trace.json"}) {
    try {
      write_trace(path, {});
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::runtime);
      CHECK_THAT(error.what(), Contains(path));
    }
  }
}
