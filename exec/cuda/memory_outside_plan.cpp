#include "exec/cuda/memory_outside_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "exec/cuda/code_scratch.hpp"
#include "exec/cuda/cuda.hpp"
#include "exec/cuda/module/workspace.hpp"
#include "exec/cuda/nccl_groups.hpp"
#include "model/schedule/process_group.hpp"

namespace stretto::cuda {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Constants of NCCL 2.28.9, src/init.cc (DEFAULT_LL_BUFFSIZE, DEFAULT_LL128_BUFFSIZE) and src/include/device.h. A
// connection of one channel has a buffer for each protocol.
constexpr std::int64_t kLl_bytes = 8 * 512 * 8 * 16;      // lines a thread, threads, steps, bytes of a line
constexpr std::int64_t kLl128_bytes = 120 * 640 * 8 * 8;  // elements a thread, threads, steps, bytes of an element
// src/include/comm.h, CUDA_IPC_MIN: memory that other processes map consists of whole pages.
constexpr std::int64_t kPage_bytes = 2 * kMiB;
std::int64_t in_pages(std::int64_t bytes) { return (bytes + kPage_bytes - 1) / kPage_bytes * kPage_bytes; }

// "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer": NCCL's output
// with NCCL_DEBUG=INFO on 8 H100, in public logs; on 8 A100 the line is equal except for nvls. The 16 are
// NVLS_NCHANNELS_SM90 (src/transport/nvls.cc), the 32 are in github.com/NVIDIA/nccl/issues/1685 too.
constexpr int kRingChannels = 24, kNvlsChannels = 16, kMessageChannels = 32;
// src/transport/nvls.cc: a chunk of 128 KiB by 8 steps, up and down, for each channel and member; 32 members are NCCL's
// maximum (NCCL_MAX_NVLS_ARITY).
constexpr std::int64_t kNvls_bytes = 2 * 128 * 1024 * 8, kNvlsMembers = 32;
// Messages between machines share a buffer for each direction: 32 channels by 16 steps (NCCL_SHARED_STEPS) of 128 KiB
// (NCCL_P2P_NET_CHUNKSIZE).
constexpr std::int64_t kNetMessages_bytes = std::int64_t{32} * 16 * 128 * 1024;

// github.com/NVIDIA/cccl/pull/3768, by its author at NVIDIA: "around 10KB per kernel node".
constexpr std::int64_t kGraphNode_bytes = 10'000;

class NcclMemory {
 public:
  NcclMemory(const Schedule& schedule, std::int64_t rank, const DeviceFacts& device)
      : schedule_(schedule), rank_(rank), device_(device) {}

  std::int64_t bytes() const {
    const std::set<NcclGroup> groups = nccl_groups_of(schedule_, rank_);
    const std::map<NcclGroup, NcclPeers> peers = nccl_peers_of(schedule_, rank_);
    const int of_others = ctas_of_others(schedule_, groups, device_.sms);
    std::int64_t sum = 0;
    for (const NcclGroup& group : groups) {
      const int ctas = ctas_of(schedule_, group, of_others);
      if (group.kind == NcclGroup::Kind::collectives)
        sum += collectives(group, ctas);
      else if (const auto of_group = peers.find(group); of_group != peers.end())
        sum += messages(of_group->second, ctas);
    }
    return sum;
  }

 private:
  bool is_near(std::int64_t peer) const { return peer / device_.machine_ranks == rank_ / device_.machine_ranks; }

  // A receiver has the buffers of the three protocols, a sender one page. (Where the receiver reads the sender's
  // memory, Simple's buffer is the sender's, and the sum is equal.)
  std::int64_t receives() const { return in_pages(kLl_bytes + kLl128_bytes + device_.nccl_buffer_bytes); }
  // With a network card both ends have the buffers that it reads and writes.
  std::int64_t by_card() const { return in_pages(kLl128_bytes + device_.nccl_buffer_bytes); }

  std::int64_t messages(const NcclPeers& peers, int ctas) const {
    const auto near = [&](const std::set<std::int64_t>& of) {
      return std::count_if(of.begin(), of.end(), [&](std::int64_t peer) { return is_near(peer); });
    };
    return messages(near(peers.to), std::ssize(peers.to), ctas, kPage_bytes) +
           messages(near(peers.from), std::ssize(peers.from), ctas, receives());
  }
  // Returns the bytes in one direction, to or from `peers` ranks; `near` of them are on this machine. `near_bytes`: of
  // a channel to one of those.
  static std::int64_t messages(std::int64_t near, std::int64_t peers, int ctas, std::int64_t near_bytes) {
    return near * std::min(ctas, kMessageChannels) * near_bytes + (near < peers ? kNetMessages_bytes : 0);
  }

  // Returns the bytes of a ring, of buffers for sums in switches, and of messages to all members, as far as the
  // schedule needs them.
  std::int64_t collectives(const NcclGroup& group, int ctas) const {
    const Communicator& communicator = schedule_.communicators[group.communicator];
    if (communicator.engine == CommEngine::copy_engine) return 0;  // it copies from buffer to buffer
    bool has_rings = false, has_all_to_all = false;
    for (const Operation& operation : schedule_.operations) {
      const auto* collective = std::get_if<Collective>(&operation.work);
      if (collective == nullptr || collective->communicator != group.communicator) continue;
      (like_equal_slices(collective->kind) == CollectiveKind::all_to_all ? has_all_to_all : has_rings) = true;
    }
    const std::int64_t machine = rank_ / device_.machine_ranks * device_.machine_ranks,
                       members = process_group_of(schedule_.mesh, communicator, rank_).size,
                       near = members_within(schedule_.mesh, communicator, rank_, machine,
                                             machine + device_.machine_ranks);
    std::int64_t sum = 0;
    if (has_rings) {
      const bool is_far = near < members;
      sum += std::min(ctas, kRingChannels) * (is_far ? 2 * by_card() : receives() + kPage_bytes);
      // NCCL uses the switches from two GPUs on; with two a ring is as good.
      if (device_.multicast && near > 2)
        sum += std::min(ctas, kNvlsChannels) * kNvls_bytes * std::min(near, kNvlsMembers);
    }
    if (has_all_to_all) {
      sum += messages(near - 1, members - 1, ctas, kPage_bytes) + messages(near - 1, members - 1, ctas, receives());
    }
    return sum;
  }

  const Schedule& schedule_;
  const std::int64_t rank_;
  const DeviceFacts device_;
};

}  // namespace

std::int64_t nccl_bytes(const Schedule& schedule, std::int64_t rank, const DeviceFacts& device) {
  return NcclMemory(schedule, rank, device).bytes();
}

OutsidePlan context_outside_plan(int sms) {
  // Sizes reported: 555 MiB on 188 SMs and 107 on 34 (github.com/ggml-org/llama.cpp/pull/23604), 426 on 142
  // (github.com/unslothai/unsloth-zoo/pull/1053), 256 on 82 (github.com/invoke-ai/InvokeAI/issues/9413).
  constexpr double of_sm_MiB = 3.1;
  return {"CUDA context", static_cast<std::int64_t>(of_sm_MiB * sms * kMiB), "published",
          "3.1 MiB an SM, within 5 % of four GPUs: llama.cpp#23604 (two), unsloth-zoo#1053, InvokeAI#9413"};
}

std::vector<OutsidePlan> memory_outside_plan(const Schedule& schedule, std::int64_t rank, const DeviceFacts& device,
                                             bool by_nccl, bool graphs, bool by_framework) {
  const std::int64_t ranks = by_nccl ? 1 : std::min(schedule.placement.ranks_per_device, schedule.mesh.ranks());
  std::int64_t nodes = 0;
  const Coordinates at = schedule.mesh.coordinates_of(rank);
  for (const Call& call : schedule.programs[schedule.role_of(at)].order) nodes += call.count;
  std::vector<OutsidePlan> parts = {
      {"workspaces of lanes",
       by_framework ? ranks * std::ssize(schedule.lanes) * static_cast<std::int64_t>(kWorkspace_bytes)
                    : overhead_bytes(schedule, ranks),
       "exact", "cuBLAS's workspace, which kernels share"},
      {"NCCL", by_nccl ? nccl_bytes(schedule, rank, device) : 0, "published",
       "channels by buffers of its connections, source of 2.28.9; channels as logs of 8 H100 have them"},
      {"CUDA graphs", graphs ? ranks * nodes * kGraphNode_bytes : 0, "published", "10 KB a kernel, cccl#3768"}};
  std::erase_if(parts, [](const OutsidePlan& part) { return part.bytes == 0; });
  return parts;
}

std::string text_of(const std::vector<OutsidePlan>& parts) {
  std::string text;
  for (const OutsidePlan& part : parts)
    text += fmt::format("{}{} {:.2f} GiB ({})", text.empty() ? "" : ", ", part.what,
                        static_cast<double>(part.bytes) / (1 << 30), part.kind);
  return text;
}

std::int64_t overhead_bytes(const Schedule& schedule, std::int64_t ranks) {
  std::int64_t bytes = 0;
  for (std::size_t lane = 0; lane < schedule.lanes.size(); ++lane)
    bytes += scratch_bytes_of(schedule, static_cast<LaneId>(lane));
  return ranks * bytes;
}

}  // namespace stretto::cuda
