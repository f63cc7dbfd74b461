#include <cuda_runtime.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <variant>

#include "base/error.hpp"
#include "exec/cuda/module/check.hpp"
#include "exec/cuda/module/communication.hpp"
#include "exec/cuda/module/nccl_api.hpp"
#include "exec/cuda/module/nccl_groups.hpp"
#include "exec/launch/process_group.hpp"

namespace stretto::cuda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostCtas = 64;  // that NCCL 2.28 gives a communicator (MAXCHANNELS)
// Between two GPUs on one channel, unless the user says otherwise (NCCL's documentation of NCCL_BUFFSIZE).
constexpr std::int64_t kBuffer_bytes = std::int64_t{4} << 20;

std::int64_t buffer_bytes() {
  const char* given = std::getenv("NCCL_BUFFSIZE");
  const std::int64_t bytes = given == nullptr ? 0 : std::strtoll(given, nullptr, 10);
  return bytes > 0 ? bytes : kBuffer_bytes;
}

ncclDataType_t type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return ncclFloat32;
    case Dtype::f64:
      return ncclFloat64;
    case Dtype::bf16:
      return ncclBfloat16;
    case Dtype::e4m3:  // and scales: bytes, which are not summed
      return ncclUint8;
    case Dtype::i32:
      break;
  }
  return ncclInt32;
}

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void require_version() {
  int version = 0;
  if (nccl().GetVersion(&version) != ncclSuccess || version / 10000 != NCCL_MAJOR || version < NCCL_VERSION_CODE)
    throw runtime_failure(fmt::format("NCCL {} is installed; expected {} or a later {}.x", version_text(version),
                                      version_text(NCCL_VERSION_CODE), NCCL_MAJOR));
}

// A name that is unique to a device across machines.
std::string device_name() {
  int device = 0;
  char bus[32] = "", host[256] = "";
  check(cudaGetDevice(&device), "asking for the device");
  check(cudaDeviceGetPCIBusId(bus, sizeof bus, device), "asking for the device's place");
  ::gethostname(host, sizeof host - 1);
  return fmt::format("GPU {} of {}", bus, host);
}

// The contribution of one communicator's first member.
struct Invitation {
  NcclGroup group;
  std::int64_t first_rank = 0;
  ncclUniqueId id;
};

class Nccl final : public Communication {
 public:
  Nccl(const Schedule& schedule, const BoundProgram& program, OperandsOf operands, const CudaOptions& options,
       const Stream& stream)
      : schedule_(schedule),
        program_(program),
        operands_(std::move(operands)),
        processes_(*options.processes),
        timeout_s_(options.timeout_s),
        places_(find_nccl_groups(schedule, program)) {
    // Receives into buffers that a graph has registered can hang without a word (github.com/NVIDIA/nccl/issues/2389,
    // 2390). NCCL asks for this at its first use; the user's own setting stays.
    ::setenv("NCCL_GRAPH_REGISTER", "0", 0);
    require_version();
    require_devices();
    try {
      connect(stream.sms);
      connect_messages(stream);
    } catch (...) {
      abort();
      throw;
    }
  }

  ~Nccl() override {
    for (auto& [place, group] : groups_) {
      if (group.comm == nullptr) continue;
      try {
        // All operations are done; this only says goodbye.
        if (nccl().CommFinalize(group.comm) == ncclInProgress) settle(group, "closing communicators");
        nccl().CommDestroy(group.comm);
      } catch (const Error&) {
        nccl().CommAbort(group.comm);
      }
    }
  }

  void launch(const LaunchAction& action, const Stream& stream) override {
    const Work& work = program_.work_of(action.op);
    auto* on = static_cast<cudaStream_t>(stream.stream);
    if (const auto* collective = std::get_if<Collective>(&work))
      run(*collective, action.op, on);
    else
      exchange(action, on);
  }

  void check() override {
    if (const auto failure = processes_.failure()) throw runtime_failure(*failure);
    for (const auto& [place, group] : groups_) {
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = nccl().CommGetAsyncError(group.comm, &state);
      require(asked == ncclSuccess ? state : asked, group, "communicating");
    }
  }

  // As one group: each waits for graphs that run, and such a graph ends when all its communicators have been told.
  void abort() override {
    nccl().GroupStart();
    for (auto& [place, group] : groups_)
      if (group.comm != nullptr) nccl().CommAbort(std::exchange(group.comm, nullptr));
    nccl().GroupEnd();
  }

  std::vector<std::string> notes() const override { return notes_; }

 private:
  struct Group {
    std::string name;
    std::vector<std::int64_t> members;  // ranks
    ncclComm_t comm = nullptr;
    int index_of(std::int64_t rank) const {
      return static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
    }
  };

  void require_devices() {
    const std::string mine = device_name();
    const std::vector<launch::Bytes> all = processes_.all_gather(std::as_bytes(std::span(mine)), 256);
    std::map<std::string, std::size_t> rank_of;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      const std::string device(reinterpret_cast<const char*>(all[rank].data()), all[rank].size());
      const auto [first, fresh] = rank_of.try_emplace(device, rank);
      if (fresh) continue;
      if (processes_.world().launcher != "--ranks" && std::getenv("NCCL_HOSTID") == nullptr)
        throw runtime_failure(
            fmt::format("ranks {} and {} are both on {}: start one process for each GPU, or all ranks in one process, "
                        "which share it",
                        first->second, rank, device));
      if (notes_.empty()) {
        notes_.push_back(
            fmt::format("ranks share {} and communicate by NCCL over sockets: this proves the order of calls and says "
                        "nothing of speed",
                        device));
        pass_for_machines();
      }
    }
  }

  // NCCL refuses two ranks on one device of one machine; it asks for these at its first use.
  void pass_for_machines() const {
    const std::string host = fmt::format("stretto-rank-{}", processes_.rank());
    for (const auto& [name, value] : {std::pair<const char*, const char*>{"NCCL_HOSTID", host.c_str()},
                                      {"NCCL_NET", "Socket"},
                                      {"NCCL_IB_DISABLE", "1"},
                                      {"NCCL_SOCKET_IFNAME", "lo"},
                                      {"NCCL_MNNVL_ENABLE", "0"}})
      ::setenv(name, value, 0);
  }

  // Communicators in one order everywhere, so that nobody waits in a circle. All members of a group take part, whether
  // they will use it or not.
  void connect(int sms) {
    std::vector<Invitation> mine;
    for (const NcclGroup& place : places_.all) {
      const Communicator& communicator = schedule_.communicators[place.communicator];
      Group group{communicator.name, members_of(schedule_, communicator, program_.rank), nullptr};
      if (group.members.front() == program_.rank) {
        Invitation& invitation = mine.emplace_back();
        invitation.group = place;
        invitation.first_rank = program_.rank;
        require(nccl().GetUniqueId(&invitation.id), group, "opening a communicator");
      }
      groups_.emplace(place, std::move(group));
    }
    std::map<std::pair<NcclGroup, std::int64_t>, ncclUniqueId> ids;
    constexpr std::size_t kinds = 16;  // and colours of one communicator's groups, at most
    const std::size_t most = schedule_.communicators.size() * kinds * sizeof(Invitation);
    for (const launch::Bytes& theirs : processes_.all_gather(std::as_bytes(std::span(mine)), most))
      for (std::size_t at = 0; at + sizeof(Invitation) <= theirs.size(); at += sizeof(Invitation)) {
        Invitation invitation;
        std::memcpy(&invitation, theirs.data() + at, sizeof invitation);
        ids[{invitation.group, invitation.first_rank}] = invitation.id;
      }
    // The same for all: what is between two ranks uses the channels that either thinks it has, and a rank that is in
    // fewer groups than others would have more. NCCL rounds those of messages up to a power of two.
    int free_ctas = ctas_of_the_others(sms);
    for (const int of_rank : processes_.all_gather_value(free_ctas)) free_ctas = std::min(free_ctas, of_rank);
    const int free_for_messages = static_cast<int>(std::bit_floor(static_cast<unsigned>(free_ctas)));
    const auto ctas_of = [&](const NcclGroup& place) {
      const Communicator& communicator = schedule_.communicators[place.communicator];
      if (communicator.engine == CommEngine::sm) return communicator.channels;
      return std::min(kMostCtas, place.kind == NcclGroup::Kind::collectives ? free_ctas : free_for_messages);
    };
    say_when_memory_is_short(ctas_of);
    for (auto& [place, group] : groups_) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      config.maxCTAs = ctas_of(place);
      // Where NCCL is to share SMs that are left, its CTAs take them one by one: clusters, four CTAs on a GPU that has
      // them, wait for four free SMs of one part of the device.
      if (schedule_.communicators[place.communicator].engine != CommEngine::sm) config.cgaClusterSize = 1;
      const ncclResult_t result =
          nccl().CommInitRankConfig(&group.comm, static_cast<int>(group.members.size()),
                                 ids.at({place, group.members.front()}), group.index_of(program_.rank), &config);
      require(result, group, "opening a communicator");
      settle(group, "opening a communicator");
    }
  }

  // NCCL's buffers are not in the memory plan. `ctas_of` a group's place.
  template <class CtasOf>
  void say_when_memory_is_short(CtasOf ctas_of) {
    std::int64_t needed = 0;
    for (const auto& [place, group] : groups_) {
      // From the one before and the one behind in a ring, or from everyone that sends.
      const std::int64_t peers = std::min<std::int64_t>(2, std::ssize(group.members) - 1);
      needed += peers * ctas_of(place) * buffer_bytes();
    }
    std::size_t free = 0, total = 0;
    cuda::check(cudaMemGetInfo(&free, &total), "asking for free memory");
    if (needed <= static_cast<std::int64_t>(free)) return;
    notes_.push_back(
        fmt::format("memory is short: NCCL may take {:.2f} GiB for the buffers of {} communicators, {:.2f} are free "
                    "beside the plan; max_ctas of a group or NCCL_BUFFSIZE make it less",
                    static_cast<double>(needed) / (1 << 30), groups_.size(), static_cast<double>(free) / (1 << 30)));
  }

  // Kernels of several communicators run at the same time and wait for ranks on which others may have started first.
  // They end as long as all find room on the device, so those whose channels the schedule does not give share what is
  // left of one half of it; the other half is for compute.
  int ctas_of_the_others(int sms) const {
    int given = 0, others = 0;
    for (const auto& [place, group] : groups_) {
      const Communicator& communicator = schedule_.communicators[place.communicator];
      if (communicator.engine == CommEngine::sm)
        given += place.kind == NcclGroup::Kind::collectives
                     ? communicator.channels
                     : static_cast<int>(std::bit_ceil(static_cast<unsigned>(communicator.channels)));
      else
        ++others;
    }
    return std::max(1, (sms / 2 - given) / std::max(1, others));
  }

  // The first message between two ranks connects them, for which both must have made their calls: a rank that sends
  // before it receives would wait for one that does the same. So all are connected here, each communicator by one
  // group.
  void connect_messages(const Stream& stream) {
    std::map<NcclGroup, std::set<std::pair<int, bool>>> used;  // peer, whether it is sent to
    for (std::size_t op = 0; op < program_.ops.size(); ++op)
      if (const auto* message = std::get_if<PointToPoint>(&program_.work_of(op))) {
        const std::int64_t peer = peer_of(schedule_, *message, program_.rank).rank;
        const NcclGroup& place = places_.of_op[op];
        used[place].insert({groups_.at(place).index_of(peer), message->is_send});
      }
    auto* out = static_cast<std::byte*>(stream.scratch);
    std::byte* in = out + sizeof(std::int32_t);
    auto* on = static_cast<cudaStream_t>(stream.stream);
    for (const auto& [index, ends] : used) {
      const Group& group = groups_.at(index);
      nccl().GroupStart();
      ncclResult_t result = ncclSuccess;
      for (const auto& [peer, is_send] : ends) {
        const ncclResult_t one = is_send ? nccl().Send(out, 1, ncclInt32, peer, group.comm, on)
                                         : nccl().Recv(in, 1, ncclInt32, peer, group.comm, on);
        if (one != ncclSuccess && one != ncclInProgress) result = one;
      }
      const ncclResult_t ended = nccl().GroupEnd();
      require(result == ncclSuccess ? ended : result, group, "connecting");
      settle(group, "connecting");
    }
  }

  void require(ncclResult_t result, const Group& group, const char* what) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    throw runtime_failure(fmt::format("NCCL, communicator {}: {}: {} ({})", group.name, what,
                                      nccl().GetErrorString(result), nccl().GetLastError(group.comm)));
  }

  // Until the communicator takes the next call. That may depend on other ranks: the first operations connect.
  void settle(const Group& group, const char* what) const {
    const auto begin = Clock::now();
    for (int tries = 0;; ++tries) {
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = nccl().CommGetAsyncError(group.comm, &state);
      require(asked, group, what);
      require(state, group, what);
      if (state == ncclSuccess) return;
      if (tries < 1000) continue;  // most are done at once
      if (const auto failure = processes_.failure()) throw runtime_failure(*failure);
      if (std::chrono::duration<double>(Clock::now() - begin).count() > timeout_s_)
        throw runtime_failure(fmt::format("NCCL, communicator {}: {}: other ranks did not come within {} s", group.name,
                                          what, timeout_s_));
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  void run(const Collective& collective, std::uint32_t op, cudaStream_t stream) {
    const std::span<const exec::Operand> operands = operands_(0, op);
    const auto found = groups_.find(places_.of_op[op]);
    const Dtype dtype = operands.front().dtype;
    const void* in = operands.front().data;
    void* out = operands.back().data;
    const auto elements = static_cast<std::size_t>(collective.elements);
    if (found == groups_.end()) {  // alone
      if (in == out) return;
      const std::size_t bytes = elements * static_cast<std::size_t>(bytes_of(dtype));
      return cuda::check(cudaMemcpyAsync(out, in, bytes, cudaMemcpyDeviceToDevice, stream), "copying");
    }
    const Group& group = found->second;
    const std::size_t share = elements / group.members.size();
    const ncclDataType_t type = type_of(dtype);
    ncclResult_t result = ncclSuccess;
    switch (collective.kind) {
      case CollectiveKind::all_gather:
        result = nccl().AllGather(in, out, share, type, group.comm, stream);
        break;
      case CollectiveKind::reduce_scatter:
        result = nccl().ReduceScatter(in, out, share, type, ncclSum, group.comm, stream);
        break;
      case CollectiveKind::all_reduce:
        result = nccl().AllReduce(in, out, elements, type, ncclSum, group.comm, stream);
        break;
      case CollectiveKind::all_to_all:
        result = all_to_all(in, out, share, dtype, group, stream);
        break;
    }
    require(result, group, "starting a collective");
    if (result == ncclInProgress) settle(group, "starting a collective");
  }

  // Slice j of every member to member j: a group of messages, which NCCL runs as one kernel. (ncclAlltoAll is new in
  // NCCL 2.28.)
  static ncclResult_t all_to_all(const void* in, void* out, std::size_t slice, Dtype dtype, const Group& group,
                                 cudaStream_t stream) {
    const std::size_t bytes = slice * static_cast<std::size_t>(bytes_of(dtype));
    nccl().GroupStart();
    ncclResult_t result = ncclSuccess;
    for (std::size_t peer = 0; peer < group.members.size(); ++peer) {
      const auto* from = static_cast<const std::byte*>(in) + peer * bytes;
      auto* to = static_cast<std::byte*>(out) + peer * bytes;
      for (const ncclResult_t one : {nccl().Send(from, slice, type_of(dtype), static_cast<int>(peer), group.comm, stream),
                                     nccl().Recv(to, slice, type_of(dtype), static_cast<int>(peer), group.comm, stream)})
        if (one != ncclSuccess && one != ncclInProgress) result = one;
    }
    const ncclResult_t ended = nccl().GroupEnd();
    return result == ncclSuccess ? ended : result;
  }

  void exchange(const LaunchAction& action, cudaStream_t stream) {
    const std::vector<std::uint32_t>& lane = program_.lanes[program_.ops[action.op].lane];
    const auto first = lane.begin() + program_.ops[action.op].position;
    // All of one communicator, so that the group is one kernel.
    const Group& group = groups_.at(places_.of_op[action.op]);
    nccl().GroupStart();
    ncclResult_t result = ncclSuccess;
    for (const std::uint32_t op : call_order(schedule_, program_, {first, first + action.joined})) {
      const auto& message = std::get<PointToPoint>(program_.work_of(op));
      const exec::Operand& buffer = operands_(0, op).front();
      const int peer = group.index_of(peer_of(schedule_, message, program_.rank).rank);
      const auto elements = static_cast<std::size_t>(message.elements);
      const ncclDataType_t type = type_of(buffer.dtype);
      const ncclResult_t one = message.is_send ? nccl().Send(buffer.data, elements, type, peer, group.comm, stream)
                                               : nccl().Recv(buffer.data, elements, type, peer, group.comm, stream);
      if (one != ncclSuccess && one != ncclInProgress) result = one;
    }
    const ncclResult_t ended = nccl().GroupEnd();
    require(result == ncclSuccess ? ended : result, group, "starting messages");
    settle(group, "starting messages");
  }

  const Schedule& schedule_;
  const BoundProgram& program_;
  const OperandsOf operands_;
  launch::ProcessGroup& processes_;
  const double timeout_s_;
  const NcclGroups places_;
  std::map<NcclGroup, Group> groups_;
  std::vector<std::string> notes_;
};

}  // namespace

std::unique_ptr<Communication> connect_nccl(const Schedule& schedule, const BoundProgram& program, OperandsOf operands,
                                            const CudaOptions& options, const Stream& stream) {
  return std::make_unique<Nccl>(schedule, program, std::move(operands), options, stream);
}

}  // namespace stretto::cuda
