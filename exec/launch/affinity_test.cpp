#include "exec/launch/affinity.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <numeric>
#include <set>

#include "tests/temp_dir.hpp"

namespace stretto::testing {
namespace {

using namespace launch;
using Shares = std::vector<std::vector<int>>;

// The folders of a machine. Processors of a node are consecutive; with `threads`, second threads of cores follow all
// first ones, as on machines with Intel's and AMD's processors.
struct FakeMachine {
  FakeMachine(int nodes, int cores_of_a_node, int threads = 1) : processors(nodes * cores_of_a_node * threads) {
    const int cores = nodes * cores_of_a_node;
    for (int node = 0; node < nodes; ++node) {
      std::string list;
      for (int thread = 0; thread < threads; ++thread) {
        const int first = thread * cores + node * cores_of_a_node;
        list += fmt::format("{}{}-{}", thread == 0 ? "" : ",", first, first + cores_of_a_node - 1);
      }
      write(fmt::format("sys/devices/system/node/node{}/cpulist", node), list);
    }
    for (int processor = 0; processor < processors; ++processor) {
      std::string list;
      for (int thread = 0; thread < threads; ++thread)
        list += fmt::format("{}{}", thread == 0 ? "" : ",", thread * cores + processor % cores);
      write(fmt::format("sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", processor), list);
    }
  }
  void add_gpu(const std::string& bus, int node) {
    write("proc/driver/nvidia/gpus/" + bus + "/information", "Model: none");
    write("sys/bus/pci/devices/" + bus + "/numa_node", std::to_string(node));
  }
  void write(const std::string& name, const std::string& line) {
    std::filesystem::create_directories((dir.path() / name).parent_path());
    dir.write(name, line + "\n");
  }
  std::vector<Core> cores(std::vector<int> allowed = {}) const {
    if (allowed.empty()) {
      allowed.resize(static_cast<std::size_t>(processors));
      std::iota(allowed.begin(), allowed.end(), 0);
    }
    return read_cores(dir.str(), allowed);
  }
  TempDir dir;
  int processors;
};

std::vector<std::int64_t> anywhere(std::size_t count) { return std::vector<std::int64_t>(count, -1); }

}  // namespace

TEST_CASE("cores, their processors and nodes are read from the system's folders", "[launch]") {
  const FakeMachine machine(2, 2, 2);
  CHECK(machine.cores() == std::vector<Core>{{0, {0, 4}}, {0, {1, 5}}, {1, {2, 6}}, {1, {3, 7}}});
  CHECK(machine.cores({1, 2, 5}) == std::vector<Core>{{0, {1, 5}}, {1, {2}}});
  // A machine without readable files counts as one node of cores with one processor.
  const TempDir nothing;
  const std::vector<int> two = {3, 8};
  CHECK(read_cores(nothing.str(), two) == std::vector<Core>{{0, {3}}, {0, {8}}});
  FakeMachine odd(1, 2);
  odd.write("sys/devices/system/node/node0/cpulist", "0-x");
  odd.write("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "7-2");
  CHECK(odd.cores() == std::vector<Core>{{0, {0}}, {0, {1}}});
  CHECK(list_of_processors(std::vector<int>{8, 0, 1, 3, 2}) == "0-3,8");
  CHECK(list_of_processors({}) == "");
}

TEST_CASE("the node of a GPU is that of its place on the bus", "[launch]") {
  FakeMachine machine(2, 2);
  CHECK(node_of_gpu(machine.dir.str(), 0, "") == -1);
  machine.add_gpu("0000:9b:00.0", 1);
  machine.add_gpu("0000:1a:00.0", 0);
  machine.add_gpu("0000:3b:00.0", -1);  // the firmware does not give the node
  const auto node = [&](std::int64_t number, const std::string& visible = "") {
    return node_of_gpu(machine.dir.str(), number, visible);
  };
  CHECK(std::vector{node(0), node(1), node(2), node(3)} == std::vector<std::int64_t>{0, -1, 1, 0});
  CHECK(std::vector{node(0, "2"), node(1, "2"), node(1, "2,0")} == std::vector<std::int64_t>{1, 1, 0});
  for (const char* unknown : {"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "3", "0,x", "-1"})
    CHECK(node(0, unknown) == -1);
}

TEST_CASE("processes of a machine get whole cores of their own", "[launch]") {
  const FakeMachine machine(2, 4, 2);
  CHECK(divide(machine.cores(), anywhere(2), 1) == Shares{{0, 8, 1, 9, 2, 10, 3, 11}, {4, 12, 5, 13, 6, 14, 7, 15}});
  CHECK(divide(machine.cores(), anywhere(1), 1).front().size() == 16);
  // Three processes on eight cores have two cores each, and keeping the middle one on one node is not worth a core.
  for (const std::vector<int>& share : divide(machine.cores(), anywhere(3), 1)) CHECK(share.size() >= 4);
  // Where both processes must be near their GPUs on one node, all cores of the other node are idle.
  const std::vector<std::int64_t> same = {1, 1}, crossed = {1, 0};
  CHECK(divide(machine.cores(), same, 1) == Shares{{4, 12, 5, 13}, {6, 14, 7, 15}});
  CHECK(divide(machine.cores(), crossed, 1) == Shares{{4, 12, 5, 13, 6, 14, 7, 15}, {0, 8, 1, 9, 2, 10, 3, 11}});
  CHECK(divide(machine.cores(), same, 5) == divide(machine.cores(), anywhere(2), 1));  // that node has too few cores
  const std::vector<std::int64_t> unknown = {1, -1};
  CHECK(divide(machine.cores(), unknown, 1) == divide(machine.cores(), anywhere(2), 1));
  // Too few.
  CHECK(divide(machine.cores(), anywhere(8), 2).size() == 8);
  CHECK(divide(machine.cores(), anywhere(8), 3).empty());
  CHECK(divide(machine.cores(), anywhere(9), 1).empty());
  CHECK(divide({}, anywhere(1), 1).empty());
}

TEST_CASE("shares of any machine are disjoint, large enough and about equal", "[launch]") {
  for (int nodes = 1; nodes <= 3; ++nodes)
    for (int cores = 1; cores <= 4; ++cores)
      for (const int threads : {1, 2}) {
        const FakeMachine machine(nodes, cores, threads);
        const std::vector<Core> all = machine.cores();
        for (std::size_t count = 1; count <= all.size() + 1; ++count) {
          INFO(nodes << " nodes of " << cores << " cores of " << threads << ", " << count << " processes");
          const Shares shares = divide(all, anywhere(count), 1);
          CHECK(shares.size() == (count <= all.size() ? count : 0));
          std::set<int> seen;
          for (const std::vector<int>& share : shares) {
            CHECK(share.size() >= all.size() / count * static_cast<std::size_t>(threads));
            for (const int processor : share) CHECK(seen.insert(processor).second);
            // A process that could be on one node is not on two.
            std::set<int> on;
            for (const int processor : share) on.insert(processor % (nodes * cores) / cores);
            if (count % static_cast<std::size_t>(nodes) == 0) CHECK(on.size() == 1);
          }
        }
      }
}

}  // namespace stretto::testing
