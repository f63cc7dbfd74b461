#pragma once
// The calls of NCCL that exec/cuda/module/nccl.cpp makes, between threads of one process that behave as ranks.
// Operations are work in a stream, which is done when all ranks have reached theirs. Calls are in progress until the
// other ranks have made theirs, because any call may connect to them; a call on a communicator before
// ncclCommGetAsyncError() has reported the end of the previous one is refused, and so is a destruction without
// ncclCommFinalize().
#include <climits>
#include <cstddef>

#include "tests/fake_cuda/cuda_runtime.h"

#define NCCL_MAJOR 2
#define NCCL_VERSION_CODE 22809

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};
enum ncclDataType_t { ncclUint8 = 1, ncclInt32 = 2, ncclFloat32 = 7, ncclFloat64 = 8, ncclBfloat16 = 9 };
enum ncclRedOp_t { ncclSum = 0, ncclMax = 2 };
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {
  int blocking, cgaClusterSize, maxCTAs, CTAPolicy;
};
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_INITIALIZER \
  { 1, 4, NCCL_CONFIG_UNDEF_INT, NCCL_CTA_POLICY_DEFAULT }
#define NCCL_CTA_POLICY_DEFAULT 0
#define NCCL_CTA_POLICY_ZERO 2
#define NCCL_WIN_COLL_SYMMETRIC 1
struct ncclComm;
using ncclComm_t = ncclComm*;
struct ncclWindow_vidmem;
using ncclWindow_t = ncclWindow_vidmem*;

ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclAlltoAll(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream);
ncclResult_t ncclMemAlloc(void** data, std::size_t bytes);
ncclResult_t ncclMemFree(void* data);
ncclResult_t ncclCommRegister(ncclComm_t comm, void* data, std::size_t bytes, void** handle);
ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle);
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, std::size_t bytes, ncclWindow_t* window, int flags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();

namespace fake_nccl {
// Counts over all threads: open communicators, and those that ended by ncclCommAbort.
int live();
int aborted();
int most_ctas();  // most CTAs of all communicators that a rank had at one time, since the last call
int clustered();  // communicators whose CTAs start in clusters
// Sets the version of the library: functions that it lacks are null, and it refuses newer policies.
void be(int version);
struct Registered {
  int windows = 0, buffers = 0;  // registered since the last call
  int live = 0;                  // not yet deregistered
  int freed_too_early = 0;       // memory that was freed while it was registered
  int by_copy_engine = 0;        // collectives that needed no thread block, since the last call
  int apart = 0;                 // collectives that reached different offsets of members' windows
};
Registered registered();
void refuse_registration(int rank);  // refuses that rank's next window
int hung();                          // aborts in which the real library would wait forever
}  // namespace fake_nccl
