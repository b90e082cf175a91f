// Bounds how often a rank may be taken, so that a worker that joins anew without end costs no more
// than a few rounds. Pure; owned by StepMachine, called by its thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_JOIN_LIMIT_H_
#define KAON_SERVER_COORDINATOR_MACHINE_JOIN_LIMIT_H_

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace kaon::coordinator {

class JoinLimit {
 public:
  // Moves the clock to `now`.
  void Tick(absl::Time now) { now_ = now; }
  // UNAVAILABLE, with the seconds to wait, if the rank may not be taken yet.
  absl::Status Check(uint32_t rank) const;
  // Notes that the rank was taken.
  void Note(uint32_t rank);

 private:
  absl::Time now_ = absl::UnixEpoch();
  // Time by which each rank would have been free, had each join come one interval after the last.
  std::map<uint32_t, absl::Time> free_at_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_JOIN_LIMIT_H_
