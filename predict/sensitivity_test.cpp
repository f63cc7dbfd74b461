#include "predict/sensitivity.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "calibrate/import/import_platform.hpp"
#include "model/build_schedule.hpp"
#include "model/verify/verify.hpp"
#include "predict/constants.hpp"
#include "predict/predict_step.hpp"
#include "predict/quick_step.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/engine.hpp"
#include "tests/cases.hpp"
#include "tests/random_gpu_scenario.hpp"
#include "tests/temp_dir.hpp"

namespace stretto::predict {
namespace {

constexpr const char* kLimitsScenario =
    "platform = \"h100-sxm\"\nprofile = \"nemo-dgxc\"\n[model]\npreset = \"llama3-8b\"\nnum_layers = 8\n"
    "[parallel]\ntensor_model_parallel_size = 2\npipeline_model_parallel_size = 2\ndata_parallel_size = 8\n"
    "sequence_parallel = true\n[training]\nglobal_batch_size = 64\n"
    "[overlap]\noverlap_grad_reduce = true\noverlap_param_gather = true\n";

// Returns ln of the step of the whole schedule with a number changed by a factor.
double log_step(const Scenario& scenario, sim::Platform platform, const std::string& name, double factor) {
  Scenario changed = scenario;
  for (const Constant& constant : constants_of(*platform.accelerator, changed.framework))
    if (constant.name == name) constant.quantity->value *= factor;
  return std::log(predict_step(changed, platform).prediction.step_ms);
}

// Simulates steps of a whole schedule with changed constants. The schedule is verified once.
class WholeStep {
 public:
  WholeStep(const Scenario& scenario, const sim::Platform& platform)
      : scenario_(scenario), platform_(platform), verified_(plan_and_verify(build_schedule(scenario))) {}
  // Returns ln of the step with a number changed by a factor.
  double log_step_with(const std::string& name, double factor) const {
    sim::Platform platform = platform_;
    Framework framework = scenario_.framework;
    for (const Constant& constant : constants_of(*platform.accelerator, framework))
      if (constant.name == name) constant.quantity->value *= factor;
    const sim::Costs costs =
        sim::cost_schedule(verified_.schedule, platform, scenario_.cluster, 1, framework, scenario_.training);
    return std::log(double(sim::simulate(verified_.schedule, static_cast<const BoundStep&>(verified_), costs).step));
  }

 private:
  const Scenario& scenario_;
  const sim::Platform& platform_;
  VerifiedSchedule verified_;
};

// Derivatives that were compared.
struct Compared {
  int scenarios = 0, simulated = 0, equal = 0, at_corner = 0, wrong = 0;
};

// A step has corners where two causes of a time change places: a derivative there is that of one side.
void compare_numbers(const std::string& text, Compared& compared) {
  constexpr double kStep = 1e-3, kMargin = 1e-4;
  const Scenario scenario = parse_scenario(text, "s.toml");
  const sim::Platform platform = sim::read_platform(scenario.platform);
  const WholeStep whole(scenario, platform);
  std::string why_simulated;
  const std::vector<Sensitivity> numbers = sensitivities_of(scenario, platform, &why_simulated);
  ++compared.scenarios;
  if (!why_simulated.empty()) {
    ++compared.simulated;
    if (std::getenv("STRETTO_DERIVATIVES_PRINT") != nullptr) WARN(why_simulated << "\n" << text);
    return;
  }
  for (const Sensitivity& number : numbers) {
    const auto log_step_at = [&](double factor) { return whole.log_step_with(number.constant, factor); };
    const double here = log_step_at(1);
    const double left = (here - log_step_at(1 - kStep)) / -std::log(1 - kStep);
    const double right = (log_step_at(1 + kStep) - here) / std::log(1 + kStep);
    const double central = (left + right) / 2, allowed = 0.01 * std::abs(central) + kMargin;
    CAPTURE(number.constant, number.pct_per_pct, left, right);
    if (std::abs(number.pct_per_pct - central) <= allowed)
      ++compared.equal;
    else if (number.pct_per_pct > std::min(left, right) - allowed &&
             number.pct_per_pct < std::max(left, right) + allowed)
      ++compared.at_corner;
    else
      ++compared.wrong;
    if (std::getenv("STRETTO_DERIVATIVES_PRINT") != nullptr && std::abs(number.pct_per_pct - central) > allowed)
      WARN(number.constant << " " << number.pct_per_pct << " left " << left << " right " << right << "\n" << text);
  }
}

}  // namespace

namespace {

// The rates of a platform file that `--limits` doubles, of one link.
struct Link {
  LinkKind kind;
  const char* way;
  const char* section;
};
constexpr Link kLinks[] = {{LinkKind::nvlink, "twice the rate of NVLink", "[accelerator.nvlink]"},
                           {LinkKind::network, "twice the rate of the network", "[accelerator.network]"}};

// Returns a platform whose file has twice the rate of a link.
sim::Platform with_twice(const std::filesystem::path& file, const Link& link) {
  std::ifstream in(file);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::size_t rate = text.find("GBps = { value = ", text.find(link.section)) + 17;
  const std::size_t length = text.find(',', rate) - rate;
  text.replace(rate, length, std::to_string(2 * std::stod(text.substr(rate, length))));
  const testing::TempDir dir;
  for (const auto& entry : std::filesystem::directory_iterator(file.parent_path()))
    if (entry.path().extension() == ".csv")
      std::filesystem::copy_file(entry.path(), dir.path() / entry.path().filename());
  return sim::read_platform(dir.write("twice.toml", text));
}

// Returns the same platform as `stretto calibrate --base` makes it.
sim::Platform calibrated_with_twice(const sim::Platform& base, const Link& link) {
  calibrate::DataSheet sheet;
  (link.kind == LinkKind::nvlink ? sheet.nvlink_GBps : sheet.network_GBps) =
      2 * (link.kind == LinkKind::nvlink ? base.accelerator->nvlink : base.accelerator->network).GBps.value;
  return calibrate::import_platform("twice", {}, base, sheet).platform;
}

// Checks the gain of faster links, and returns on how many links the step is exposed.
int check_links(const Scenario& scenario, const sim::Platform& platform) {
  const Prediction p = predict_step(scenario, platform).prediction;
  const std::vector<BetterMachine> machines = better_machines(scenario, platform);
  const QuickStep quick(scenario);
  int exposed = 0;
  for (const Link& link : kLinks) {
    if (p.exposed_ms(link.kind) < 0.03 * p.step_ms) continue;
    ++exposed;
    const auto machine =
        std::find_if(machines.begin(), machines.end(), [&](const BetterMachine& m) { return m.change == link.way; });
    REQUIRE(machine != machines.end());
    CAPTURE(scenario.name, link.way, p.step_ms, p.exposed_ms(link.kind), machine->step_ms);
    CHECK(machine->step_ms < 0.995 * p.step_ms);
    CHECK(1e3 * quick.step_s(with_twice(scenario.platform, link), scenario.framework) == machine->step_ms);
    // The tables of a calibrated platform are scaled, and interpolated between the scaled times.
    CHECK(1e3 * quick.step_s(calibrated_with_twice(platform, link), scenario.framework) ==
          Approx(machine->step_ms).epsilon(1e-6));
  }
  return exposed;
}

}  // namespace

TEST_CASE("a faster link shortens every shipped step that waits for it, by --limits as in a platform file") {
  int exposed = 0;
  std::vector<std::string> paths;
  for (const std::string& name : data_names("models")) paths.push_back(data_file("models", name));
  for (const std::string& name : data_names("modes")) paths.push_back(data_file("modes", name));
  testing::Cases cases;
  for (const std::string& path : paths) {
    const Scenario scenario = read_scenario(path);
    if (scenario.platform.empty() || !cases.takes_next()) continue;
    const sim::Platform platform = sim::read_platform(scenario.platform);
    if (platform.accelerator) exposed += check_links(scenario, platform);
  }
  // Tensor parallelism with nothing hidden: 27 % of the step is exposed on NVLink.
  const Scenario scenario = parse_scenario(
      "platform = \"h100-sxm\"\nprofile = \"nemo-dgxc\"\n[model]\npreset = \"llama3-70b\"\n"
      "num_layers = 8\n[parallel]\ntensor_model_parallel_size = 8\nsequence_parallel = true\n"
      "[overlap]\ntp_comm_overlap = false\n[training]\nglobal_batch_size = 4\n",
      "exposed");
  exposed += check_links(scenario, sim::read_platform(scenario.platform));
  CHECK(exposed > 0);
}

// Each way of --limits acts on what a step of its kind reads.
TEST_CASE("a better machine shortens steps in every precision, of fused and of unfused attention") {
  const std::string begin =
      "platform = \"b200-sxm\"\nprofile = \"nemo-dgxc\"\n[model]\npreset = \"llama3-8b\"\nnum_layers = 4\n"
      "[training]\nglobal_batch_size = 8\n";
  const auto gains = [&](const std::string& training, const std::string& way) {
    const Scenario scenario = parse_scenario(begin + training, "s");
    const sim::Platform platform = sim::read_platform(scenario.platform);
    const double step_ms = 1e3 * QuickStep(scenario).step_s(platform, scenario.framework);
    for (const BetterMachine& machine : better_machines(scenario, platform))
      if (machine.change == way) return machine.step_ms < 0.97 * step_ms;
    return false;
  };
  for (const char* precision : {"", "fp8_format = \"hybrid\"\n", "fp8_format = \"e4m3\"\nfp8_recipe = \"mxfp8\"\n",
                                "fp4_format = \"e2m1\"\n"}) {
    CAPTURE(precision);
    CHECK(gains(precision, "products in half of their time"));
  }
  CHECK(gains("attention_backend = \"unfused\"\n", "attention in half of its time"));
}

TEST_CASE("derivatives of --limits are those of whole steps, interference and network included") {
  const Scenario scenario = parse_scenario(kLimitsScenario, "s.toml");
  const sim::Platform platform = sim::read_platform(scenario.platform);
  std::string why_simulated;
  std::vector<Sensitivity> numbers = sensitivities_of(scenario, platform, &why_simulated);
  CHECK(why_simulated.empty());
  REQUIRE(numbers.size() > 8);
  const auto is_there = [&](const std::string& name) {
    return std::any_of(numbers.begin(), numbers.end(), [&](const Sensitivity& s) { return s.constant == name; });
  };
  CHECK(is_there("accelerator.beside_communication.loss"));
  CHECK(is_there("accelerator.network.GBps"));
  for (std::size_t i = 1; i < numbers.size(); ++i)
    CHECK(std::abs(numbers[i].pct_per_pct) <= std::abs(numbers[i - 1].pct_per_pct));
  if (testing::is_fast_suite()) numbers.resize(4);
  for (const Sensitivity& number : numbers) {
    CAPTURE(number.constant);
    const double difference =
        log_step(scenario, platform, number.constant, 1.01) - log_step(scenario, platform, number.constant, 0.99);
    CHECK(number.pct_per_pct == Approx(difference / std::log(1.01 / 0.99)).epsilon(0.01).margin(2e-4));
  }
}

TEST_CASE("derivatives of random steps are those of whole steps") {
  const auto scenarios = static_cast<int>(testing::from_environment("STRETTO_DERIVATIVES", testing::share_of(16)));
  Compared compared;
  for (std::uint64_t seed = testing::from_environment("STRETTO_DERIVATIVES_SEED", 1); compared.scenarios < scenarios;
       ++seed) {
    CAPTURE(seed);
    try {
      compare_numbers(testing::random_gpu_scenario(seed), compared);
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::input);
    }
  }
  CAPTURE(compared.scenarios, compared.simulated, compared.equal, compared.at_corner, compared.wrong);
  if (std::getenv("STRETTO_DERIVATIVES_PRINT") != nullptr)
    WARN(compared.scenarios << " scenarios, " << compared.simulated << " of them simulated: " << compared.equal
                            << " equal, " << compared.at_corner << " at a corner, " << compared.wrong << " wrong");
  CHECK(compared.wrong == 0);
  CHECK(compared.at_corner * 50 <= compared.equal);
  CHECK(compared.simulated * 10 <= compared.scenarios);
}

}  // namespace stretto::predict
