#include "exec/cuda/module/nccl_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "exec/cuda/module/nccl_api.hpp"

namespace stretto::cuda {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

NcclCommunicator::NcclCommunicator(std::string name, std::vector<std::int64_t> members, std::int64_t rank,
                                   launch::ProcessGroup& processes, double timeout_s)
    : name_(std::move(name)), members_(std::move(members)), rank_(rank), processes_(processes), timeout_s_(timeout_s) {}

NcclCommunicator::~NcclCommunicator() {
  if (comm_ == nullptr) return;
  try {
    // Memory is deregistered first: otherwise NCCL may still know it when it is freed.
    if (!deregister()) throw runtime_failure("");
    if (nccl().CommFinalize(comm_) == ncclInProgress) settle("ncclCommFinalize");
    nccl().CommDestroy(comm_);
  } catch (const Error&) {
    nccl().CommAbort(comm_);
  }
}

void NcclCommunicator::open(const ncclUniqueId& id, ncclConfig_t config) {
  config.blocking = 0;
  require(nccl().CommInitRankConfig(&comm_, static_cast<int>(members_.size()), id, index_of(rank_), &config),
          "ncclCommInitRankConfig");
  settle("ncclCommInitRankConfig");
}

void NcclCommunicator::register_memory(std::span<std::byte> memory) {
  if (nccl().CommWindowRegister != nullptr && nccl().CommWindowDeregister != nullptr) {
    require(nccl().CommWindowRegister(comm_, memory.data(), memory.size(), &window_, NCCL_WIN_COLL_SYMMETRIC),
            "ncclCommWindowRegister");
    settle("ncclCommWindowRegister");
  } else {
    require(nccl().CommRegister(comm_, memory.data(), memory.size(), &buffer_), "ncclCommRegister");
    settle("ncclCommRegister");
  }
}

bool NcclCommunicator::deregister() {
  ncclResult_t result = ncclSuccess;
  if (window_ != nullptr) result = nccl().CommWindowDeregister(comm_, std::exchange(window_, nullptr));
  if (buffer_ != nullptr) result = nccl().CommDeregister(comm_, std::exchange(buffer_, nullptr));
  return result == ncclSuccess;
}

void NcclCommunicator::abort() {
  window_ = nullptr;  // the handles go with the communicator
  buffer_ = nullptr;
  if (comm_ != nullptr) nccl().CommAbort(std::exchange(comm_, nullptr));
}

int NcclCommunicator::index_of(std::int64_t rank) const {
  return static_cast<int>(std::find(members_.begin(), members_.end(), rank) - members_.begin());
}

void NcclCommunicator::require(ncclResult_t result, const char* call) const {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw runtime_failure(fmt::format("NCCL, communicator {}: {}: {} ({})", name_, call, nccl().GetErrorString(result),
                                    nccl().GetLastError(comm_)));
}

void NcclCommunicator::settle(const char* call) const {
  const auto begin = Clock::now();
  for (int tries = 0;; ++tries) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = nccl().CommGetAsyncError(comm_, &state);
    require(asked, call);
    require(state, call);
    if (state == ncclSuccess) return;
    if (tries < 1000) continue;  // most calls are done at once
    if (const auto failure = processes_.failure()) throw runtime_failure(*failure);
    if (std::chrono::duration<double>(Clock::now() - begin).count() > timeout_s_)
      throw runtime_failure(
          fmt::format("NCCL, communicator {}: {}: other ranks did not come within {} s", name_, call, timeout_s_));
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void NcclCommunicator::check() const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl().CommGetAsyncError(comm_, &state);
  require(asked == ncclSuccess ? state : asked, "communicating");
}

}  // namespace stretto::cuda
