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

// Commands that run as a process for every rank: started by torchrun, mpirun or srun, or, with --ranks, by this
// program.

struct RankOptions {
  std::string backend = "host";
  int ranks = 0;  // number of processes to start; 0: this process has all ranks, unless a launcher says otherwise
};
void add_rank_options(CLI::App& command, RankOptions& options);  // --backend, --ranks

// How a command runs as processes.
struct RankedCommand {
  // Why several processes need --backend cuda, for the error message when they run without it; "": they do not need it.
  std::string why_cuda;
  // Whether a launcher's only process is a group of one. Otherwise that process has all ranks, as without a launcher: a
  // shell that srun has opened is one process of one.
  bool takes_one = false;
  // For --ranks: called before any process is started, so that an error that concerns all ranks is reported once.
  // Returns the arguments of each process, and how long one may be stopped (SIGSTOP) before all are killed.
  struct Start {
    std::vector<std::string> arguments;
    double stopped_s = 300;
  };
  std::function<Start()> start;
  // Called in each process, or in the only one, where `processes` is null. `out` is standard output at rank 0 and
  // discards its text at other ranks. When one process fails all do: each throws the exception of the first that
  // failed.
  std::function<void(launch::ProcessGroup* processes, std::ostream& out)> act;
};
// Runs the command. Throws Error(input) when a launcher has started several processes already and --ranks asks for
// more.
void run_ranked(const RankOptions& options, const RankedCommand& command);

// A ranked command that takes a scenario.
struct ScenarioCommand {
  std::string name;
  std::string why_cuda;
  bool takes_one = false;
  // Whether the number of processes decides the number of ranks, as with Megatron-LM: data_parallel_size is the number
  // of processes divided by the other axes, and a note says so. Otherwise the scenario is taken as it is.
  bool is_laid_out = true;
};
struct ScenarioOptions : CommonOptions, RankOptions {
  std::string mode;                  // an overlap mode whose knobs replace the scenario's; "": the scenario's
  std::vector<std::string> further;  // the command's own arguments, which are passed to its ranks too
};
void add_mode_option(CLI::App& command, ScenarioOptions& options);  // --mode
struct ScenarioRun {
  launch::ProcessGroup* processes = nullptr;  // null: this process has all ranks
  std::ostream& out;
  Scenario scenario;
  std::vector<std::string> notes;  // notes on how the scenario was adapted to the processes
  bool is_gpu = false;
  launch::Affinity affinity = {};  // processors of the processes
  bool is_first() const { return processes == nullptr || processes->rank() == 0; }
  // Returns the machine of --backend; on a host, ranks share `cores` cores, 0: all cores on which this process may run.
  exec::Machine machine(int cores) const;
  // Returns the processors of each rank as JSON, or null where no process is bound.
  nlohmann::json cpu_affinity() const;
  // On a GPU, before the schedule is built: gives the fusions that the scenario leaves open their measured values
  // (predict/fusions.hpp), equal on all processes, and adds a note. They come from `platform`, or, where it is null,
  // from the scenario's or the calibrated one, if there is any.
  void choose_fusions(const ScenarioOptions& options, const sim::Platform* platform = nullptr);
  // On a GPU, before any other use of it: reserves hardware queues for the lanes of this process; adds a note when some
  // lanes share one.
  void reserve_queues(const Schedule& schedule);
};
// `check` throws for errors that concern all ranks; it is called before --ranks starts any process. In `act` all
// processes have equal inputs, watch each other, and have claimed their outputs.
void run_ranked(const ScenarioOptions& options, const ScenarioCommand& command,
                const std::function<void(const Scenario& scenario)>& check,
                const std::function<void(ScenarioRun& run)>& act);

// Checks that all processes run the same thing, because different ones would wait for each other in vain. `what` must
// be equal on all, as must be the version of this program. Throws Error(input) that calls it `name`.
void require_same(launch::ProcessGroup& processes, const std::string& what, const std::string& name);

// Makes a process that is stopped or hangs fail all processes, before a step that waits for it trips its timeout, which
// would name the waiting process.
void watch(launch::ProcessGroup& processes, const Scenario& scenario);

}  // namespace stretto::cli
