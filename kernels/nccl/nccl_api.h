// NcclApi: NCCL as a table of functions, loaded when it is needed. A host without NCCL gets a
// reason, not a program that does not start. Communicators do not block. Any thread may call it;
// calls for one communicator come one after the other. Streams are of type cudaStream_t.
#ifndef KAON_KERNELS_NCCL_NCCL_API_H_
#define KAON_KERNELS_NCCL_NCCL_API_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/nccl/device_link.h"
#include "kernels/nccl/nccl_declarations.h"

namespace kaon::kernels {

class NcclApi {
 public:
  // Name that the loader searches for.
  static constexpr char kLibrary[] = "libnccl.so.2";

  struct CommOptions {
    // Multiprocessors that a transfer may use. Few: the device trains meanwhile.
    int max_ctas = 2;
  };

  // Loads the library, which stays loaded until the process ends. NOT_FOUND with the loader's
  // reason. FAILED_PRECONDITION for a version below 2.28.7, or without a function that it must
  // have.
  static absl::StatusOr<std::unique_ptr<NcclApi>> Load(const std::string& library = kLibrary);

  // Returns the version of the library, such as "2.28.9".
  std::string version() const;

  absl::StatusOr<UniqueId> NewId() const;
  // Begins to join. Done when Poll is no longer kInProgress. FAILED_PRECONDITION without a device
  // or driver, UNAVAILABLE if the network fails.
  absl::StatusOr<nccl::Comm> Init(const UniqueId& id, int ranks, int rank,
                                  const CommOptions& options) const;
  // A failure has the text of ncclGetLastError.
  CommState Poll(nccl::Comm comm) const;
  // Queue a transfer on the stream. Call Poll until it is no longer kInProgress before the next
  // call, and before an event is recorded behind the transfer.
  absl::Status Send(nccl::Comm comm, ConstRegion from, int peer, void* stream) const;
  absl::Status Receive(nccl::Comm comm, Region to, int peer, void* stream) const;
  // Begins to stop all operations; then Poll.
  absl::Status Revoke(nccl::Comm comm) const;
  // Destroys communicators as one group, so that none waits for another's kernels. May block.
  absl::Status Abort(absl::Span<const nccl::Comm> comms) const;

 private:
  NcclApi(const nccl::Functions& functions, int version)
      : functions_(functions), version_(version) {}

  absl::Status StatusOf(nccl::Result result, const char* call, nccl::Comm comm) const;

  const nccl::Functions functions_;
  const int version_;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_NCCL_NCCL_API_H_
