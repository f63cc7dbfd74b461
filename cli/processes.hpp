#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "exec/launch/affinity.hpp"
#include "exec/launch/process_group.hpp"
#include "exec/machine.hpp"
#include "sim/platform.hpp"

namespace stretto::cli {

// Commands that run as a process for every rank: started by torchrun, mpirun or srun, or, with --ranks, by this one.

struct RankOptions {
  std::string backend = "host";
  int ranks = 0;  // processes to start; 0: this one has all ranks, unless a launcher says otherwise
};
void add_rank_options(CLI::App& command, RankOptions& options);  // --backend, --ranks

// How a command is run as processes.
struct RankedCommand {
  // Why several processes need --backend cuda, to be said to who has them without; "": they do not.
  std::string why_cuda;
  // Whether a launcher's only process is a group of one. Else it has all ranks, as if nobody had launched it: a shell
  // that srun has opened is one of one.
  bool takes_one = false;
  // For --ranks, before any process is started: what is wrong for all is said once. Gives the arguments of each, and
  // how long one may be stopped (SIGSTOP) before all are killed.
  struct Start {
    std::vector<std::string> arguments;
    double stopped_s = 300;
  };
  std::function<Start()> start;
  // In each process, or in the only one, where `processes` is null. `out` is standard output at rank 0 and nowhere
  // else. Nobody fails alone: what this throws is what the first that failed has thrown.
  std::function<void(launch::ProcessGroup* processes, std::ostream& out)> act;
};
// Throws Error(input) when a launcher has started several processes already and --ranks asks for more.
void run_ranked(const RankOptions& options, const RankedCommand& command);

// The same for a command that takes a scenario.
struct ScenarioCommand {
  std::string name;
  std::string why_cuda;
  bool takes_one = false;
  // Whether there are as many ranks as processes, which decide it, as with Megatron-LM: data_parallel_size is what the
  // other axes leave of them, and a note says so. Else the scenario is taken as it is.
  bool is_laid_out = true;
};
struct ScenarioOptions : CommonOptions, RankOptions {
  std::string mode;                  // an overlap mode whose knobs are on instead of the scenario's; "": these
  std::vector<std::string> further;  // arguments of the command itself, which its ranks are given too
};
void add_mode_option(CLI::App& command, ScenarioOptions& options);  // --mode
struct ScenarioRun {
  launch::ProcessGroup* processes = nullptr;  // null: this one has all ranks
  std::ostream& out;
  Scenario scenario;
  std::vector<std::string> notes;  // what the processes make of it
  bool is_gpu = false;
  launch::Affinity affinity = {};  // of the processes
  bool is_first() const { return processes == nullptr || processes->rank() == 0; }
  // The machine of --backend; on a host, ranks share `cores` cores, 0: all that this process may run on.
  exec::Machine machine(int cores) const;
  // For JSON: the processors of each rank, or null where nobody is bound to some.
  nlohmann::json cpu_affinity() const;
  // On a GPU, before the schedule is built: gives the fusions that the scenario leaves open what measurements say
  // (predict/fusions.hpp), the same on all processes, and adds a note. By `platform`, or, where it is null, by the
  // scenario's or the calibrated one, if there is any.
  void choose_fusions(const ScenarioOptions& options, const sim::Platform* platform = nullptr);
  // On a GPU, before anything else of it: hardware queues for the lanes that are here; adds a note when some share one.
  void reserve_queues(const Schedule& schedule);
};
// `check` throws for what is wrong for all ranks; it is called before --ranks starts any. In `act` all processes have
// been given the same, watch each other, and outputs have been claimed.
void run_ranked(const ScenarioOptions& options, const ScenarioCommand& command,
                const std::function<void(const Scenario& scenario)>& check,
                const std::function<void(ScenarioRun& run)>& act);

// Processes that run different things would wait for each other in vain. `what` must be equal on all, as must be the
// version of this program. Throws Error(input) that calls it `name`.
void require_same(launch::ProcessGroup& processes, const std::string& what, const std::string& name);

// Whoever is stopped or hangs fails all of them before a step that waits for it trips its timeout, which names who
// waited.
void watch(launch::ProcessGroup& processes, const Scenario& scenario);

}  // namespace stretto::cli
