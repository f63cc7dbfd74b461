#include <cuda_runtime.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "base/error.hpp"
#include "exec/comm/local.hpp"
#include "exec/cuda/module/check.hpp"
#include "exec/cuda/module/communication.hpp"
#include "exec/cuda/module/nccl_api.hpp"
#include "exec/cuda/module/nccl_communicator.hpp"
#include "exec/cuda/module/nccl_version.hpp"
#include "exec/cuda/module/window_layout.hpp"
#include "exec/cuda/nccl_groups.hpp"
#include "exec/launch/process_group.hpp"
#include "model/schedule/parcel.hpp"
#include "model/schedule/partners.hpp"

namespace stretto::cuda {
namespace {

ncclDataType_t type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return ncclFloat32;
    case Dtype::f64:
      return ncclFloat64;
    case Dtype::bf16:
      return ncclBfloat16;
    case Dtype::e4m3:  // codes and scales: bytes, which are not summed
    case Dtype::e5m2:
    case Dtype::e2m1x2:
      return ncclUint8;
    case Dtype::i32:
    case Dtype::f16:  // state of the optimizer, which no rank sends
    case Dtype::i16:
      break;
  }
  return ncclInt32;
}

std::string host_name() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return host;
}

// Returns a name that is unique to a device across machines.
std::string device_name() {
  int device = 0;
  char bus[32] = "";
  check(cudaGetDevice(&device), "asking for the device");
  check(cudaDeviceGetPCIBusId(bus, sizeof bus, device), "asking for the device's place");
  return fmt::format("GPU {} of {}", bus, host_name());
}

std::vector<std::string> all_texts(launch::ProcessGroup& processes, const std::string& mine) {
  std::vector<std::string> texts;
  for (const launch::Bytes& bytes : processes.all_gather(std::as_bytes(std::span(mine)), 512))
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return texts;
}

// The contribution of one communicator's first member.
struct Invitation {
  NcclGroup group;
  std::int64_t first_rank = 0;
  ncclUniqueId id;
};

class Nccl final : public Communication {
 public:
  Nccl(const Schedule& schedule, const BoundProgram& program, OperandsOf operands, CountsOf counts,
       const CudaOptions& options, const Stream& stream, std::span<std::byte> registered)
      : schedule_(schedule),
        program_(program),
        operands_(std::move(operands)),
        counts_(std::move(counts)),
        processes_(*options.processes),
        timeout_s_(options.timeout_s),
        registered_(registered),
        places_(find_nccl_groups(schedule, program)) {
    // Receives into buffers that a graph has registered can hang silently (github.com/NVIDIA/nccl/issues/2389, 2390).
    // NCCL reads this variable at its first use; the user's own setting stays.
    ::setenv("NCCL_GRAPH_REGISTER", "0", 0);
    require_nccl_version();
    require_devices();
    try {
      connect(stream.sms);
      connect_messages(stream);
      if (!registered_.empty()) register_arena();
    } catch (const Error& error) {
      abort();
      if (processes_.failure()) throw;  // another rank's failure
      throw runtime_failure(fmt::format("rank {}: {}", processes_.rank(), error.what()));
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
    for (const auto& [place, group] : groups_) group.check();
  }

  // The aborts form one group: each waits for running graphs, and such a graph ends when all its communicators have
  // been aborted.
  void abort() override {
    nccl().GroupStart();
    for (auto& [place, group] : groups_) group.abort();
    nccl().GroupEnd();
  }

  std::vector<std::string> notes() const override { return notes_; }

 private:
  void require_devices() {
    const std::vector<std::string> devices = all_texts(processes_, device_name());
    // Ranks with equal texts are on one machine for NCCL.
    const char* given = std::getenv("NCCL_HOSTID");
    machines_ = all_texts(processes_, given == nullptr ? host_name() : given);
    std::map<std::string, std::size_t> rank_of;
    for (std::size_t rank = 0; rank < devices.size(); ++rank) {
      const std::string& device = devices[rank];
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
        for (std::size_t r = 0; r < machines_.size(); ++r) machines_[r] += fmt::format(" rank {}", r);
      }
    }
  }

  // NCCL refuses two ranks on one device of one machine; it reads these variables at its first use.
  void pass_for_machines() const {
    const std::string host = fmt::format("stretto-rank-{}", processes_.rank());
    for (const auto& [name, value] : {std::pair<const char*, const char*>{"NCCL_HOSTID", host.c_str()},
                                      {"NCCL_NET", "Socket"},
                                      {"NCCL_IB_DISABLE", "1"},
                                      {"NCCL_SOCKET_IFNAME", "lo"},
                                      {"NCCL_MNNVL_ENABLE", "0"}})
      ::setenv(name, value, 0);
  }

  // Opens communicators in one order everywhere, so that ranks do not wait in a circle. All members of a group take
  // part, whether they will use it or not.
  void connect(int sms) {
    std::vector<Invitation> mine;
    for (const NcclGroup& place : places_.all) {
      const Communicator& communicator = schedule_.communicators[place.communicator];
      const NcclCommunicator& group =
          groups_
              .try_emplace(place, communicator.name, members_of(schedule_, communicator, program_.rank), program_.rank,
                           processes_, timeout_s_)
              .first->second;
      if (group.members().front() != program_.rank) continue;
      Invitation& invitation = mine.emplace_back();
      invitation.group = place;
      invitation.first_rank = program_.rank;
      group.require(nccl().GetUniqueId(&invitation.id), "ncclGetUniqueId");
    }
    std::map<std::pair<NcclGroup, std::int64_t>, ncclUniqueId> ids;
    constexpr std::size_t kinds = 16;  // at most this many kinds and colours of one communicator's groups
    const std::size_t most = schedule_.communicators.size() * kinds * sizeof(Invitation);
    for (const launch::Bytes& theirs : processes_.all_gather(std::as_bytes(std::span(mine)), most))
      for (std::size_t at = 0; at + sizeof(Invitation) <= theirs.size(); at += sizeof(Invitation)) {
        Invitation invitation;
        std::memcpy(&invitation, theirs.data() + at, sizeof invitation);
        ids[{invitation.group, invitation.first_rank}] = invitation.id;
      }
    // The number must be equal for all: a connection between two ranks uses the channels that either assumes, and a
    // rank in fewer groups than others would assume more.
    int of_others = ctas_of_others(schedule_, places_.all, sms);
    for (const int of_rank : processes_.all_gather_value(of_others)) of_others = std::min(of_others, of_rank);
    for (auto& [place, group] : groups_) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.maxCTAs = ctas_of(schedule_, place, of_others);
      // Where NCCL must share the remaining SMs, its CTAs take them one by one: clusters, of four CTAs on GPUs that
      // have them, would wait for four free SMs of one part of the device.
      if (schedule_.communicators[place.communicator].engine != CommEngine::sm) config.cgaClusterSize = 1;
      if (is_by_copy_engine(place, group)) {
        config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
        copied_.insert(place);
      }
      group.open(ids.at({place, group.members().front()}), config);
    }
  }

  // Returns whether NCCL can move a group's bytes by copy engines, as the schedule says; adds a note where it cannot.
  // The conditions: NCCL's documentation, "Zero-CTA Optimization".
  bool is_by_copy_engine(const NcclGroup& place, const NcclCommunicator& group) {
    if (schedule_.communicators[place.communicator].engine != CommEngine::copy_engine) return false;
    std::string reason;
    int driver = 0;
    const std::string& machine = machines_[static_cast<std::size_t>(processes_.rank())];
    if (place.kind != NcclGroup::Kind::collectives)
      reason = "NCCL has no messages by copy engine";
    else if (std::any_of(schedule_.operations.begin(), schedule_.operations.end(), [&](const Operation& operation) {
               const auto* rows = std::get_if<Collective>(&operation.work);
               return rows != nullptr && rows->by_rows() && rows->communicator == place.communicator;
             }))
      reason = "data says how many rows experts have; moe_pad_expert_input_to_capacity makes them equal";
    else if (registered_.empty())
      reason = "cluster.nccl_ub is off";
    else if (nccl_version() < kNcclWithZeroCta || nccl().AlltoAll == nullptr)
      reason = fmt::format("NCCL {} is there, and 2.28 is the first that has them", version_text(nccl_version()));
    else if (cudaDriverGetVersion(&driver) != cudaSuccess || driver < 12050)
      reason = "CUDA's driver must be of 12.5 or later";
    else if (std::any_of(group.members().begin(), group.members().end(),
                         [&](std::int64_t rank) { return machines_[static_cast<std::size_t>(rank)] != machine; }))
      reason = "its ranks are on several machines";
    if (reason.empty()) return true;
    const std::string note =
        fmt::format("communicator {} is not on copy engines, its kernels take SMs: {}", group.name(), reason);
    if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(note);
    return false;
  }

  // Registers the arena with every communicator whose members have its collectives' buffers at equal places.
  void register_arena() {
    struct Layout {
      NcclGroup group;
      std::int64_t first_rank = 0;
      std::uint64_t layout = 0;
    };
    std::vector<Layout> mine;
    for (const auto& [place, layout] : window_layouts(program_, places_, operands_, registered_)) {
      Layout& one = mine.emplace_back();  // bytes between its members are sent too
      one.group = place;
      one.first_rank = groups_.at(place).members().front();
      one.layout = layout;
    }
    std::map<std::pair<NcclGroup, std::int64_t>, std::set<std::uint64_t>> layouts;
    const std::size_t most = schedule_.communicators.size() * sizeof(Layout);
    for (const launch::Bytes& theirs : processes_.all_gather(std::as_bytes(std::span(mine)), most))
      for (std::size_t at = 0; at + sizeof(Layout) <= theirs.size(); at += sizeof(Layout)) {
        Layout one;
        std::memcpy(&one, theirs.data() + at, sizeof one);
        layouts[{one.group, one.first_rank}].insert(one.layout);
      }
    std::string apart;
    for (auto& [place, group] : groups_) {
      if (place.kind != NcclGroup::Kind::collectives) continue;
      if (layouts.at({place, group.members().front()}).size() == 1)
        group.register_memory(registered_);
      else
        apart += (apart.empty() ? "" : ", ") + group.name();
    }
    if (!apart.empty())
      notes_.push_back("buffers of " + apart +
                       " are not registered: their ranks have them in different places, and NCCL needs them in the "
                       "same");
    if (nccl().CommWindowRegister == nullptr)
      notes_.push_back(fmt::format(
          "NCCL {} is there, and 2.27 is the first that has symmetric windows: buffers are registered without",
          version_text(nccl_version())));
  }

  // Connects all pairs of ranks with messages, each communicator by one group. The first message between two ranks
  // connects them, which both must have called: a rank that sends before it receives would wait for one that does the
  // same.
  void connect_messages(const Stream& stream) {
    std::map<NcclGroup, std::set<std::pair<int, bool>>> used;  // (peer, whether it is sent to)
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
      const NcclCommunicator& group = groups_.at(index);
      nccl().GroupStart();
      ncclResult_t result = ncclSuccess;
      for (const auto& [peer, is_send] : ends) {
        const ncclResult_t one = is_send ? nccl().Send(out, 1, ncclInt32, peer, group.comm(), on)
                                         : nccl().Recv(in, 1, ncclInt32, peer, group.comm(), on);
        if (one != ncclSuccess && one != ncclInProgress) result = one;
      }
      const ncclResult_t ended = nccl().GroupEnd();
      group.require(result == ncclSuccess ? ended : result, "connecting");
      group.settle("connecting");
    }
  }

  void run(const Collective& collective, std::uint32_t op, cudaStream_t stream) {
    const std::span<const exec::Operand> operands = operands_(0, op);
    const auto found = groups_.find(places_.of_op[op]);
    const Dtype dtype = operands.front().dtype;
    const void* in = operands.front().data;
    void* out = operands.back().data;
    const auto elements = static_cast<std::size_t>(collective.elements);
    if (found == groups_.end()) {  // the rank is alone
      if (in == out) return;
      const std::size_t bytes = elements * static_cast<std::size_t>(bytes_of(dtype));
      return cuda::check(cudaMemcpyAsync(out, in, bytes, cudaMemcpyDeviceToDevice, stream), "copying");
    }
    const NcclCommunicator& group = found->second;
    const std::size_t share = elements / group.members().size();
    const ncclDataType_t type = type_of(dtype);
    const ncclRedOp_t reduction = collective.reduction == Reduction::max ? ncclMax : ncclSum;
    ncclResult_t result = ncclSuccess;
    switch (collective.kind) {
      case CollectiveKind::all_gather:
        result = nccl().AllGather(in, out, share, type, group.comm(), stream);
        break;
      case CollectiveKind::reduce_scatter:
        result = nccl().ReduceScatter(in, out, share, type, reduction, group.comm(), stream);
        break;
      case CollectiveKind::all_reduce:
        result = nccl().AllReduce(in, out, elements, type, reduction, group.comm(), stream);
        break;
      case CollectiveKind::dispatch:
      case CollectiveKind::combine:
        if (collective.by_rows()) {
          result =
              exchange_rows(collective, in, out, counts_(operands[*counts_of(Work(collective))]), dtype, group, stream);
          break;
        }
        [[fallthrough]];  // every member has as many rows for every other
      case CollectiveKind::all_to_all:
        result = copied_.contains(found->first) ? nccl().AlltoAll(in, out, share, type, group.comm(), stream)
                                                : all_to_all(in, out, share, dtype, group, stream);
        break;
    }
    group.require(result, "starting a collective");
    if (result == ncclInProgress) group.settle("starting a collective");
  }

  // Sends slice j of every member to member j: a group of messages, which NCCL runs as one kernel. ncclAlltoAll, which
  // copy engines need, is new in NCCL 2.28.
  static ncclResult_t all_to_all(const void* in, void* out, std::size_t slice, Dtype dtype,
                                 const NcclCommunicator& group, cudaStream_t stream) {
    const std::size_t bytes = slice * static_cast<std::size_t>(bytes_of(dtype));
    const auto parcel = [&](std::size_t peer) { return Slice{peer * bytes, slice}; };
    return exchange_slices(in, out, dtype, group, stream, parcel, parcel);
  }

  // Sends every member its rows: what `offsets`, the host's copy, says.
  static ncclResult_t exchange_rows(const Collective& collective, const void* in, void* out,
                                    const std::int32_t* offsets, Dtype dtype, const NcclCommunicator& group,
                                    cudaStream_t stream) {
    const auto members = static_cast<std::int64_t>(group.members().size());
    const std::int64_t self = group.place();
    local::require_fit(collective, offsets, members);
    const auto slice = [&](std::int64_t begin, std::int64_t elements) {
      return Slice{static_cast<std::size_t>(begin * bytes_of(dtype)), static_cast<std::size_t>(elements)};
    };
    return exchange_slices(
        in, out, dtype, group, stream,
        [&](std::size_t peer) {
          const Parcel given = parcel_of_rows(collective, offsets, members, self, static_cast<std::int64_t>(peer));
          return slice(given.source, given.elements);
        },
        [&](std::size_t peer) {
          const Parcel got = parcel_of_rows(collective, offsets, members, static_cast<std::int64_t>(peer), self);
          return slice(got.target, got.elements);
        });
  }

  // A part of a buffer: its first byte, and elements.
  struct Slice {
    std::size_t begin_bytes = 0, elements = 0;
  };
  // A group of messages without the empty ones. NCCL runs it as one kernel.
  template <class Given, class Got>
  static ncclResult_t exchange_slices(const void* in, void* out, Dtype dtype, const NcclCommunicator& group,
                                      cudaStream_t stream, const Given& given, const Got& got) {
    nccl().GroupStart();
    ncclResult_t result = ncclSuccess;
    const auto keep = [&](ncclResult_t one) {
      if (one != ncclSuccess && one != ncclInProgress) result = one;
    };
    for (std::size_t peer = 0; peer < group.members().size(); ++peer) {
      const Slice sent = given(peer), received = got(peer);
      const int to = static_cast<int>(peer);
      if (sent.elements > 0)
        keep(nccl().Send(static_cast<const std::byte*>(in) + sent.begin_bytes, sent.elements, type_of(dtype), to,
                         group.comm(), stream));
      if (received.elements > 0)
        keep(nccl().Recv(static_cast<std::byte*>(out) + received.begin_bytes, received.elements, type_of(dtype), to,
                         group.comm(), stream));
    }
    const ncclResult_t ended = nccl().GroupEnd();
    return result == ncclSuccess ? ended : result;
  }

  void exchange(const LaunchAction& action, cudaStream_t stream) {
    const std::vector<std::uint32_t>& lane = program_.lanes[program_.ops[action.op].lane];
    const auto first = lane.begin() + program_.ops[action.op].position;
    // All messages belong to one communicator, so that the group is one kernel.
    const NcclCommunicator& group = groups_.at(places_.of_op[action.op]);
    nccl().GroupStart();
    ncclResult_t result = ncclSuccess;
    for (const std::uint32_t op : call_order(schedule_, program_, {first, first + action.joined})) {
      const auto& message = std::get<PointToPoint>(program_.work_of(op));
      const exec::Operand& buffer = operands_(0, op).front();
      const int peer = group.index_of(peer_of(schedule_, message, program_.rank).rank);
      const auto elements = static_cast<std::size_t>(message.elements);
      const ncclDataType_t type = type_of(buffer.dtype);
      const ncclResult_t one = message.is_send ? nccl().Send(buffer.data, elements, type, peer, group.comm(), stream)
                                               : nccl().Recv(buffer.data, elements, type, peer, group.comm(), stream);
      if (one != ncclSuccess && one != ncclInProgress) result = one;
    }
    const ncclResult_t ended = nccl().GroupEnd();
    group.require(result == ncclSuccess ? ended : result, "starting messages");
    group.settle("starting messages");
  }

  const Schedule& schedule_;
  const BoundProgram& program_;
  const OperandsOf operands_;
  const CountsOf counts_;
  launch::ProcessGroup& processes_;
  const double timeout_s_;
  const std::span<std::byte> registered_;  // the arena, or empty
  const NcclGroups places_;
  std::vector<std::string> machines_;  // [rank]
  std::map<NcclGroup, NcclCommunicator> groups_;
  std::set<NcclGroup> copied_;  // groups that copy engines move
  std::vector<std::string> notes_;
};

}  // namespace

std::unique_ptr<Communication> connect_nccl(const Schedule& schedule, const BoundProgram& program, OperandsOf operands,
                                            CountsOf counts, const CudaOptions& options, const Stream& stream,
                                            std::span<std::byte> registered) {
  return std::make_unique<Nccl>(schedule, program, std::move(operands), std::move(counts), options, stream, registered);
}

}  // namespace stretto::cuda
