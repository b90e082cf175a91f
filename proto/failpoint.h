// Places at which a process can be told to kill itself with SIGKILL, as a crash would, at the nth
// time that it comes by: tests/crash. KAON_FAILPOINT=name or name:n in the environment of a server
// or of kaon-train switches one of them on, before the first thread; no library looks at it, so a
// program that only links the client has none. Any thread may pass a point.
//
// By environment and not by a build of its own: what is killed in the tests is then the very
// program that is shipped, and nothing is compiled twice. A point that is off costs one load and a
// branch beside a system call, a message or a parameter; none is inside a loop over elements
// (docs/adr/0018-failpoints.md).
#ifndef KAON_PROTO_FAILPOINT_H_
#define KAON_PROTO_FAILPOINT_H_

#include <atomic>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// tests/crash reads this list: one line each, POINT(process, when, name), in the order in which a
// process comes to them for the first time. `start`: only where there is no data yet, or no job;
// `run`: again and again; `restore`: only where a checkpoint is restored; `stop`: only where the
// process is asked to end. The name says what just happened, or that it begins.
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

// The one that is on. A global, as a crash is the whole process's.
inline std::atomic<Failpoint> armed_failpoint{Failpoint::kNone};

// Comes by an armed point; returns if it is not yet the nth time.
void PassArmedFailpoint();

inline void PassFailpoint(Failpoint point) {
  if (armed_failpoint.load(std::memory_order_relaxed) == point) PassArmedFailpoint();
}

// "name" or "name:n", n from 1 on; "" arms none. INVALID_ARGUMENT names what is wrong with it.
absl::Status ArmFailpoint(absl::string_view text);

// What KAON_FAILPOINT says; to be called once, before the first thread.
absl::Status ArmFailpointOfEnvironment();

}  // namespace kaon

#endif  // KAON_PROTO_FAILPOINT_H_
