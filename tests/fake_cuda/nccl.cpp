#include "tests/fake_cuda/nccl.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "exec/comm/local.hpp"
#include "exec/cuda/module/nccl_api.hpp"

namespace {

using stretto::CollectiveKind;
using stretto::Dtype;

std::atomic<int> the_version{NCCL_VERSION_CODE}, refused_rank{-1};
std::mutex registered_mutex;
fake_nccl::Registered the_registered;
std::map<void*, int> registrations;  // memory of ncclMemAlloc → number of communicators that have it registered

std::atomic<int> live_count{0}, aborted_count{0}, hung_count{0}, most_ctas_count{0}, clustered_count{0};

// The turns of a rank's communicator: operations run one after the other in the order of the calls, whatever their
// streams, as in the real one (ncclLaunchPrepare).
struct Turns {
  std::uint64_t called = 0, done = 0;
};

// One collective of a group. Members arrive, each does its share when all have, and the next phase begins when all have
// finished. Sums are those of the host.
struct Meeting {
  std::vector<stretto::local::Buffers> buffers;
  std::vector<std::pair<std::ptrdiff_t, std::ptrdiff_t>> in_windows;  // offsets of those buffers in their windows
  std::vector<int> arrived;                                           // [phase]
  stretto::Collective collective;
  Dtype dtype = Dtype::f32;
};

struct Shared {
  std::mutex mutex;
  int ranks = 0, present = 0;
  std::deque<std::shared_ptr<Meeting>> meetings;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> mail;  // (from, to)
  std::map<std::pair<int, int>, std::uint64_t> sent, received;             // (from, to)
  std::map<int, int> collectives;                                          // [rank] number of calls
  std::set<std::pair<int, int>> sends, receives;                           // (from, to): called at least once
  std::map<int, int> windows;                                              // [rank] number of calls
  std::size_t window_bytes = 0;
};

Dtype dtype_of(ncclDataType_t type) {
  return type == ncclFloat32   ? Dtype::f32
         : type == ncclFloat64 ? Dtype::f64
         : type == ncclInt32   ? Dtype::i32
         : type == ncclUint8   ? Dtype::e4m3
                               : Dtype::bf16;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Shared> shared;
  int rank = 0, ctas = 0, policy = NCCL_CTA_POLICY_DEFAULT;
  const std::byte* memory = nullptr;  // registered memory
  std::size_t bytes = 0;
  bool has_window = false;
  bool has(const void* data) const {
    return memory != nullptr && data >= memory && static_cast<const std::byte*>(data) < memory + bytes;
  }
  std::size_t next_meeting = 0;
  Turns turns;
  std::atomic<int> error{ncclSuccess};
  std::atomic<bool> is_aborted{false};
  bool is_in_progress = false, is_finalized = false;  // used only by its own thread

  // Returns the result of a call that other ranks may have to answer.
  ncclResult_t goes_on() {
    is_in_progress = true;
    return ncclInProgress;
  }
};

namespace {

void forget_memory(ncclComm* comm);
void forget(ncclComm_t comm);

std::mutex registry_mutex;
std::map<std::string, std::shared_ptr<Shared>>& registry() {
  static std::map<std::string, std::shared_ptr<Shared>> the_registry;
  return the_registry;
}

// Communicators live as long as work that may still use them.
std::map<ncclComm_t, std::shared_ptr<ncclComm>>& mine() {
  thread_local std::map<ncclComm_t, std::shared_ptr<ncclComm>> the_mine;
  return the_mine;
}

// Returns whether the buffers that other members reach have equal offsets in all windows: the real library computes
// their addresses from its own.
bool has_equal_offsets(const Meeting& meeting) {
  for (const auto& [in, out] : meeting.in_windows) {
    const auto& [first_in, first_out] = meeting.in_windows.front();
    if (meeting.collective.kind != CollectiveKind::all_gather && in != first_in) return false;
    if (meeting.collective.kind != CollectiveKind::reduce_scatter && out != first_out) return false;
  }
  return true;
}

// Returns a member's share of a collective: it arrives when its stream reaches it, and is done when all members have
// arrived for its last phase.
std::function<bool()> part_of(const stretto::Collective& collective, const void* in, void* out, Dtype dtype,
                              const std::shared_ptr<ncclComm>& comm) {
  return [=, meeting = std::shared_ptr<Meeting>(), phase = 0, turn = comm->turns.called++]() mutable {
    if (comm->is_aborted) return true;
    if (turn != comm->turns.done) return false;
    Shared& shared = *comm->shared;
    std::lock_guard lock(shared.mutex);
    if (!meeting) {
      if (comm->next_meeting == shared.meetings.size()) {
        meeting = std::make_shared<Meeting>();
        meeting->buffers.resize(static_cast<std::size_t>(shared.ranks));
        meeting->in_windows.resize(static_cast<std::size_t>(shared.ranks));
        meeting->arrived.resize(3);
        meeting->collective = collective;
        meeting->dtype = dtype;
        shared.meetings.push_back(meeting);
      }
      meeting = shared.meetings[comm->next_meeting++];
      if (meeting->collective != collective || meeting->dtype != dtype) {
        comm->error = ncclInvalidUsage;  // the real library would hang, or confuse them
        ++comm->turns.done;
        return true;
      }
      meeting->buffers[static_cast<std::size_t>(comm->rank)] = {in, out};
      if (comm->has(in) && comm->has(out))
        meeting->in_windows[static_cast<std::size_t>(comm->rank)] = {static_cast<const std::byte*>(in) - comm->memory,
                                                                     static_cast<const std::byte*>(out) - comm->memory};
      if (++meeting->arrived[0] == shared.ranks && comm->memory != nullptr) {
        const std::lock_guard registered_lock(registered_mutex);
        if (!has_equal_offsets(*meeting)) ++the_registered.apart;
        if (!stretto::rule_of(collective.kind).reduces() && comm->policy == NCCL_CTA_POLICY_ZERO && comm->has_window)
          ++the_registered.by_copy_engine;
      }
    }
    const int phases = stretto::local::phases(collective.kind);
    while (meeting->arrived[static_cast<std::size_t>(phase)] == shared.ranks) {
      if (phase == phases) {
        ++comm->turns.done;
        return true;
      }
      stretto::local::run_share(collective, dtype, comm->rank, meeting->buffers, phase);
      ++meeting->arrived[static_cast<std::size_t>(++phase)];
    }
    return false;
  };
}

ncclResult_t collective(CollectiveKind kind, const void* in, void* out, std::size_t elements, ncclDataType_t type,
                        ncclComm_t comm, cudaStream_t stream, ncclRedOp_t by = ncclSum) {
  if (comm->is_in_progress) return ncclInvalidArgument;
  {
    std::lock_guard lock(comm->shared->mutex);
    ++comm->shared->collectives[comm->rank];
  }
  const stretto::Collective work{kind, 0, static_cast<std::int64_t>(elements),
                                 by == ncclSum ? stretto::Reduction::sum : stretto::Reduction::max};
  fake_cuda::submit(stream, [=, held = mine().at(comm)] { return part_of(work, in, out, dtype_of(type), held); });
  return comm->goes_on();
}

// Messages of a group on one communicator begin and end together; the next communicator's messages of the group follow,
// because they are another kernel on the stream. A send ends when it has been received: the real library has buffers
// for small messages, on which no program may rely.
struct Message {
  std::shared_ptr<ncclComm> comm;
  bool is_send = false;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t bytes = 0;
  int peer = 0;
  std::uint64_t number = 0;  // for a send: number of earlier sends to that peer
};
thread_local bool is_grouped = false;
thread_local std::vector<Message> grouped;
thread_local cudaStream_t stream_of_group = nullptr;

struct Kernel {
  std::vector<Message> left;
  std::uint64_t turn = 0;
  bool has_sent = false;

  // Returns whether it is done.
  bool advance() {
    ncclComm& comm = *left.front().comm;
    if (comm.is_aborted) return true;
    if (turn != comm.turns.done) return false;
    Shared& shared = *comm.shared;
    std::lock_guard lock(shared.mutex);
    for (Message& message : left) {
      if (has_sent || !message.is_send) continue;
      const auto* begin = static_cast<const std::byte*>(message.in);
      shared.mail[{comm.rank, message.peer}].emplace_back(begin, begin + message.bytes);
      message.number = ++shared.sent[{comm.rank, message.peer}];
    }
    has_sent = true;
    std::set<int> blocked;  // messages of one peer arrive in order
    std::vector<Message> rest;
    for (const Message& message : left)
      if (message.is_send ? shared.received[{comm.rank, message.peer}] < message.number
                          : blocked.contains(message.peer) || !receive(message)) {
        if (!message.is_send) blocked.insert(message.peer);
        rest.push_back(message);
      }
    if (!rest.empty()) {
      left = std::move(rest);
      return false;
    }
    ++comm.turns.done;
    return true;
  }

  static bool receive(const Message& message) {
    Shared& shared = *message.comm->shared;
    const std::pair way(message.peer, message.comm->rank);
    auto& mail = shared.mail[way];
    if (mail.empty()) return false;
    if (mail.front().size() != message.bytes) message.comm->error = ncclInvalidUsage;
    std::memcpy(message.out, mail.front().data(), std::min(message.bytes, mail.front().size()));
    mail.pop_front();
    ++shared.received[way];
    return true;
  }
};

void submit_messages(const std::vector<Message>& messages, cudaStream_t stream) {
  std::vector<std::vector<Message>> kernels;  // one for each communicator, in the order of their first calls
  for (const Message& message : messages) {
    const auto found = std::find_if(kernels.begin(), kernels.end(),
                                    [&](const auto& kernel) { return kernel.front().comm == message.comm; });
    (found != kernels.end() ? *found : kernels.emplace_back()).push_back(message);
  }
  for (const std::vector<Message>& of_kernel : kernels)
    fake_cuda::submit(stream, [of_kernel] {
      return
          [kernel = Kernel{of_kernel, of_kernel.front().comm->turns.called++}]() mutable { return kernel.advance(); };
    });
}

ncclResult_t message(Message message, cudaStream_t stream) {
  if (message.comm->is_in_progress) return ncclInvalidArgument;
  {
    Shared& shared = *message.comm->shared;
    std::lock_guard lock(shared.mutex);
    if (message.is_send)
      shared.sends.insert({message.comm->rank, message.peer});
    else
      shared.receives.insert({message.peer, message.comm->rank});
  }
  if (!is_grouped) {
    submit_messages({message}, stream);
    return message.comm->goes_on();
  }
  grouped.push_back(std::move(message));
  stream_of_group = stream;
  return ncclSuccess;
}

std::size_t bytes_of(std::size_t count, ncclDataType_t type) {
  return count * static_cast<std::size_t>(stretto::bytes_of(dtype_of(type)));
}

// Returns whether all ranks to which this rank's calls may connect have made theirs.
bool is_met(const Shared& shared, int rank) {
  const auto called = [&](int r) {
    const auto found = shared.collectives.find(r);
    return found == shared.collectives.end() ? 0 : found->second;
  };
  for (int r = 0; r < shared.ranks; ++r)
    if (called(r) < called(rank)) return false;
  const auto own = shared.windows.find(rank);
  if (own != shared.windows.end() && shared.windows.size() < static_cast<std::size_t>(shared.ranks)) return false;
  const auto answered = [&](const auto& calls, const auto& answers, bool from) {
    return std::all_of(calls.begin(), calls.end(), [&](const std::pair<int, int>& ends) {
      return (from ? ends.first : ends.second) != rank || answers.contains(ends);
    });
  };
  return answered(shared.sends, shared.receives, true) && answered(shared.receives, shared.sends, false);
}

// Communicators are destroyed when all graphs with operations of theirs are, and running ones have ended.
thread_local std::vector<ncclComm_t> to_reclaim;
void reclaim() {
  fake_cuda::Process& process = fake_cuda::process();
  while (process.advance()) {
  }
  const bool runs = std::any_of(process.streams.begin(), process.streams.end(),
                                [](const fake_cuda::Stream* stream) { return !stream->queue.empty(); });
  if (process.graphs > 0 || (process.graph_launches > 0 && runs)) ++hung_count;
  for (const ncclComm_t comm : std::exchange(to_reclaim, {})) forget(comm);
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = the_version;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> next{0};
  std::memset(id->internal, 0, sizeof id->internal);
  std::snprintf(id->internal, sizeof id->internal, "communicator %d", next++);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidUsage;
  if (config->maxCTAs != NCCL_CONFIG_UNDEF_INT && config->maxCTAs <= 0) return ncclInvalidArgument;
  if (config->CTAPolicy == NCCL_CTA_POLICY_ZERO && the_version < 22800) return ncclInvalidArgument;
  std::lock_guard lock(registry_mutex);
  std::shared_ptr<Shared>& shared = registry()[id.internal];
  if (!shared) shared = std::make_shared<Shared>();
  std::lock_guard shared_lock(shared->mutex);
  shared->ranks = ranks;
  ++shared->present;
  auto fresh = std::make_shared<ncclComm>();
  fresh->shared = shared;
  fresh->rank = rank;
  *comm = fresh.get();
  mine()[*comm] = std::move(fresh);
  ++live_count;
  (*comm)->policy = config->CTAPolicy;
  (*comm)->ctas = config->maxCTAs > 0 ? config->maxCTAs : 64;  // the real library's own choice may be as many
  int ctas = 0;
  for (const auto& [handle, one] : mine()) ctas += one->ctas;
  most_ctas_count = std::max(most_ctas_count.load(), ctas);
  if (config->cgaClusterSize > 1) ++clustered_count;
  return (*comm)->goes_on();
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (comm->is_in_progress || comm->is_finalized) return ncclInvalidArgument;
  comm->is_finalized = true;
  return comm->goes_on();
}
namespace {
void forget(ncclComm_t comm) {
  forget_memory(comm);
  mine().erase(comm);
  --live_count;
}
}  // namespace
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm->is_in_progress || !comm->is_finalized) return ncclInvalidArgument;
  forget(comm);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  ++aborted_count;
  comm->is_aborted = true;
  to_reclaim.push_back(comm);
  if (!is_grouped) reclaim();
  return ncclSuccess;
}
// A device goes on while its host asks.
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  fake_cuda::process().advance();
  std::lock_guard lock(comm->shared->mutex);
  const bool is_ready = comm->shared->present == comm->shared->ranks && is_met(*comm->shared, comm->rank);
  *error = comm->error != ncclSuccess ? static_cast<ncclResult_t>(comm->error.load())
           : is_ready                 ? ncclSuccess
                                      : ncclInProgress;
  if (is_ready) comm->is_in_progress = false;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) { return result == ncclSuccess ? "no error" : "an error"; }
const char* ncclGetLastError(ncclComm_t) { return "of a communicator that is not one"; }

ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const std::size_t whole = count * static_cast<std::size_t>(comm->shared->ranks);
  return collective(CollectiveKind::all_gather, in, out, whole, type, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t by,
                               ncclComm_t comm, cudaStream_t stream) {
  const std::size_t whole = count * static_cast<std::size_t>(comm->shared->ranks);
  return collective(CollectiveKind::reduce_scatter, in, out, whole, type, comm, stream, by);
}
ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t by,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective(CollectiveKind::all_reduce, in, out, count, type, comm, stream, by);
}
ncclResult_t ncclAlltoAll(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
  const std::size_t whole = count * static_cast<std::size_t>(comm->shared->ranks);
  return collective(CollectiveKind::all_to_all, in, out, whole, type, comm, stream);
}
ncclResult_t ncclMemAlloc(void** data, std::size_t bytes) {
  if (cudaMalloc(data, bytes) != cudaSuccess) return ncclUnhandledCudaError;
  const std::lock_guard lock(registered_mutex);
  registrations[*data] = 0;
  return ncclSuccess;
}
ncclResult_t ncclMemFree(void* data) {
  {
    const std::lock_guard lock(registered_mutex);
    const auto found = registrations.find(data);
    if (found == registrations.end()) return ncclInvalidUsage;
    if (found->second > 0) ++the_registered.freed_too_early;
    registrations.erase(found);
  }
  cudaFree(data);
  return ncclSuccess;
}
namespace {
ncclResult_t register_memory(ncclComm_t comm, void* data, std::size_t bytes, bool as_window) {
  const std::lock_guard lock(registered_mutex);
  const auto found = registrations.find(data);
  if (found == registrations.end() || comm->memory != nullptr) return ncclInvalidUsage;
  ++found->second;
  ++the_registered.live;
  ++(as_window ? the_registered.windows : the_registered.buffers);
  comm->memory = static_cast<const std::byte*>(data);
  comm->bytes = bytes;
  comm->has_window = as_window;
  return ncclSuccess;
}
void forget_memory(ncclComm* comm) {
  const std::lock_guard lock(registered_mutex);
  if (comm->memory == nullptr) return;
  --registrations[const_cast<std::byte*>(std::exchange(comm->memory, nullptr))];
  --the_registered.live;
}
}  // namespace
ncclResult_t ncclCommRegister(ncclComm_t comm, void* data, std::size_t bytes, void** handle) {
  *handle = comm;
  return register_memory(comm, data, bytes, false);
}
ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  if (handle != comm || comm->memory == nullptr || comm->has_window) return ncclInvalidUsage;
  forget_memory(comm);
  return ncclSuccess;
}
// Must be called by all members, with equal sizes.
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, std::size_t bytes, ncclWindow_t* window, int flags) {
  if (flags != NCCL_WIN_COLL_SYMMETRIC || comm->is_in_progress) return ncclInvalidArgument;
  if (int rank = comm->rank; refused_rank.compare_exchange_strong(rank, -1)) return ncclSystemError;
  {
    const std::lock_guard lock(comm->shared->mutex);
    std::size_t& of_others = comm->shared->window_bytes;
    if (!comm->shared->windows.empty() && of_others != bytes) return ncclInvalidArgument;
    of_others = bytes;
    ++comm->shared->windows[comm->rank];
  }
  *window = reinterpret_cast<ncclWindow_t>(comm);
  const ncclResult_t result = register_memory(comm, data, bytes, true);
  return result == ncclSuccess ? comm->goes_on() : result;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  if (window != reinterpret_cast<ncclWindow_t>(comm) || !comm->has_window || comm->memory == nullptr)
    return ncclInvalidUsage;
  forget_memory(comm);
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return message({mine().at(comm), true, in, nullptr, bytes_of(count, type), peer}, stream);
}
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return message({mine().at(comm), false, nullptr, out, bytes_of(count, type), peer}, stream);
}
ncclResult_t ncclGroupStart() {
  is_grouped = true;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  is_grouped = false;
  if (!to_reclaim.empty()) reclaim();
  for (const Message& message : grouped) message.comm->is_in_progress = true;
  if (!grouped.empty()) submit_messages(std::exchange(grouped, {}), stream_of_group);
  return ncclInProgress;
}

// Behaves as if the library of that version had been loaded.
const stretto::cuda::NcclApi& stretto::cuda::nccl() {
  static const auto until = [](int version) {
    NcclApi found;
#define STRETTO_TAKE(name) found.name = &::nccl##name;
    STRETTO_NCCL_FUNCTIONS(STRETTO_TAKE)
    STRETTO_NCCL_LATER_FUNCTIONS(STRETTO_TAKE)
#undef STRETTO_TAKE
    if (version < 22800) found.AlltoAll = nullptr;
    if (version < 22700) {
      found.CommWindowRegister = nullptr;
      found.CommWindowDeregister = nullptr;
    }
    if (version < 21900) {
      found.MemAlloc = nullptr;
      found.MemFree = nullptr;
      found.CommRegister = nullptr;
      found.CommDeregister = nullptr;
    }
    return found;
  };
  static const NcclApi all = until(NCCL_VERSION_CODE), before_copies = until(22700), before_windows = until(22600),
                       before_memory = until(21800);
  const int version = the_version;
  return version >= 22800 ? all : version >= 22700 ? before_copies : version >= 21900 ? before_windows : before_memory;
}

namespace fake_nccl {
void be(int version) { the_version = version; }
void refuse_registration(int rank) { refused_rank = rank; }
Registered registered() {
  const std::lock_guard lock(registered_mutex);
  const Registered result = the_registered;
  the_registered.windows = the_registered.buffers = the_registered.by_copy_engine = 0;
  return result;
}
int live() { return live_count; }
int aborted() { return aborted_count; }
int hung() { return hung_count; }
int most_ctas() { return most_ctas_count.exchange(0); }
int clustered() { return clustered_count; }
}  // namespace fake_nccl
