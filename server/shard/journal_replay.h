// Rebuilds a shard from its disk. Loads the newest snapshot if there is one, then replays every
// later entry of the journal in order. Replay runs the code that made the entry, without outputs.
// Owned by ShardCore; the thread that starts the shard.
#ifndef KAON_SERVER_SHARD_JOURNAL_REPLAY_H_
#define KAON_SERVER_SHARD_JOURNAL_REPLAY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/journal/record.h"
#include "server/shard/agreement/shard_machine.h"
#include "server/shard/applied_state.h"
#include "server/shard/gradient_appender.h"
#include "server/shard/gradients/gradient_accumulator.h"
#include "server/shard/gradients/gradient_replay.h"
#include "server/shard/parameters/parameter_publisher.h"
#include "server/shard/state_load.h"

namespace kaon::shard {

class JournalReplay {
 public:
  // All outlive this object.
  JournalReplay(ShardMachine& machine, AppliedState& state, GradientAccumulator& accumulator,
                ParameterPublisher& publisher, GradientAppender& gradients)
      : machine_(machine),
        state_(state),
        accumulator_(accumulator),
        publisher_(publisher),
        gradients_(gradients),
        gradient_replay_(accumulator) {}

  // Implements ShardCore::Restore.
  absl::Status Restore(const AgreementSnapshot& facts, const v1::CheckpointPart& part,
                       const ReadTensor& read);
  // Implements ShardCore::Replay.
  absl::Status Replay(const journal::Entry& entry);
  // Forgets gradients that no PREPARE followed. After the last entry.
  void Finish();

 private:
  absl::Status ReplaySlice(const journal::GradientSlice& slice);
  absl::Status ReplayPrepare(const journal::PrepareRecord& prepare);
  absl::Status ReplayPlan(const v1::StepPlan& plan, const journal::PrepareRecord& prepare);
  absl::Status ReplayDecision(const v1::StepRecord& record);
  // Returns whether the restored snapshot already holds the entry.
  absl::StatusOr<bool> IsInSnapshot(const journal::Entry& entry);
  absl::StatusOr<bool> IsDecidedInSnapshot(const v1::StepRecord& record);

  ShardMachine& machine_;
  AppliedState& state_;
  GradientAccumulator& accumulator_;
  ParameterPublisher& publisher_;
  GradientAppender& gradients_;
  GradientReplay gradient_replay_;
  // Position of the restored snapshot; 0: there was none.
  uint64_t restored_position_ = 0;
  // Ballot that the restored snapshot had promised.
  v1::Ballot restored_promise_;
  // The journal's decision of the restored position is still to be read.
  bool before_restored_ = false;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_JOURNAL_REPLAY_H_
