// Counts events of this process that an operator may ask about: refusals, retries, aborts, fences,
// repairs, admin requests (reliability.md P20). It also counts the bytes of pushes and pulls.
// Thread-safe. Each server's main object owns one.
// `kaonctl status` shows the counts; docs/kaonctl.md explains each.
#ifndef KAON_SERVER_MONITOR_EVENT_COUNTS_H_
#define KAON_SERVER_MONITOR_EVENT_COUNTS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/shard_control.pb.h"

namespace kaon::monitor {

class AuditLog;

// EVENT(enumerator, name, suffix). Counts are kept per suffix of the name: nothing, the canonical
// code of the refusal, or its RefusalReason.
// clang-format off
#define KAON_EVENTS(EVENT)                                           \
  EVENT(kAdminAct, "admin_act", kNothing)                            \
  EVENT(kAdminRefused, "admin_refused", kCode)                       \
  EVENT(kCall, "call", kNothing)                                     \
  EVENT(kCallRefused, "call_refused", kCode)                         \
  EVENT(kCallUnauthorized, "call_unauthorized", kNothing)            \
  EVENT(kCheckpointCreated, "checkpoint_created", kNothing)          \
  EVENT(kCheckpointFailed, "checkpoint_failed", kNothing)            \
  EVENT(kConnectionCut, "connection_cut", kNothing)                  \
  EVENT(kConnectionEnded, "connection_ended", kNothing)              \
  EVENT(kConnectionRefused, "connection_refused", kNothing)          \
  EVENT(kControlRefused, "control_refused", kReason)                 \
  EVENT(kDamagedFileSkipped, "damaged_file_skipped", kNothing)       \
  EVENT(kGradNormOutlier, "grad_norm_outlier", kNothing)             \
  EVENT(kGroupChange, "group_change", kNothing)                      \
  EVENT(kHolderReplaced, "holder_replaced", kNothing)                \
  EVENT(kJobDeletion, "job_deletion", kNothing)                      \
  EVENT(kJobStopped, "job_stopped", kNothing)                        \
  EVENT(kJournalRetry, "journal_retry", kNothing)                    \
  EVENT(kPrepareWithdrawn, "prepare_withdrawn", kNothing)            \
  EVENT(kPromise, "promise", kNothing)                               \
  EVENT(kPullRefused, "pull_refused", kCode)                         \
  EVENT(kPushAborted, "push_aborted", kNothing)                      \
  EVENT(kPushRefused, "push_refused", kCode)                         \
  EVENT(kRestore, "restore", kNothing)                               \
  EVENT(kRollback, "rollback", kNothing)                             \
  EVENT(kRoundReopened, "round_reopened", kNothing)                  \
  EVENT(kSnapshotRetry, "snapshot_retry", kNothing)                  \
  EVENT(kTakeover, "takeover", kNothing)                             \
  EVENT(kTornTailCut, "torn_tail_cut", kNothing)                     \
  EVENT(kWeightsKept, "weights_kept", kNothing)                      \
  EVENT(kWorkerJoined, "worker_joined", kNothing)                    \
  EVENT(kWorkerLost, "worker_lost", kNothing)
// clang-format on

enum class Event {
#define KAON_EVENT_OF(enumerator, name, apart) enumerator,
  KAON_EVENTS(KAON_EVENT_OF)
#undef KAON_EVENT_OF
};

// Bytes between workers and a shard.
enum class Transfer { kPushed, kPulled };

class EventCounts {
 public:
  // Makes NoteAdminAct and NoteUnauthorized also record there. Null, as at first, records nothing.
  // Not owned: it must outlive the threads that count.
  void set_audit(AuditLog* audit) { audit_.store(audit, std::memory_order_release); }
  AuditLog* audit() const { return audit_.load(std::memory_order_acquire); }

  // Counts bytes of tensors, by any transport.
  void AddBytes(Transfer transfer, uint64_t bytes) {
    bytes_[static_cast<size_t>(transfer)].fetch_add(bytes, std::memory_order_relaxed);
  }
  uint64_t bytes(Transfer transfer) const {
    return bytes_[static_cast<size_t>(transfer)].load(std::memory_order_relaxed);
  }

  // Counts an event without a suffix.
  void Add(Event event) { AddApart(event, 0); }
  // Counts an event per canonical code, or per reason.
  void Add(Event event, absl::StatusCode code) { AddApart(event, static_cast<size_t>(code)); }
  void Add(Event event, v1::RefusalReason reason) { AddApart(event, static_cast<size_t>(reason)); }

  // Returns the events that happened, ordered by name: "promise", "push_refused.invalid_argument",
  // "control_refused.stale_plan".
  std::vector<v1::EventCount> Happened() const;

 private:
#define KAON_EVENT_OF(enumerator, name, apart) +1
  static constexpr size_t kNumEvents = 0 KAON_EVENTS(KAON_EVENT_OF);
#undef KAON_EVENT_OF
  // Number of canonical codes; there are fewer reasons.
  static constexpr size_t kMaxApart = 17;

  void AddApart(Event event, size_t apart);

  std::atomic<AuditLog*> audit_ = nullptr;
  // Relaxed atomics: no other memory depends on their order.
  std::array<std::array<std::atomic<uint64_t>, kMaxApart>, kNumEvents> counts_{};
  std::array<std::atomic<uint64_t>, 2> bytes_{};
};

// Returns the text for a log: escaped and cut off. A refusal repeats the request, which may be long
// and contain any bytes.
std::string ForLog(const absl::Status& status);

// Counts a call that `peer`, a URI or an address, may not make. Logs the peer at most once a
// second, because anyone may try at any rate.
void NoteUnauthorized(EventCounts& counts, absl::string_view peer, const absl::Status& refusal);

// Counts how a call of `peer` to `method` ended. Ignores OK and CANCELLED. PERMISSION_DENIED counts
// as in NoteUnauthorized. Other codes count as kCallRefused, and are logged at most once a second.
void NoteEnd(EventCounts& counts, absl::string_view peer, absl::string_view method,
             const absl::Status& status);

// Counts and logs the result of an admin's request; `act` is its name with its arguments.
void NoteAdminAct(EventCounts& counts, absl::string_view peer, absl::string_view act,
                  const absl::Status& result);

}  // namespace kaon::monitor

#endif  // KAON_SERVER_MONITOR_EVENT_COUNTS_H_
