// DeviceLink: one device, and communicators of two ranks between it and a device of another
// process. This is the seam below gradients over NCCL: memory, copies and events of the device, and
// NCCL's calls. FakeFabric of tests/testing connects links within one process. Any thread may call
// a link; calls for one communicator come one after the other. No call but Abort blocks on a peer.
#ifndef KAON_KERNELS_NCCL_DEVICE_LINK_H_
#define KAON_KERNELS_NCCL_DEVICE_LINK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/region.h"

namespace kaon::kernels {

// Secret by which both ranks of a communicator find each other.
using UniqueId = std::array<std::byte, 128>;

using CommId = uint64_t;
using TransferId = uint64_t;

// State of a communicator.
struct CommState {
  enum class Kind : uint8_t { kInProgress, kReady, kFailed };
  Kind kind = Kind::kInProgress;
  // Reason of kFailed.
  std::string message;
};

// Slot number of the digest of a transfer; kernels/reduce/digest.h has the others.
inline constexpr uint32_t kTransferSlot = 1003;

class DeviceLink {
 public:
  virtual ~DeviceLink() = default;

  // Returns the library, the device and the network, for logs.
  virtual std::string name() const = 0;
  // Returns the number of the device.
  virtual int device() const = 0;

  // Memory.

  // Returns the name of this memory, as Backend::memory_tier: that backend computes on it.
  virtual std::string memory_tier() const = 0;
  // Allocates memory of the device. RESOURCE_EXHAUSTED with the arithmetic.
  virtual absl::StatusOr<Region> Allocate(uint64_t bytes) = 0;
  virtual void Free(Region memory) = 0;
  // Returns whether the event, a cudaEvent_t, has occurred. Does not block.
  virtual bool IsReady(void* event) = 0;
  // Later copies wait on the device for the event, a cudaEvent_t. Does not block.
  virtual void WaitFor(void* event) = 0;
  // Each is done when it returns. Sizes must agree (CHECK).
  virtual void CopyIn(absl::Span<const std::byte> from, Region to) = 0;
  virtual void Copy(ConstRegion from, Region to) = 0;
  virtual void CopyOut(ConstRegion from, absl::Span<std::byte> to) = 0;
  // Returns the digest by kernels/reduce/digest.h of memory of the device, with kTransferSlot.
  virtual uint64_t Digest(uint32_t parameter_id, ConstRegion bytes) = 0;

  // Communicators. A link refuses what a failed one is asked for, with UNAVAILABLE.

  virtual absl::StatusOr<UniqueId> NewId() = 0;
  // Begins to join as `rank`, 0 or 1. Poll tells when both have.
  virtual absl::StatusOr<CommId> Init(const UniqueId& id, int rank) = 0;
  virtual CommState Poll(CommId comm) = 0;
  // Queue a transfer to or from the other rank. Both ranks queue transfers of the same sizes in the
  // same order. The memory belongs to the transfer until it is done or the communicator is aborted.
  virtual absl::StatusOr<TransferId> Send(CommId comm, ConstRegion from) = 0;
  virtual absl::StatusOr<TransferId> Receive(CommId comm, Region to) = 0;
  // Returns whether a transfer is done. A transfer of a failed communicator may never be.
  virtual bool IsDone(CommId comm, TransferId transfer) = 0;
  // Begins to stop all transfers; done once Poll is no longer kInProgress. Memory is still in use.
  virtual void Revoke(CommId comm) = 0;
  // Destroys communicators as one group. Their memory is free when it returns OK. After an error,
  // NCCL may use it until the process ends. It may block for as long as the driver does, perhaps
  // forever.
  virtual absl::Status Abort(absl::Span<const CommId> comms) = 0;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_NCCL_DEVICE_LINK_H_
