#include "exec/launch/affinity.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

namespace stretto::launch {
namespace {

namespace fs = std::filesystem;

std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<int> number_of(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text, char mark) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t at = std::min(text.find(mark), text.size());
    parts.push_back(text.substr(0, at));
    text.remove_prefix(std::min(at + 1, text.size()));
  }
  return parts;
}

// Returns the processors of a list "0-3,8"; empty for text that is no such list.
std::vector<int> processors_in(std::string_view list) {
  std::vector<int> processors;
  for (const std::string_view range : split(list, ',')) {
    const std::vector<std::string_view> ends = split(range, '-');
    if (ends.empty() || ends.size() > 2) return {};
    const std::optional<int> first = number_of(ends.front()), last = number_of(ends.back());
    if (!first || !last || *first < 0 || *last < *first || *last - *first >= 1 << 16) return {};
    for (int processor = *first; processor <= *last; ++processor) processors.push_back(processor);
  }
  return processors;
}

// Returns processor → node.
std::map<int, std::int64_t> read_nodes(const std::string& root) {
  std::map<int, std::int64_t> nodes;
  std::error_code ignored;
  const fs::path folder = root + "/sys/devices/system/node";
  for (fs::directory_iterator it(folder, ignored), end; !ignored && it != end; it.increment(ignored)) {
    const std::string name = it->path().filename().string();
    const std::optional<int> node = name.starts_with("node") ? number_of(name.substr(4)) : std::nullopt;
    if (!node) continue;
    for (const int processor : processors_in(line_of(it->path() / "cpulist"))) nodes[processor] = *node;
  }
  return nodes;
}

// A process's report on where it may run.
struct Place {
  std::array<char, 64> machine{};
  cpu_set_t allowed{};
  std::int64_t least = 1, node = -1;
};

std::vector<int> processors_of(const cpu_set_t& set) {
  std::vector<int> processors;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor)
    if (CPU_ISSET(processor, &set)) processors.push_back(processor);
  return processors;
}

// Binds all threads. Returns false where the system refuses.
bool bind_all_threads(std::span<const int> processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors) CPU_SET(processor, &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0) return false;
  std::error_code ignored;
  for (fs::directory_iterator it("/proc/self/task", ignored), end; !ignored && it != end; it.increment(ignored))
    if (const std::optional<int> thread = number_of(it->path().filename().string()))
      ::sched_setaffinity(*thread, sizeof set, &set);  // the thread may have ended
  return true;
}

}  // namespace

std::vector<Core> read_cores(const std::string& root, std::span<const int> allowed) {
  const std::map<int, std::int64_t> nodes = read_nodes(root);
  std::map<std::pair<std::int64_t, int>, std::vector<int>> cores;  // by node and first processor, allowed or not
  for (const int processor : allowed) {
    const std::vector<int> siblings = processors_in(
        line_of(fmt::format("{}/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", root, processor)));
    const auto node = nodes.find(processor);
    cores[{node == nodes.end() ? 0 : node->second, siblings.empty() ? processor : siblings.front()}].push_back(
        processor);
  }
  std::vector<Core> result;
  for (auto& [key, processors] : cores) result.push_back({key.first, std::move(processors)});
  return result;
}

std::int64_t node_of_gpu(const std::string& root, std::int64_t number, const std::string& visible_devices) {
  std::vector<std::string> gpus;  // names of the GPUs' places on the bus: "0000:3b:00.0"
  std::error_code ignored;
  const fs::path folder = root + "/proc/driver/nvidia/gpus";
  for (fs::directory_iterator it(folder, ignored), end; !ignored && it != end; it.increment(ignored))
    gpus.push_back(it->path().filename().string());
  std::sort(gpus.begin(), gpus.end());
  std::vector<std::string> visible = gpus;
  if (!visible_devices.empty()) {
    visible.clear();
    for (const std::string_view device : split(visible_devices, ',')) {
      const std::optional<int> index = number_of(device);
      if (!index || *index < 0 || *index >= std::ssize(gpus)) return -1;
      visible.push_back(gpus[static_cast<std::size_t>(*index)]);
    }
  }
  if (visible.empty()) return -1;
  const std::string& gpu = visible[static_cast<std::size_t>(number % std::ssize(visible))];
  return number_of(line_of(root + "/sys/bus/pci/devices/" + gpu + "/numa_node")).value_or(-1);
}

std::vector<std::vector<int>> divide(std::span<const Core> cores, std::span<const std::int64_t> nodes,
                                     std::int64_t least) {
  using Shares = std::vector<std::vector<int>>;
  const std::size_t count = nodes.size();
  // Divides `some` cores among the members of `who`, as equally as possible, in contiguous ranges.
  const auto share = [](const std::vector<const Core*>& some, const std::vector<std::size_t>& who, Shares& shares) {
    for (std::size_t i = 0; i < who.size(); ++i)
      for (std::size_t core = i * some.size() / who.size(); core < (i + 1) * some.size() / who.size(); ++core)
        shares[who[i]].insert(shares[who[i]].end(), some[core]->processors.begin(), some[core]->processors.end());
  };
  const auto smallest = [](const Shares& shares) {
    std::size_t size = SIZE_MAX;
    for (const std::vector<int>& one : shares) size = std::min(size, one.size());
    return size;
  };
  std::vector<const Core*> all;
  std::map<std::int64_t, std::vector<const Core*>> of_node;
  for (const Core& core : cores) {
    all.push_back(&core);
    of_node[core.node].push_back(&core);
  }
  std::vector<std::size_t> everybody(count);
  std::iota(everybody.begin(), everybody.end(), std::size_t{0});
  Shares in_a_row(count), by_node(count);
  share(all, everybody, in_a_row);
  const auto needed = static_cast<std::size_t>(std::max<std::int64_t>(1, least));
  if (count == 0 || smallest(in_a_row) < needed) return {};
  const bool all_want =
      std::all_of(nodes.begin(), nodes.end(), [&](std::int64_t node) { return of_node.contains(node); });
  std::map<std::int64_t, std::vector<std::size_t>> on_node;
  for (std::size_t i = 0; i < count; ++i) {
    const auto turn = std::next(of_node.begin(), static_cast<std::ptrdiff_t>(i * of_node.size() / count));
    on_node[all_want ? nodes[i] : turn->first].push_back(i);
  }
  for (const auto& [node, who] : on_node) share(of_node.at(node), who, by_node);
  return smallest(by_node) >= (all_want ? needed : smallest(in_a_row)) ? by_node : in_a_row;
}

std::string list_of_processors(std::span<const int> given) {
  std::vector<int> processors(given.begin(), given.end());
  std::sort(processors.begin(), processors.end());
  std::string list;
  for (std::size_t first = 0, last = 0; first < processors.size(); first = last + 1) {
    last = first;
    while (last + 1 < processors.size() && processors[last + 1] == processors[last] + 1) ++last;
    list += fmt::format("{}{}", list.empty() ? "" : ",", processors[first]);
    if (last > first) list += fmt::format("-{}", processors[last]);
  }
  return list;
}

Affinity bind_to_cores(ProcessGroup& processes, std::int64_t least, bool is_gpu) {
  Place mine;
  // Containers of one machine may have different host names for it.
  const std::string machine = line_of("/proc/sys/kernel/random/boot_id");
  std::memcpy(mine.machine.data(), machine.data(), std::min(machine.size(), mine.machine.size()));
  CPU_ZERO(&mine.allowed);
  const bool is_known = !machine.empty() && ::sched_getaffinity(0, sizeof mine.allowed, &mine.allowed) == 0;
  if (!is_known) CPU_ZERO(&mine.allowed);
  mine.least = least;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (is_gpu) mine.node = node_of_gpu("", processes.world().local_rank, visible == nullptr ? "" : visible);
  const std::vector<Place> places = processes.all_gather_value(mine);
  std::vector<std::int64_t> nodes;
  std::size_t place = 0;
  bool is_bound = !is_known;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    if (places[rank].machine != mine.machine) continue;
    if (static_cast<std::int64_t>(rank) == processes.rank()) place = nodes.size();
    nodes.push_back(places[rank].node);
    least = std::max(least, places[rank].least);
    is_bound = is_bound || !CPU_EQUAL(&places[rank].allowed, &mine.allowed);
  }
  Affinity affinity;
  std::string list;
  if (!is_bound && nodes.size() > 1) {
    const std::vector<std::vector<int>> shares = divide(read_cores("", processors_of(mine.allowed)), nodes, least);
    if (!shares.empty() && bind_all_threads(shares[place])) {
      affinity.mine = std::ssize(shares[place]);
      list = list_of_processors(shares[place]);
    }
  }
  constexpr std::size_t kMost = 4096;  // a list of every second of 1,024 processors is shorter
  const auto bytes = std::as_bytes(std::span(list));
  for (const Bytes& one : processes.all_gather(bytes, kMost))
    affinity.processors.emplace_back(reinterpret_cast<const char*>(one.data()), one.size());
  return affinity;
}

}  // namespace stretto::launch
