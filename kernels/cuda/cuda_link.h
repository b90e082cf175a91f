// DeviceLink over NCCL, for one device (device.h). Each communicator has a stream of its own, and
// few multiprocessors. Copies and digests use another stream, on which nothing waits for a peer.
// Owned by its communicators' users; any thread.
#ifndef KAON_KERNELS_CUDA_CUDA_LINK_H_
#define KAON_KERNELS_CUDA_CUDA_LINK_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/lane_pool.h"
#include "kernels/mutex.h"
#include "kernels/nccl/device_link.h"
#include "kernels/nccl/nccl_api.h"

namespace kaon::kernels::cuda {

class CudaLink final : public DeviceLink {
 public:
  // `network` is for name(). RESOURCE_EXHAUSTED if the device has no room for staging.
  static absl::StatusOr<std::unique_ptr<CudaLink>> Create(std::unique_ptr<Device> device,
                                                          int ordinal, std::unique_ptr<NcclApi> api,
                                                          std::string network);

  std::string name() const override;
  int device() const override { return ordinal_; }

  std::string memory_tier() const override { return MemoryTier(ordinal_); }
  absl::StatusOr<Region> Allocate(uint64_t bytes) override;
  void Free(Region memory) override;
  bool IsReady(void* event) override;
  void WaitFor(void* event) override;
  void CopyIn(absl::Span<const std::byte> from, Region to) override;
  void Copy(ConstRegion from, Region to) override;
  void CopyOut(ConstRegion from, absl::Span<std::byte> to) override;
  uint64_t Digest(uint32_t parameter_id, ConstRegion bytes) override;

  absl::StatusOr<UniqueId> NewId() override { return api_->NewId(); }
  absl::StatusOr<CommId> Init(const UniqueId& id, int rank) override;
  CommState Poll(CommId comm) override;
  absl::StatusOr<TransferId> Send(CommId comm, ConstRegion from) override;
  absl::StatusOr<TransferId> Receive(CommId comm, Region to) override;
  bool IsDone(CommId comm, TransferId transfer) override;
  void Revoke(CommId comm) override;
  absl::Status Abort(absl::Span<const CommId> comms) override;

 private:
  struct Transfer {
    TransferId id = 0;
    // Written to by a receive only.
    Region memory;
    bool sends = false;
    bool given = false;
    // Recorded behind the transfer once NCCL has queued it; null until then.
    std::unique_ptr<Event> done;
  };
  struct Comm {
    nccl::Comm handle = nullptr;
    int peer = 0;
    std::unique_ptr<Stream> stream;
    // In the order of the calls.
    std::deque<Transfer> transfers;
  };

  CudaLink(std::unique_ptr<Device> device, int ordinal, std::unique_ptr<NcclApi> api,
           std::string network);

  absl::StatusOr<TransferId> Add(CommId comm, Region memory, bool sends) ABSL_LOCKS_EXCLUDED(mu_);
  // Gives NCCL the transfers that wait, one after the other. A communicator that does not block
  // takes a call only once it has queued the one before.
  absl::Status PumpLocked(Comm& comm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::unique_ptr<Device> device_;
  const int ordinal_;
  const std::unique_ptr<NcclApi> api_;
  const std::string network_;
  // A single lane: work that waits for an event of a tensor precedes its copy.
  std::unique_ptr<LanePool> lanes_;

  Mutex mu_;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<CommId, Comm> comms_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_CUDA_LINK_H_
