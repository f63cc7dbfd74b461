#include "exec/launch/world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/error.hpp"

namespace stretto::launch {
namespace {

constexpr std::int64_t kMostRanks = std::int64_t{1} << 24;
constexpr int kPort = 29500;

class Variables {
 public:
  Variables(const Environment& environment, std::string launcher)
      : environment_(environment), launcher_(std::move(launcher)) {}

  bool has(const char* name) const { return environment_(name) != nullptr && *environment_(name) != '\0'; }
  std::string text(const char* name) const {
    if (!has(name)) throw input_error(fmt::format("{}: started by {}, but {} is not set", name, launcher_, name));
    return environment_(name);
  }
  std::int64_t number(const char* name, std::int64_t least, std::int64_t most) const {
    const std::string value = text(name);
    std::int64_t result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc{} || end != value.data() + value.size() || result < least || result > most)
      throw input_error(
          fmt::format("{}: expected a number from {} to {} in the environment, got \"{}\"", name, least, most, value));
    return result;
  }
  std::int64_t number_or(const char* name, std::int64_t absent, std::int64_t least, std::int64_t most) const {
    return has(name) ? number(name, least, most) : absent;
  }

 private:
  const Environment& environment_;
  std::string launcher_;
};

// The variables of a simple launcher.
struct Names {
  const char *launcher, *rank, *size, *local_rank, *local_size;
};

std::string token_of(const Variables& variables) {
  if (variables.has("STRETTO_TOKEN")) return variables.text("STRETTO_TOKEN");
  if (!variables.has("STRETTO_TOKEN_FILE")) return "";
  const std::string path = variables.text("STRETTO_TOKEN_FILE");
  std::ifstream file(path);
  constexpr std::streamsize most = 4096;
  std::string token(static_cast<std::size_t>(most), '\0');
  file.read(token.data(), most);
  token.resize(static_cast<std::size_t>(file.gcount()));
  const char* blanks = " \t\r\n";
  token.erase(token.find_last_not_of(blanks) + 1);
  token.erase(0, token.find_first_not_of(blanks));
  if (token.empty() || file)
    throw input_error(
        fmt::format("STRETTO_TOKEN_FILE: {}: expected a file with a token of at most {} bytes", path, most));
  return token;
}

World world_of(const Environment& environment, const Names& names) {
  const Variables variables(environment, names.launcher);
  World world;
  world.launcher = names.launcher;
  world.size = variables.number(names.size, 1, kMostRanks);
  world.rank = variables.number(names.rank, 0, world.size - 1);
  world.local_rank = variables.number_or(names.local_rank, 0, 0, world.size - 1);
  world.port = static_cast<int>(variables.number_or("MASTER_PORT", kPort, 1, 65534));
  world.token = token_of(variables);
  if (variables.has("MASTER_ADDR"))
    world.address = variables.text("MASTER_ADDR");
  else if (names.local_size != nullptr && variables.number_or(names.local_size, 0, 0, kMostRanks) == world.size)
    world.address = "127.0.0.1";
  return world;
}

void require_address(const World& world) {
  if (world.address.empty())
    throw input_error(fmt::format(
        "MASTER_ADDR: {} does not say which machine rank 0 is on; set it in the environment of all processes",
        world.launcher));
}

}  // namespace

std::string first_host(std::string_view nodes) {
  std::string host;
  for (std::size_t at = 0; at < nodes.size() && nodes[at] != ',';) {
    if (nodes[at] != '[') {
      host += nodes[at++];
      continue;
    }
    const std::size_t first = std::min(nodes.find_first_of(",-]", at), nodes.size());
    host += nodes.substr(at + 1, first - at - 1);
    at = std::min(nodes.find(']', at), nodes.size() - 1) + 1;
  }
  return host;
}

std::optional<World> world_from_environment(const Environment& environment) {
  const Variables any(environment, "");
  if (any.has("STRETTO_RANK")) {
    World world = world_of(environment, {"--ranks", "STRETTO_RANK", "STRETTO_RANKS", "STRETTO_RANK", nullptr});
    const Variables own(environment, world.launcher);
    world.address = "127.0.0.1";
    world.port = static_cast<int>(own.number("STRETTO_PORT", 1, 65535));
    if (world.rank == 0) world.listening = static_cast<int>(own.number("STRETTO_LISTENING", 0, 1 << 20));
    return world;
  }
  if (any.has("RANK") && any.has("WORLD_SIZE")) {
    World world = world_of(environment, {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
    require_address(world);
    ++world.port;
    return world;
  }
  if (any.has("OMPI_COMM_WORLD_RANK")) {
    const World world = world_of(environment, {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                               "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"});
    require_address(world);
    return world;
  }
  // SLURM_PROCID alone is also set where only the batch script runs.
  if (any.has("SLURM_STEP_NUM_TASKS") && any.has("SLURM_PROCID")) {
    World world = world_of(environment, {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr});
    const Variables slurm(environment, world.launcher);
    if (world.address.empty()) world.address = first_host(slurm.text("SLURM_STEP_NODELIST"));
    if (!slurm.has("MASTER_PORT")) {
      const auto of = [&](const char* name) { return slurm.number_or(name, 0, 0, INT64_MAX) % 10000; };
      world.port = static_cast<int>(15000 + (of("SLURM_JOB_ID") + 37 * of("SLURM_STEP_ID")) % 10000);
    }
    return world;
  }
  if (any.has("PMI_RANK")) {
    const World world =
        world_of(environment, {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
    require_address(world);
    return world;
  }
  return std::nullopt;
}

std::optional<World> world_from_environment() {
  return world_from_environment([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace stretto::launch
