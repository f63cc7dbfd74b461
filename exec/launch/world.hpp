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
  std::int64_t local_rank = 0;  // among those on this machine
  std::string address;          // of the machine that rank 0 is on
  int port = 0;                 // where rank 0 listens
  int listening = -1;           // rank 0 of --ranks: a socket that listens there already
  std::string token;            // that all processes of the job know and nobody else; empty: there is none
  std::string launcher;         // "torchrun", "mpirun", "srun", "mpiexec", "--ranks"
};

// The world that a launcher describes in the environment; nullopt when there is none. Known, in this order:
//   stretto --ranks    STRETTO_RANK, STRETTO_RANKS, STRETTO_PORT, STRETTO_LISTENING (spawn.hpp)
//   torchrun           RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT; its own store has that port, ours is
//                      the next
//   Open MPI           OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK
//   Slurm's srun       SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_NODELIST
//   MPICH, Intel MPI   PMI_RANK, PMI_SIZE, MPI_LOCALRANKID
// MASTER_ADDR and MASTER_PORT go before what a launcher says; without them rank 0 is taken to be on the first machine
// of srun's list, or on this one when all processes are. The port is then 29500 (torchrun's), with srun one that
// depends on job and step, so that those on one machine do not meet. Throws Error(input) naming the variable that is
// missing, no number, or out of range.
//
// The token is that of STRETTO_TOKEN, or what the file STRETTO_TOKEN_FILE holds, without blanks at its ends; no
// launcher but --ranks gives its processes one.
using Environment = std::function<const char*(const char* name)>;
std::optional<World> world_from_environment(const Environment& environment);
std::optional<World> world_from_environment();

// The first machine of a Slurm list: "node[003-010,12],x" → "node003", "rack[1-2]n[4,6]" → "rack1n4".
std::string first_host(std::string_view nodes);

}  // namespace stretto::launch
