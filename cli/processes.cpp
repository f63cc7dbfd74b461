#include "cli/processes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <optional>
#include <ostream>
#include <sstream>

#include "base/error.hpp"
#include "base/memory.hpp"
#include "cli/version.hpp"
#include "exec/cuda/cuda.hpp"
#include "exec/documents.hpp"
#include "exec/launch/spawn.hpp"
#include "exec/launch/world.hpp"
#include "model/build_schedule.hpp"
#include "model/overlap/overlap.hpp"
#include "model/scenario/given_keys.hpp"
#include "model/schedule/residency.hpp"
#include "predict/fusions.hpp"
#include "predict/inputs.hpp"

namespace stretto::cli {
namespace {

// Longest time that processes may be apart outside of a step: while some write or read on slow file systems.
constexpr double kProcesses_s = 300;

// Returns the text of a file; "" where no file is named.
std::string text_of(const std::string& path) {
  std::ifstream file(path);
  if (!path.empty() && !file) throw input_error(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Joins the other processes as rank world.rank and calls `act`.
void run_as_one_of(const launch::World& world,
                   const std::function<void(launch::ProcessGroup* processes, std::ostream& out)>& act) {
  std::ostream nowhere(nullptr);
  const auto say = [](const std::string& line) { std::cerr << "stretto: note: " + line + "\n" << std::flush; };
  if (world.rank == 0 && world.size > 1 && world.token.empty() && !launch::is_loopback(world.address))
    say(fmt::format(
        "whoever reaches {}:{} can join or read along: set STRETTO_TOKEN for all processes (docs/launch.md)",
        world.address, world.port));
  launch::ProcessGroup processes(world, kProcesses_s, say);
  try {
    act(&processes, world.rank == 0 ? std::cout : nowhere);
  } catch (const Error& error) {
    if (*error.what() == '\0') throw;  // another process reports the reason why all stop
    processes.fail(error.what(), error.kind());
    // The first failure may be another one than this process noticed.
    const std::string first = *processes.failure();
    if (!first.ends_with(error.what())) throw Error(error.kind(), first);
    throw;
  } catch (const std::exception& error) {
    processes.fail(error.what());
    throw;
  }
}

// Returns the scenario of `options` with as many ranks as there are processes. Adds to `notes` when the file says
// otherwise. Throws Error(input) when the model's axes do not divide them.
Scenario scenario_for_processes(const CommonOptions& options, std::int64_t processes, std::vector<std::string>& notes) {
  const auto with = [&](std::int64_t data_parallel_size) {
    std::vector<std::string> set = options.set;
    set.push_back(fmt::format("parallel.data_parallel_size={}", data_parallel_size));
    return read_scenario(options.scenario, set);
  };
  // The file's layout may not fit in memory although the processes' layout does: one replica fits wherever several do.
  bool is_possible = true;
  Scenario scenario;
  try {
    scenario = read_scenario(options.scenario, options.set);
  } catch (const Error& error) {
    is_possible = false;
    try {
      scenario = with(1);
    } catch (const Error&) {
      throw error;
    }
  }
  const std::int64_t given = scenario.parallel.data_parallel_size, of_model = scenario.parallel.model_ranks();
  if (is_possible && given * of_model == processes) return scenario;
  if (processes % of_model != 0)
    throw input_error(fmt::format("{}: [parallel]: {} processes were started; expected a multiple of {} = {}",
                                  options.scenario, processes, Parallel::kModelRanks, of_model));
  scenario = with(processes / of_model);
  const std::string instead = is_possible ? fmt::format(" and not {}", given) : "";
  notes.push_back(
      fmt::format("data_parallel_size is {}{}: there are {} processes", processes / of_model, instead, processes));
  return scenario;
}

// Checks that all processes have equal scenarios, platforms, --set options and backends.
void require_same_inputs(launch::ProcessGroup& processes, const ScenarioOptions& options) {
  std::string given = options.backend + text_of(options.scenario) + text_of(options.platform);
  for (const std::string& key : options.set) given += "\n" + key;
  given += "\n" + options.mode;
  require_same(processes, given, options.platform.empty() ? "scenario, backend" : "scenario, platform, backend");
}

// Returns the cores that a rank in a process of its own needs: declared ones, and the cores that its channels hold.
std::int64_t cores_of_a_process(const ScenarioRun& run) {
  const Cluster& cluster = run.scenario.cluster;
  if (run.is_gpu) return 1;
  const std::int64_t held =
      cluster.max_ctas.empty() ? 1 : cores_needed(build_schedule(run.scenario, free_memory_bytes()));
  return std::max(held, cluster.cores_per_device);
}

// Returns a line where the scenario's platform is a GPU and this machine's processor runs the step; "" otherwise.
std::string note_of_platform(const Scenario& scenario, const std::string& command) {
  if (scenario.platform.empty()) return "";
  try {
    const sim::Platform platform = sim::read_platform(scenario.platform);
    if (!platform.accelerator && !platform.gpu) return "";
    return fmt::format("platform {} is a GPU: {} runs this on this machine's CPU; `stretto simulate` predicts it on {}",
                       platform.name, command, platform.name);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    return "";  // a command that executes needs no platform
  }
}

bool is_bound(const launch::Affinity& affinity) {
  return std::any_of(affinity.processors.begin(), affinity.processors.end(),
                     [](const std::string& list) { return !list.empty(); });
}

std::string line_of(const launch::Affinity& affinity) {
  constexpr std::size_t kNamed = 8;  // ranks named in a line
  std::string line;
  std::size_t named = 0;
  for (std::size_t rank = 0; rank < affinity.processors.size() && named < kNamed; ++rank)
    if (const std::string& list = affinity.processors[rank]; !list.empty())
      line += fmt::format("{}rank {} on {}", named++ == 0 ? "cores of their own: " : ", ", rank, list);
  return line + (named == kNamed && affinity.processors.size() > kNamed ? ", …" : "") + " (docs/launch.md)";
}

// Returns the command line of each process that --ranks starts.
std::vector<std::string> arguments_of_a_rank(const std::string& command, const ScenarioOptions& options) {
  std::vector<std::string> arguments = {command, options.scenario, "--backend", options.backend};
  for (const std::string& key : options.set) arguments.insert(arguments.end(), {"--set", key});
  for (const auto& [name, value] : {std::pair{"--platform", options.platform}, std::pair{"--json", options.json.name()},
                                    std::pair{"--trace", options.trace.name()},
                                    std::pair{"--html", options.html.name()}, std::pair{"--mode", options.mode}})
    if (!value.empty()) arguments.insert(arguments.end(), {name, value});
  arguments.insert(arguments.end(), options.further.begin(), options.further.end());
  return arguments;
}

}  // namespace

void add_rank_options(CLI::App& command, RankOptions& options) {
  add_backend_option(command, options.backend);
  command
      .add_option("--ranks", options.ranks,
                  "start this many processes on this machine, a rank each, as torchrun, mpirun or srun would")
      ->check(CLI::Range(1, 4096));
}

void add_mode_option(CLI::App& command, ScenarioOptions& options) {
  command.add_option("--mode", options.mode,
                     "the knobs of this overlap mode instead of the scenario's (stretto show --gates lists them)");
}

void require_same(launch::ProcessGroup& processes, const std::string& what, const std::string& name) {
  const std::string mine = fmt::format("{} {}", kGit, std::hash<std::string>{}(what));
  const std::vector<launch::Bytes> all = processes.all_gather(std::as_bytes(std::span(mine)), 256);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all.front())
      throw input_error(fmt::format(
          "rank {} has another {} or version of stretto than rank 0; all must be given the same", rank, name));
}

void watch(launch::ProcessGroup& processes, const Scenario& scenario) {
  processes.watch(std::max(1.0, 0.75 * scenario.training.timeout_s));
}

exec::Machine ScenarioRun::machine(int cores) const {
  if (cores == 0) cores = static_cast<int>(affinity.mine);
  return is_gpu ? exec::gpu_machine(processes) : exec::host_machine(cores, interrupted, processes);
}

nlohmann::json ScenarioRun::cpu_affinity() const {
  if (!is_bound(affinity)) return nullptr;
  return affinity.processors;
}

void ScenarioRun::choose_fusions(const ScenarioOptions& options, const sim::Platform* platform) {
  if (!is_gpu) return;
  predict::Fusions fusions;
  if (is_first()) {
    const std::set<std::string> given = given_keys(options.scenario, options.set, "training");
    if (platform != nullptr) {
      fusions = predict::choose_fusions(scenario, given, platform);
    } else {
      try {
        const sim::Platform calibrated = predict::read_platform_input("", scenario, "cuda");
        fusions = predict::choose_fusions(scenario, given, calibrated.gpu ? &calibrated : nullptr);
      } catch (const Error& error) {  // no option asked for a prediction, which needs a platform
        if (error.kind() != ErrorKind::input) throw;
        fusions = predict::choose_fusions(scenario, given, nullptr);
      }
    }
  }
  if (processes)
    fusions = predict::fusions_of(processes->all_gather_value(predict::bits_of(fusions)).front(), fusions.note);
  fusions.apply(scenario);
  if (!fusions.note.empty()) notes.push_back(fusions.note);
}

void ScenarioRun::reserve_queues(const Schedule& schedule) {
  if (!is_gpu) return;
  const auto ranks_here = static_cast<std::size_t>(processes ? 1 : schedule.mesh.ranks());
  const std::string shared = cuda::reserve_hardware_queues(ranks_here * schedule.lanes.size());
  if (!shared.empty()) notes.push_back(shared);
}

void run_ranked(const RankOptions& options, const RankedCommand& command) {
  const std::optional<launch::World> world = launch::world_from_environment();
  const bool is_one_of_several = world && world->size > 1;
  if (options.ranks > 0 && is_one_of_several)
    throw input_error(
        fmt::format("--ranks: {} has started {} processes already; leave it out", world->launcher, world->size));
  if ((is_one_of_several || options.ranks > 0) && !command.why_cuda.empty() && options.backend != "cuda")
    throw input_error(command.why_cuda);
  if (options.ranks > 0) {
    const RankedCommand::Start start = command.start();
    return launch::spawn_ranks(options.ranks, start.arguments, start.stopped_s);
  }
  if (is_one_of_several || (world && command.takes_one)) return run_as_one_of(*world, command.act);
  command.act(nullptr, std::cout);
}

void run_ranked(const ScenarioOptions& options, const ScenarioCommand& command,
                const std::function<void(const Scenario& scenario)>& check,
                const std::function<void(ScenarioRun& run)>& act) {
  const auto scenario_of = [&](std::int64_t processes, std::vector<std::string>& notes) {
    const Scenario scenario = exec::with_measured_documents(processes > 0 && command.is_laid_out
                                                                ? scenario_for_processes(options, processes, notes)
                                                                : read_scenario(options.scenario, options.set));
    return options.mode.empty() ? scenario : with_mode(scenario, options.mode, scenario.parallel.ranks());
  };
  const auto start = [&]() -> RankedCommand::Start {
    std::vector<std::string> notes;
    const Scenario scenario = scenario_of(options.ranks, notes);
    options.files.claim_outputs(scenario);
    check(scenario);
    return {arguments_of_a_rank(command.name, options), scenario.training.timeout_s};
  };
  const auto act_as = [&](launch::ProcessGroup* processes, std::ostream& out) {
    if (processes) require_same_inputs(*processes, options);
    ScenarioRun run{processes, out, {}, {}, options.backend == "cuda"};
    run.scenario = scenario_of(processes ? processes->size() : 0, run.notes);
    if (!run.is_gpu)
      if (std::string note = note_of_platform(run.scenario, command.name); !note.empty())
        run.notes.push_back(std::move(note));
    if (processes) watch(*processes, run.scenario);
    if (processes && run.scenario.cluster.bind_cores_to_rank) {
      run.affinity = launch::bind_to_cores(*processes, cores_of_a_process(run), run.is_gpu);
      if (is_bound(run.affinity)) run.notes.push_back(line_of(run.affinity));
    }
    if (run.is_first()) options.files.claim_outputs(run.scenario);
    act(run);
  };
  run_ranked(options, {command.why_cuda, command.takes_one, start, act_as});
}

}  // namespace stretto::cli
