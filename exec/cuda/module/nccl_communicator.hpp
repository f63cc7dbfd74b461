#pragma once
#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "exec/launch/process_group.hpp"

namespace stretto::cuda {

// One of NCCL's communicators, which does not block, and this process's place in it. Neither copyable nor movable:
// NCCL writes handles into it. Errors are Error(runtime) that name the communicator, the call, and NCCL's reason.
class NcclCommunicator {
 public:
  // Not open yet. `members`: ranks of the schedule, in their order in the communicator; `rank` is one. `processes` must
  // outlive it.
  NcclCommunicator(std::string name, std::vector<std::int64_t> members, std::int64_t rank,
                   launch::ProcessGroup& processes, double timeout_s);
  // All operations must be done. Deregisters memory, then says goodbye.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Collective: returns when all members have come, after timeout_s with an error.
  void open(const ncclUniqueId& id, ncclConfig_t config);
  // Collective, of open communicators: what collectives read or write in `memory` can be reached by the others without
  // copies. It must be from ncclMemAlloc, of equal size on all members, and what others reach in it must be equally far
  // from its beginning on all, which only the caller knows. A symmetric window where NCCL has such (2.27), else a
  // registered buffer.
  void register_memory(std::span<std::byte> memory);
  // Of what was launched; nothing may follow.
  void abort();

  ncclComm_t comm() const { return comm_; }
  const std::string& name() const { return name_; }
  const std::vector<std::int64_t>& members() const { return members_; }
  int index_of(std::int64_t rank) const;  // in NCCL's numbering

  // Throws when `result` is an error. `call`: what was called, for the message.
  void require(ncclResult_t result, const char* call) const;
  // Waits until the communicator takes the next call. That may depend on other ranks: the first operations connect.
  void settle(const char* call) const;
  // Throws when what was launched cannot come to its end.
  void check() const;

 private:
  bool deregister();  // whether NCCL did

  std::string name_;
  std::vector<std::int64_t> members_;
  std::int64_t rank_;
  launch::ProcessGroup& processes_;
  double timeout_s_;
  ncclComm_t comm_ = nullptr;
  ncclWindow_t window_ = nullptr;
  void* buffer_ = nullptr;  // handle of a registered one
};

}  // namespace stretto::cuda
