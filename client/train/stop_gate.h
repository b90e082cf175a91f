// Lets the workers of one process stop at the same step: on a signal no further step is begun, on a
// failure everything under way is given up. Shared by all worker threads of a process; any thread.
#ifndef KAON_CLIENT_TRAIN_STOP_GATE_H_
#define KAON_CLIENT_TRAIN_STOP_GATE_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/mutex.h"

namespace kaon::train {

class StopGate {
 public:
  // `signalled` is set by a signal handler and outlives this.
  explicit StopGate(const std::atomic<bool>& signalled) : signalled_(signalled) {}

  bool stop_requested() const { return signalled_.load(); }

  // Whether a worker may begin `step`. Once one was let into a step, all are, or it could never be
  // decided.
  bool MayBegin(uint64_t step);

  // The first failure of a worker; later ones are its consequences and are ignored.
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
