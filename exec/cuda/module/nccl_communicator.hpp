#pragma once
#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "exec/launch/process_group.hpp"

namespace stretto::cuda {

// One of NCCL's communicators, which does not block, and this process's place in it. Neither copyable nor movable: NCCL
// writes handles into it. Errors are Error(runtime) that name the communicator, the call, and NCCL's reason.
class NcclCommunicator {
 public:
  // Makes a communicator that is not open yet. `members`: ranks of the schedule, in their order in the communicator;
  // `rank` is one of them. `processes` must outlive it.
  NcclCommunicator(std::string name, std::vector<std::int64_t> members, std::int64_t rank,
                   launch::ProcessGroup& processes, double timeout_s);
  // All operations must be done. Deregisters memory, then closes the communicator.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Collective: returns when all members have called it, throws after timeout_s.
  void open(const ncclUniqueId& id, ncclConfig_t config);
  // Collective, on open communicators: lets other members reach the buffers of collectives in `memory` without copies.
  // The memory must be from ncclMemAlloc, of equal size on all members, and the buffers that others reach must have
  // equal offsets on all, which only the caller knows. It becomes a symmetric window where NCCL has them (2.27), else a
  // registered buffer.
  void register_memory(std::span<std::byte> memory);
  // Aborts launched work; nothing may follow.
  void abort();

  ncclComm_t comm() const { return comm_; }
  const std::string& name() const { return name_; }
  const std::vector<std::int64_t>& members() const { return members_; }
  int index_of(std::int64_t rank) const;  // in NCCL's numbering
  int place() const { return index_of(rank_); }

  // Throws when `result` is an error. `call`: the called function, for the message.
  void require(ncclResult_t result, const char* call) const;
  // Waits until the communicator takes the next call. That may depend on other ranks: the first operations connect.
  void settle(const char* call) const;
  // Throws when launched work cannot end.
  void check() const;

 private:
  bool deregister();  // returns whether NCCL succeeded

  std::string name_;
  std::vector<std::int64_t> members_;
  std::int64_t rank_;
  launch::ProcessGroup& processes_;
  double timeout_s_;
  ncclComm_t comm_ = nullptr;
  ncclWindow_t window_ = nullptr;
  void* buffer_ = nullptr;  // handle of a registered buffer
};

}  // namespace stretto::cuda
