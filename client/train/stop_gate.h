// Stops the workers of one process at the same step. After a signal no further step begins; after a
// failure all current operations are abandoned. Shared by all worker threads of a process; any
// thread.
#ifndef KAON_CLIENT_TRAIN_STOP_GATE_H_
#define KAON_CLIENT_TRAIN_STOP_GATE_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/mutex.h"

namespace kaon::train {

class StopGate {
 public:
  // A signal handler sets `signalled`, which must outlive the gate.
  explicit StopGate(const std::atomic<bool>& signalled) : signalled_(signalled) {}

  bool stop_requested() const { return signalled_.load(); }

  // Returns whether a worker may begin `step`. If one worker may begin a step, all may: otherwise
  // it could never be decided.
  bool MayBegin(uint64_t step);

  // Sets the first failure of a worker. Later failures are its consequences and are ignored.
  void Fail(absl::Status status);
  absl::Status failure() const;

 private:
  const std::atomic<bool>& signalled_;
  mutable Mutex mu_;
  uint64_t newest_begun_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_STOP_GATE_H_
