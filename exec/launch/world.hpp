#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace stretto::launch {

// This process's rank among the processes that were started together, one for each rank of the schedule.
struct World {
  std::int64_t rank = 0, size = 1;
  std::int64_t local_rank = 0;  // rank among the processes on this machine
  std::string address;          // address of rank 0's machine
  int port = 0;                 // port at which rank 0 listens
  int listening = -1;           // rank 0 of --ranks: a socket that already listens there
  std::string token;            // secret that only the job's processes know; empty: there is none
  std::string launcher;         // "torchrun", "mpirun", "srun", "mpiexec", "--ranks"
};

// Returns the world that a launcher describes in the environment; nullopt when there is none. Known launchers, in this
// order:
//   stretto --ranks    STRETTO_RANK, STRETTO_RANKS, STRETTO_PORT, STRETTO_LISTENING (spawn.hpp)
//   torchrun           RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT; torchrun's own store uses that port,
//                      Stretto the next one
//   Open MPI           OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK
//   Slurm's srun       SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_NODELIST
//   MPICH, Intel MPI   PMI_RANK, PMI_SIZE, MPI_LOCALRANKID
// MASTER_ADDR and MASTER_PORT take precedence over the launcher's address; without them rank 0 is assumed to be on the
// first machine of srun's list, or on this one when all processes are. The port is then 29500 (torchrun's), with srun
// one that depends on job and step, so that jobs on one machine do not collide. Throws Error(input) naming the variable
// that is missing, no number, or out of range.
//
// The token is STRETTO_TOKEN, or the contents of the file STRETTO_TOKEN_FILE, without blanks at its ends; no launcher
// but --ranks gives its processes one.
using Environment = std::function<const char*(const char* name)>;
std::optional<World> world_from_environment(const Environment& environment);
std::optional<World> world_from_environment();

// Returns the first machine of a Slurm list: "node[003-010,12],x" → "node003", "rack[1-2]n[4,6]" → "rack1n4".
std::string first_host(std::string_view nodes);

}  // namespace stretto::launch
