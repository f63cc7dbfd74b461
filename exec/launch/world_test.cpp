#include "exec/launch/world.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <map>

namespace stretto::launch {
namespace {

using Set = std::map<std::string, std::string>;

std::optional<World> world_in(const Set& set) {
  return world_from_environment([&](const char* name) -> const char* {
    const auto found = set.find(name);
    return found == set.end() ? nullptr : found->second.c_str();
  });
}

}  // namespace

TEST_CASE("launchers are known by what they put into the environment") {
  CHECK_FALSE(world_in({}));
  CHECK_FALSE(world_in({{"RANK", "1"}}));
  // A batch script that srun has not started.
  CHECK_FALSE(world_in({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "7"}}));

  const auto torchrun = world_in({{"RANK", "5"},
                                  {"WORLD_SIZE", "8"},
                                  {"LOCAL_RANK", "1"},
                                  {"MASTER_ADDR", "node3"},
                                  {"MASTER_PORT", "29400"},
                                  {"SLURM_PROCID", "0"},
                                  {"SLURM_STEP_NUM_TASKS", "2"}});
  REQUIRE(torchrun);
  CHECK(torchrun->launcher == "torchrun");
  CHECK(torchrun->rank == 5);
  CHECK(torchrun->size == 8);
  CHECK(torchrun->local_rank == 1);
  CHECK(torchrun->address == "node3");
  CHECK(torchrun->port == 29401);  // torchrun itself listens at 29400

  const auto mpirun = world_in({{"OMPI_COMM_WORLD_RANK", "3"},
                                {"OMPI_COMM_WORLD_SIZE", "4"},
                                {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  REQUIRE(mpirun);
  CHECK(mpirun->launcher == "mpirun");
  CHECK(mpirun->rank == 3);
  CHECK(mpirun->local_rank == 3);
  CHECK(mpirun->address == "127.0.0.1");
  CHECK(mpirun->port == 29500);

  const auto srun = world_in({{"SLURM_PROCID", "9"},
                              {"SLURM_STEP_NUM_TASKS", "16"},
                              {"SLURM_LOCALID", "1"},
                              {"SLURM_STEP_NODELIST", "gpu[003-010,12],x"},
                              {"SLURM_JOB_ID", "1234567"}});
  REQUIRE(srun);
  CHECK(srun->launcher == "srun");
  CHECK(srun->rank == 9);
  CHECK(srun->size == 16);
  CHECK(srun->local_rank == 1);
  CHECK(srun->address == "gpu003");
  CHECK(srun->port == 15000 + 4567);
  const auto step = world_in({{"SLURM_PROCID", "9"},
                              {"SLURM_STEP_NUM_TASKS", "16"},
                              {"SLURM_STEP_NODELIST", "x"},
                              {"SLURM_JOB_ID", "1239999"},
                              {"SLURM_STEP_ID", "2"}});
  REQUIRE(step);
  CHECK(step->port == 15000 + (9999 + 2 * 37) % 10000);

  const auto mpiexec =
      world_in({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "4000"}});
  REQUIRE(mpiexec);
  CHECK(mpiexec->launcher == "mpiexec");
  CHECK(mpiexec->address == "10.0.0.1");
  CHECK(mpiexec->port == 4000);

  const auto spawned =
      world_in({{"STRETTO_RANK", "0"}, {"STRETTO_RANKS", "2"}, {"STRETTO_PORT", "40000"}, {"STRETTO_LISTENING", "5"}});
  REQUIRE(spawned);
  CHECK(spawned->listening == 5);
  CHECK(spawned->local_rank == 0);
  CHECK(spawned->port == 40000);
}

TEST_CASE("what a launcher leaves out, or says wrongly, is named") {
  CHECK_THROWS_WITH(world_in({{"RANK", "8"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "a"}}),
                    Catch::Contains("RANK: expected a number from 0 to 7") && Catch::Contains("\"8\""));
  CHECK_THROWS_WITH(world_in({{"RANK", "0"}, {"WORLD_SIZE", "8x"}}), Catch::Contains("WORLD_SIZE: expected a number"));
  CHECK_THROWS_WITH(world_in({{"RANK", "0"}, {"WORLD_SIZE", "8"}}), Catch::Contains("MASTER_ADDR: torchrun"));
  CHECK_THROWS_WITH(
      world_in({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}),
      Catch::Contains("MASTER_ADDR: mpirun does not say which machine rank 0 is on"));
  CHECK_THROWS_WITH(world_in({{"OMPI_COMM_WORLD_RANK", "0"}}), Catch::Contains("OMPI_COMM_WORLD_SIZE"));
  CHECK_THROWS_WITH(world_in({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}}),
                    Catch::Contains("SLURM_STEP_NODELIST"));
  CHECK_THROWS_WITH(world_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}}),
                    Catch::Contains("MASTER_PORT"));
}

TEST_CASE("a token comes from the environment or a file") {
  Set set = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}};
  CHECK(world_in(set)->token.empty());
  const std::string path = "token-of-world-test-" + std::to_string(::getpid());
  const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
  set["STRETTO_TOKEN_FILE"] = path;
  CHECK_THROWS_WITH(world_in(set), Catch::Contains("STRETTO_TOKEN_FILE: " + path + ": expected a file with a token"));
  write(" secret of a job\n");
  CHECK(world_in(set)->token == "secret of a job");
  write("\n");
  CHECK_THROWS(world_in(set));
  write(std::string(5000, 'x'));
  CHECK_THROWS(world_in(set));
  std::remove(path.c_str());
  set["STRETTO_TOKEN"] = "another";
  CHECK(world_in(set)->token == "another");
}

TEST_CASE("the first machine of a Slurm list") {
  CHECK(first_host("node7") == "node7");
  CHECK(first_host("a1,a2") == "a1");
  CHECK(first_host("node[003-010,12],x") == "node003");
  CHECK(first_host("node[5]") == "node5");
  CHECK(first_host("rack1-n[01,04]") == "rack1-n01");
  CHECK(first_host("rack[1-2]n[4,6],x") == "rack1n4");
  CHECK(first_host("rack[01]n") == "rack01n");
  CHECK(first_host("broken[") == "broken");
  CHECK(first_host("") == "");
}

}  // namespace stretto::launch
