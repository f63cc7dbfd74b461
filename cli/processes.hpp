#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "exec/launch/process_group.hpp"
#include "exec/launch/world.hpp"

namespace stretto::cli {

// Commands that run as a process for every rank: started by torchrun, mpirun or srun, or, with --ranks, by this one.

void add_ranks_option(CLI::App& command, int& ranks);  // --ranks

// What a launcher says, or nothing. Throws Error(input) when one has started several processes already and `ranks` > 0
// asks for more.
std::optional<launch::World> find_world(int ranks);

// As rank world.rank: joins the others and calls `act`, with standard output at rank 0 and nowhere else. Nobody fails
// alone: what `act` throws is what the first that failed has thrown.
void run_as_one_of(const launch::World& world,
                   const std::function<void(launch::ProcessGroup& processes, std::ostream& out)>& act);

// What `options` names, of as many ranks as there are processes: they decide it, as with Megatron-LM, and
// data_parallel_size is what the other axes leave of them. Adds to `notes` when that is not what the scenario says.
// Throws Error(input) when the model's axes do not divide them.
Scenario scenario_for_processes(const CommonOptions& options, std::int64_t processes, std::vector<std::string>& notes);

// Processes that run different things would wait for each other in vain. `what` must be equal on all, as must be the
// version of this program. Throws Error(input) that calls it `name`.
void require_same(launch::ProcessGroup& processes, const std::string& what, const std::string& name);
// The scenario, the platform, what --set says, and the backend.
void require_same(launch::ProcessGroup& processes, const CommonOptions& options, const std::string& backend);

// Whoever is stopped or hangs fails all of them before a step that waits for it trips its timeout, which names who
// waited.
void watch(launch::ProcessGroup& processes, const Scenario& scenario);

// What --ranks starts, as many times.
std::vector<std::string> arguments_of_a_rank(const std::string& command, const CommonOptions& options,
                                             const std::string& backend);

}  // namespace stretto::cli
