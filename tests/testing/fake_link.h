// FakeFabric: links of devices in one process that are connected in memory, and the faults of a
// real network. The memory of these devices is on the heap. A link shares the fabric. Any thread.
#ifndef KAON_TESTS_TESTING_FAKE_LINK_H_
#define KAON_TESTS_TESTING_FAKE_LINK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kernels/mutex.h"
#include "kernels/nccl/device_link.h"

namespace kaon::kernels {

// Event of a fake device. Its work is done only when somebody waits for it.
struct FakeEvent {
  std::function<void()> work;
  // Returns whether it has occurred. If this is empty, it has.
  std::function<bool()> ready = nullptr;
};

class FakeFabric : public std::enable_shared_from_this<FakeFabric> {
 public:
  struct Faults {
    // Calls of Poll until a communicator is ready, or revoked, once both ranks can be.
    int polls = 0;
    // Calls of IsDone that say no after the bytes have arrived.
    int delay = 0;
    // A later transfer of a communicator is done before an earlier one.
    bool reorder = false;
    // This transfer of the fabric, from 1, and all after it fail their communicator; 0: none.
    uint64_t fail_at = 0;
    // Transfers are never done. Nor does anybody learn that the other rank has gone.
    bool never_done = false;
    // This transfer of the fabric, from 1, arrives with a flipped bit; 0: none.
    uint64_t corrupt_at = 0;
    // Sends are done before their receive is posted, as NCCL's small ones are.
    bool eager = false;
    // Abort blocks until ReleaseAborts.
    bool abort_hangs = false;
    // Abort's error: it destroys the communicators for the tests, and says that it did not.
    absl::Status abort = absl::OkStatus();
    // Init's error.
    absl::Status init = absl::OkStatus();
    // Allocate's error.
    absl::Status memory = absl::OkStatus();
  };
  struct Counts {
    // Sends and receives.
    uint64_t queued = 0;
    // Pairs of a send and a receive.
    uint64_t transfers = 0;
    uint64_t bytes = 0;
    uint64_t ids = 0;
    uint64_t inits = 0;
    uint64_t revokes = 0;
    uint64_t aborted = 0;
    uint64_t abort_groups = 0;
    // Allocations that were not freed.
    uint64_t allocations = 0;
    // Copies between devices and the host.
    uint64_t host_copies = 0;
  };

  FakeFabric() = default;
  // Ends the process if memory or a communicator is left.
  ~FakeFabric();

  std::shared_ptr<DeviceLink> NewLink(int device = 0);
  void SetFaults(const Faults& faults) ABSL_LOCKS_EXCLUDED(mu_);
  void ReleaseAborts() ABSL_LOCKS_EXCLUDED(mu_);
  Counts counts() const ABSL_LOCKS_EXCLUDED(mu_);
  // Blocks until an abort has begun, perhaps one that hangs.
  void AwaitAbort() ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the communicators of one rank without a word, as kill -9 of its process does.
  void KillRank(int rank) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Link;

  struct Transfer {
    TransferId id = 0;
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    uint64_t size = 0;
    bool arrived = false;
    int delay = 0;
    // Bytes of a send that is done before its receive is posted; `from` is in it.
    std::shared_ptr<std::vector<std::byte>> eager;
    // The sender was told so.
    bool told = false;
  };
  struct End {
    UniqueId id = {};
    int rank = 0;
    int polls = 0;
    bool ready = false;
    bool revoked = false;
    std::string failure;
    std::deque<Transfer> sends;
    std::deque<Transfer> receives;
  };

  absl::StatusOr<CommId> Init(const UniqueId& id, int rank) ABSL_LOCKS_EXCLUDED(mu_);
  CommState Poll(CommId comm) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<TransferId> Add(CommId comm, bool sends, Transfer transfer)
      ABSL_LOCKS_EXCLUDED(mu_);
  bool IsDone(CommId comm, TransferId transfer) ABSL_LOCKS_EXCLUDED(mu_);
  void Revoke(CommId comm) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Abort(absl::Span<const CommId> comms) ABSL_LOCKS_EXCLUDED(mu_);

  End* OtherLocked(const End& end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Moves the bytes of sends that have a receive.
  void MatchLocked(End& sender, End& receiver) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends the process if a transfer under way still uses the memory.
  void CheckUnusedLocked(ConstRegion memory) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void FailLocked(End& end, const std::string& why);

  mutable Mutex mu_;
  CondVar changed_;
  Faults faults_ ABSL_GUARDED_BY(mu_);
  Counts counts_ ABSL_GUARDED_BY(mu_);
  uint64_t aborts_begun_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<CommId, End> ends_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::kernels

#endif  // KAON_TESTS_TESTING_FAKE_LINK_H_
