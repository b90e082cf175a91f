// The part of NCCL's C API that Kaon calls, declared here because NCCL is loaded at run time and
// need not be installed. Names, values and layouts follow NVIDIA's documentation of NCCL 2.28,
// "Types" and "Communicator Creation and Management Functions"
// (docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html). No test compares the layouts
// with NCCL's own header; nccl_api_test calls a real library with them where it finds one. Plain
// declarations; nothing here is linked.
#ifndef KAON_KERNELS_NCCL_NCCL_DECLARATIONS_H_
#define KAON_KERNELS_NCCL_NCCL_DECLARATIONS_H_

#include <climits>
#include <cstddef>

namespace kaon::kernels::nccl {

// ncclResult_t.
enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

// ncclUint8 of ncclDataType_t.
inline constexpr int kUint8 = 1;

// ncclComm_t.
using Comm = void*;

// ncclUniqueId.
struct UniqueIdBytes {
  char internal[128];
};

// Oldest version with ncclCommRevoke whose abort is sound, as NCCL counts: 10000 * major + 100 *
// minor + patch.
inline constexpr int kLeastVersion = 22807;

inline constexpr int kUndefined = INT_MIN;

// ncclConfig_t of 2.28. A newer library reads as much as `size` and `version` say.
struct Config {
  size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = kLeastVersion;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int traffic_class = kUndefined;
  const char* comm_name = nullptr;
  int collnet_enable = kUndefined;
  int cta_policy = kUndefined;
  int shrink_share = kUndefined;
  int nvls_ctas = kUndefined;
  int channels_per_net_peer = kUndefined;
  int nvlink_centric_sched = kUndefined;
};

// The functions, by their names in the library.
struct Functions {
  Result (*ncclGetVersion)(int*) = nullptr;
  Result (*ncclGetUniqueId)(UniqueIdBytes*) = nullptr;
  Result (*ncclCommInitRankConfig)(Comm*, int, UniqueIdBytes, int, Config*) = nullptr;
  Result (*ncclCommGetAsyncError)(Comm, Result*) = nullptr;
  const char* (*ncclGetLastError)(Comm) = nullptr;
  const char* (*ncclGetErrorString)(Result) = nullptr;
  Result (*ncclSend)(const void*, size_t, int, int, Comm, void*) = nullptr;
  Result (*ncclRecv)(void*, size_t, int, int, Comm, void*) = nullptr;
  Result (*ncclGroupStart)() = nullptr;
  Result (*ncclGroupEnd)() = nullptr;
  Result (*ncclCommAbort)(Comm) = nullptr;
  Result (*ncclCommRevoke)(Comm, int) = nullptr;
};

}  // namespace kaon::kernels::nccl

#endif  // KAON_KERNELS_NCCL_NCCL_DECLARATIONS_H_
