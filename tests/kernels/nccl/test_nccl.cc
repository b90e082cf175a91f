// A libnccl for nccl_api_test: it does nothing but note its calls. `rank` of an init is the result
// that the init returns, except 0 and 1. The abort of communicator 66 fails. The test reads the
// calls by test_nccl_calls.
#include <cstdio>
#include <cstring>
#include <string>

#include "kernels/nccl/nccl_declarations.h"

#ifndef TEST_NCCL_VERSION
#define TEST_NCCL_VERSION 22809
#endif

namespace nccl = kaon::kernels::nccl;

namespace {

std::string& Calls() {
  static std::string calls;
  return calls;
}

void Note(const std::string& call) { Calls() += call + ";"; }

int polls_until_ready = 2;

std::string Name(nccl::Comm comm) { return std::to_string(reinterpret_cast<size_t>(comm)); }

}  // namespace

extern "C" {

// Returns the calls since the last one of this.
const char* test_nccl_calls() {
  static std::string taken;
  taken = Calls();
  Calls().clear();
  return taken.c_str();
}

nccl::Result ncclGetVersion(int* version) {
  *version = TEST_NCCL_VERSION;
  return nccl::kSuccess;
}

nccl::Result ncclGetUniqueId(nccl::UniqueIdBytes* id) {
  std::memset(id->internal, 7, sizeof(id->internal));
  return nccl::kSuccess;
}

nccl::Result ncclCommInitRankConfig(nccl::Comm* comm, int ranks, nccl::UniqueIdBytes id, int rank,
                                    nccl::Config* config) {
  char text[200];
  std::snprintf(text, sizeof(text),
                "init %d/%d id %d size %zu magic %x version %u blocking %d ctas %d..%d", rank,
                ranks, id.internal[127], config->size, config->magic, config->version,
                config->blocking, config->min_ctas, config->max_ctas);
  Note(text);
  if (rank > 1) return static_cast<nccl::Result>(rank);
  *comm = reinterpret_cast<nccl::Comm>(static_cast<size_t>(rank + 1));
  polls_until_ready = 2;
  return nccl::kInProgress;
}

nccl::Result ncclCommGetAsyncError(nccl::Comm comm, nccl::Result* state) {
  if (comm == nullptr) return nccl::kInvalidArgument;
  *state = polls_until_ready-- > 0 ? nccl::kInProgress : nccl::kSuccess;
  return nccl::kSuccess;
}

const char* ncclGetLastError(nccl::Comm) { return "the test said so"; }
const char* ncclGetErrorString(nccl::Result) { return "an error"; }

nccl::Result ncclSend(const void*, size_t bytes, int dtype, int peer, nccl::Comm comm, void*) {
  polls_until_ready = 2;
  Note("send " + std::to_string(bytes) + " of " + std::to_string(dtype) + " to " +
       std::to_string(peer) + " on " + Name(comm));
  return nccl::kInProgress;
}

nccl::Result ncclRecv(void*, size_t bytes, int dtype, int peer, nccl::Comm comm, void*) {
  Note("recv " + std::to_string(bytes) + " of " + std::to_string(dtype) + " from " +
       std::to_string(peer) + " on " + Name(comm));
  return nccl::kRemoteError;
}

nccl::Result ncclGroupStart() {
  Note("group");
  return nccl::kSuccess;
}
nccl::Result ncclGroupEnd() {
  Note("end");
  return nccl::kSuccess;
}
nccl::Result ncclCommAbort(nccl::Comm comm) {
  Note("abort " + Name(comm));
  return Name(comm) == "66" ? nccl::kUnhandledCudaError : nccl::kSuccess;
}
#ifndef TEST_NCCL_WITHOUT_REVOKE
nccl::Result ncclCommRevoke(nccl::Comm comm, int flags) {
  Note("revoke " + Name(comm) + " " + std::to_string(flags));
  return nccl::kInProgress;
}
#endif

}  // extern "C"
