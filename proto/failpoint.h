// Failpoints: places at which a process can kill itself with SIGKILL, like a crash, at the nth pass
// (tests/crash). KAON_FAILPOINT=name or name:n in the environment of a server or of kaon-train arms
// one of them, before the first thread. No library reads the variable, so a program that only links
// the client has no failpoints. Any thread may pass a point.
//
// The environment arms them, and no special build: so the tests kill the program that is shipped,
// and nothing is compiled twice. A point that is off costs one load and a branch. Each is near a
// system call, a message or a parameter, and none is inside a loop over elements
// (docs/adr/0018-failpoints.md).
#ifndef KAON_PROTO_FAILPOINT_H_
#define KAON_PROTO_FAILPOINT_H_

#include <atomic>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// tests/crash reads this list. Each line is POINT(process, when, name), in the order in which a
// process first passes the points. The name says what just happened, or what begins.
// - `start`: passed only if there is no data yet, or no job.
// - `run`: passed again and again.
// - `restore`: passed only when a checkpoint is restored.
// - `stop`: passed only when the process is asked to end.
// clang-format off
#define KAON_FAILPOINTS(POINT)                             \
  POINT(shard, start, journal_create_begin)                \
  POINT(shard, run, snapshot_found)                        \
  POINT(shard, run, snapshot_tensor_read)                  \
  POINT(shard, run, snapshot_read_back)                    \
  POINT(shard, run, disk_write_begin)                      \
  POINT(shard, run, disk_write_end)                        \
  POINT(shard, run, disk_sync_begin)                       \
  POINT(shard, run, disk_sync_end)                         \
  POINT(shard, run, disk_directory_sync_begin)             \
  POINT(shard, run, disk_directory_sync_end)               \
  POINT(shard, start, disk_rename_begin)                   \
  POINT(shard, start, disk_rename_end)                     \
  POINT(shard, run, journal_open_begin)                    \
  POINT(shard, run, replay_promise)                        \
  POINT(shard, run, replay_gradient)                       \
  POINT(shard, run, replay_prepare)                        \
  POINT(shard, run, replay_decision)                       \
  POINT(shard, run, journal_read_back)                     \
  POINT(shard, run, journal_opened)                        \
  POINT(shard, run, shard_serving)                         \
  POINT(shard, run, shard_promise_received)                \
  POINT(shard, run, shard_promise_appended)                \
  POINT(shard, run, journal_append_begin)                  \
  POINT(shard, run, journal_append_end)                    \
  POINT(shard, run, journal_rotate_begin)                  \
  POINT(shard, run, journal_rotate_created)                \
  POINT(shard, run, journal_rotate_named)                  \
  POINT(shard, run, journal_rotate_closed)                 \
  POINT(shard, run, journal_synced)                        \
  POINT(shard, run, journal_mark_begin)                    \
  POINT(shard, run, journal_mark_end)                      \
  POINT(shard, run, journal_entries_durable)               \
  POINT(shard, run, shard_state_sent)                      \
  POINT(shard, run, shard_plan_received)                   \
  POINT(shard, start, shard_reserve_begin)                 \
  POINT(shard, run, shard_push_opened)                     \
  POINT(shard, run, shard_chunk_received)                  \
  POINT(shard, run, shard_push_finished)                   \
  POINT(shard, run, shard_folded)                          \
  POINT(shard, run, speculation_written)                   \
  POINT(shard, run, shard_prepare_appended)                \
  POINT(shard, run, shard_prepared_sent)                   \
  POINT(shard, run, shard_decision_received)               \
  POINT(shard, run, apply_begin)                           \
  POINT(shard, start, load_weights_parameter)              \
  POINT(shard, run, apply_parameter_begin)                 \
  POINT(shard, run, apply_parameter_written)               \
  POINT(shard, run, apply_parameter_published)             \
  POINT(shard, run, apply_end)                             \
  POINT(shard, run, shard_decision_appended)               \
  POINT(shard, run, shard_applied_sent)                    \
  POINT(shard, run, snapshot_frozen)                       \
  POINT(shard, run, snapshot_unfinished_removed)           \
  POINT(shard, run, snapshot_write_begin)                  \
  POINT(shard, run, snapshot_piece_written)                \
  POINT(shard, run, snapshot_files_durable)                \
  POINT(shard, run, snapshot_decision_durable)             \
  POINT(shard, run, snapshot_meta_written)                 \
  POINT(shard, run, snapshot_meta_durable)                 \
  POINT(shard, run, snapshot_meta_renamed)                 \
  POINT(shard, run, snapshot_committed)                    \
  POINT(shard, run, snapshot_retain_begin)                 \
  POINT(shard, run, snapshot_meta_removed)                 \
  POINT(shard, run, snapshot_removal_durable)              \
  POINT(shard, run, snapshot_files_removed)                \
  POINT(shard, run, journal_truncate_begin)                \
  POINT(shard, run, journal_start_written)                 \
  POINT(shard, run, journal_start_synced)                  \
  POINT(shard, run, journal_start_renamed)                 \
  POINT(shard, run, journal_start_durable)                 \
  POINT(shard, run, journal_segment_removed)               \
  POINT(shard, run, journal_truncated)                     \
  POINT(shard, run, checkpoint_ordered)                    \
  POINT(shard, run, checkpoint_frozen)                     \
  POINT(shard, run, checkpoint_piece_written)              \
  POINT(shard, run, checkpoint_part_written)               \
  POINT(shard, run, checkpoint_part_durable)               \
  POINT(shard, run, checkpoint_report_sent)                \
  POINT(shard, restore, restore_plan_received)             \
  POINT(shard, restore, restore_check_begin)               \
  POINT(shard, restore, restore_checked)                   \
  POINT(shard, restore, restore_prepare_appended)          \
  POINT(shard, restore, restore_load_begin)                \
  POINT(shard, restore, restore_run_loaded)                \
  POINT(shard, restore, restore_loaded)                    \
  POINT(shard, restore, restore_snapshot_frozen)           \
  POINT(shard, restore, restore_snapshot_committed)        \
  POINT(shard, stop, stop_begin)                           \
  POINT(shard, stop, stop_snapshot_frozen)                 \
  POINT(shard, stop, stop_snapshot_over)                   \
  POINT(shard, run, shard_pull_chunk)                      \
  POINT(coordinator, run, coordinator_promise_sent)        \
  POINT(coordinator, run, coordinator_state_received)      \
  POINT(coordinator, run, coordinator_joined)              \
  POINT(coordinator, run, coordinator_begun)               \
  POINT(coordinator, run, coordinator_plan_sent)           \
  POINT(coordinator, run, coordinator_plan_announced)      \
  POINT(coordinator, run, coordinator_prepared_received)   \
  POINT(coordinator, run, coordinator_decision_announced)  \
  POINT(coordinator, run, coordinator_decision_sent)       \
  POINT(coordinator, run, coordinator_applied_received)    \
  POINT(coordinator, run, checkpoint_order_sent)           \
  POINT(coordinator, run, checkpoint_report_received)      \
  POINT(coordinator, run, checkpoint_parts_complete)       \
  POINT(coordinator, run, manifest_written)                \
  POINT(coordinator, run, manifest_synced)                 \
  POINT(coordinator, run, manifest_renamed)                \
  POINT(coordinator, run, manifest_durable)                \
  POINT(coordinator, run, checkpoint_retain_begin)         \
  POINT(coordinator, run, checkpoint_manifest_removed)     \
  POINT(coordinator, run, checkpoint_removal_durable)      \
  POINT(coordinator, run, checkpoint_files_removed)        \
  POINT(coordinator, restore, restore_verified)            \
  POINT(coordinator, restore, restore_plan_sent)           \
  POINT(coordinator, restore, restore_decision_sent)       \
  POINT(coordinator, restore, restore_answered)            \
  POINT(worker, run, worker_joined)                        \
  POINT(worker, run, worker_begin)                         \
  POINT(worker, run, worker_plan_received)                 \
  POINT(worker, run, worker_push_opened)                   \
  POINT(worker, run, worker_chunk_sent)                    \
  POINT(worker, run, worker_finish_push)                   \
  POINT(worker, run, worker_decided)                       \
  POINT(worker, run, worker_pull_begin)                    \
  POINT(worker, run, worker_pull_chunk)                    \
  POINT(worker, run, worker_pulled)
// clang-format on

namespace kaon {

enum class Failpoint {
  kNone,
#define KAON_DECLARE_FAILPOINT(process, when, name) name,
  KAON_FAILPOINTS(KAON_DECLARE_FAILPOINT)
#undef KAON_DECLARE_FAILPOINT
};

// The armed failpoint. It is global, because a crash ends the whole process.
inline std::atomic<Failpoint> armed_failpoint{Failpoint::kNone};

// Passes an armed point; returns if this is not the nth pass yet.
void PassArmedFailpoint();

inline void PassFailpoint(Failpoint point) {
  if (armed_failpoint.load(std::memory_order_relaxed) == point) PassArmedFailpoint();
}

// Arms a failpoint. `text` is "name" or "name:n" with n >= 1; "" arms none. INVALID_ARGUMENT names
// the fault in it.
absl::Status ArmFailpoint(absl::string_view text);

// Arms the failpoint that KAON_FAILPOINT names. Call it once, before the first thread.
absl::Status ArmFailpointOfEnvironment();

}  // namespace kaon

#endif  // KAON_PROTO_FAILPOINT_H_
