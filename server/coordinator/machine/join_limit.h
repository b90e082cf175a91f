// Bounds how often a rank may be taken, so that a worker that joins anew without end costs no more
// than a few rounds. Keeps a rank away for a while that was lost again and again because it was
// late. Pure; owned by StepMachine, called by its thread.
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

  // Notes that the job goes on without the rank, because a step has waited too long for it. The
  // first time costs nothing, the next ones 1, 2, 4 .. 16 s.
  void NoteLate(uint32_t rank);
  // Notes that the rank took part in a step: what was noted of its lateness is forgotten.
  void NoteTrained(uint32_t rank) { late_.erase(rank); }
  // UNAVAILABLE, with the time to wait, if the rank may not take part again yet.
  absl::Status CheckLate(uint32_t rank) const;

 private:
  struct Late {
    int losses = 0;
    absl::Time free_at;
  };

  absl::Time now_ = absl::UnixEpoch();
  // Time by which each rank would have been free, had each join come one interval after the last.
  std::map<uint32_t, absl::Time> free_at_;
  std::map<uint32_t, Late> late_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_JOIN_LIMIT_H_
