#include "base/load.hpp"

#include <catch2/catch.hpp>

#include "tests/temp_dir.hpp"

namespace stretto {
namespace {

// A folder like /proc of a machine with two processors, whose counters are in ticks of 10 ms.
class FakeProc {
 public:
  // Sets the time that both processors together have been used, stolen and idle, in seconds.
  void set(double used_s, double stolen_s, double idle_s) {
    const auto line = [&](const char* name, double share) {
      const auto ticks = [&](double s) { return std::to_string(static_cast<long>(100 * s * share + 0.5)); };
      return std::string(name) + " " + ticks(used_s) + " 0 0 " + ticks(idle_s) + " 0 0 0 " + ticks(stolen_s) + " 0 0\n";
    };
    folder_.write("stat", line("cpu ", 1) + line("cpu0", 0.5) + line("cpu1", 0.5) + "intr 1 2 3\n");
  }
  void set_program(int process, const std::string& name, double used_s) {
    std::filesystem::create_directories(folder_.path() / std::to_string(process));
    folder_.write(std::to_string(process) + "/stat", std::to_string(process) + " (" + name +
                                                         ") R 1 1 1 0 -1 0 0 0 0 0 " +
                                                         std::to_string(static_cast<long>(100 * used_s)) + " 0 0 0\n");
  }
  void set_average(const char* text) { folder_.write("loadavg", text); }
  LoadMeter meter(double* own_s, std::vector<int> processors = {0, 1}) const {
    return {folder_.str(), std::move(processors), [own_s] { return *own_s; }, 0.01};
  }

 private:
  testing::TempDir folder_;
};

}  // namespace

TEST_CASE("what others use of the cores is what processors worked, less what this process did", "[load]") {
  FakeProc proc;
  double own_s = 1;
  proc.set(10, 1, 100);
  proc.set_average("4.50 1 1 3/100 42\n");
  proc.set_program(7, "cc1plus (1) x", 3);
  proc.set_program(8, "sleeps", 5);
  LoadMeter meter = proc.meter(&own_s);
  CHECK(meter.load().cores == 0);  // nothing is known before a turn
  meter.begin_turn();
  // In ten seconds of two processors: 6 s by this process, 8 s by others, 2 s by other machines, 4 s idle.
  own_s = 7;
  proc.set(24, 3, 104);
  proc.set_program(7, "cc1plus (1) x", 8);
  proc.set_program(9, "new\x1b", 2);
  meter.end_turn();
  const Load load = meter.load();
  CHECK(load.cores == 2);
  CHECK(load.others_cores == Approx(0.8));
  CHECK(load.stolen_cores == Approx(0.2));
  CHECK(load.average == 4.5);
  CHECK(load.names == std::vector<std::string>{"cc1plus (1) x", "new\\x1b"});
  // Two ranks want both cores: of 20 s others took 10. One rank leaves a core, which is enough for them.
  CHECK(load.taken_pct(2) == Approx(100));
  CHECK(load.taken_pct(8) == Approx(100));
  CHECK(load.taken_pct(1) == 0);
}

TEST_CASE("a load is that of the median turn, on the processors that this process may use", "[load]") {
  FakeProc proc;
  double own_s = 0;
  proc.set(0, 0, 0);
  LoadMeter both = proc.meter(&own_s), one = proc.meter(&own_s, {1}), other = proc.meter(&own_s, {5});
  double used_s = 0, idle_s = 0;
  for (const double busy_s : {0.0, 4.0, 1.0}) {
    for (LoadMeter* meter : {&both, &one, &other}) meter->begin_turn();
    used_s += busy_s;
    idle_s += 20 - busy_s;
    proc.set(used_s, 0, idle_s);
    for (LoadMeter* meter : {&both, &one, &other}) meter->end_turn();
  }
  CHECK(both.load().others_cores == Approx(0.1));
  CHECK(one.load().others_cores == Approx(0.05));
  CHECK(one.load().cores == 1);
  CHECK(other.load().cores == 0);
  CHECK(other.load().taken_pct(2) == 0);
}

TEST_CASE("the load of this machine is between nothing and all of its cores", "[load]") {
  LoadMeter meter;
  meter.begin_turn();
  volatile double sum = 0;
  for (int i = 0; i < 100'000'000; ++i) sum = sum + i;
  meter.end_turn();
  const Load load = meter.load();
  CHECK(load.others_cores >= 0);
  CHECK(load.others_cores <= load.cores);
}

}  // namespace stretto
