// Bugs of the protocol for tests/protocol_mutation.sh, which builds with KAON_PROTOCOL_MUTATIONS.
// It switches on one bug at a time and checks that the simulation finds it.
// In every other build Mutated() is the constant false. A mutation is one condition in one place,
// in the file that its line names. Not thread-safe: the simulation has one thread.
#ifndef KAON_SERVER_MUTATION_MUTATION_H_
#define KAON_SERVER_MUTATION_MUTATION_H_

namespace kaon {

// tests/protocol_mutation.sh reads this list: one line each, `kName = number,  // where it is`.
// Rules are those of protocol.md 2.1.
// clang-format off
enum class Mutation {
  // Rule 1: "only answers carrying its own ballot [...] count".
  kAnswersOfOtherBallotsCount = 1,  // server/coordinator/machine/step_machine
  // Rule 2: alike means byte-equal, round included.
  kOtherVotesCount = 2,  // server/coordinator/machine/step_machine
  // Rule 3: "if all are alike it must decide".
  kUnanimousVoteReopened = 3,  // server/coordinator/machine/step_machine
  // A decision needs the PREPARE of every shard.
  kDecidedWithoutAll = 4,  // server/coordinator/machine/step_machine
  // All shards use the current attempt of each worker.
  kStaleMembers = 5,  // server/coordinator/machine/step_machine
  // Rule 6: "a refused coordinator refuses Join and Begin".
  kRefusedCoordinatorAnswers = 6,  // server/coordinator/machine/step_machine_calls
  // Rule 7: "the holder heartbeats every shard".
  kNoHeartbeats = 7,  // server/coordinator/machine/step_machine
  // Rule 8: "A shard keeps its sums iff what is folded is a rank-order prefix of unchanged
  // attempts."
  kOtherAttemptsKept = 8,  // server/shard/gradients/gradient_accumulator
  // The plan does not name the attempt that pushes.
  kAnyAttemptPushes = 9,  // server/shard/gradients/gradient_accumulator
  // A resent chunk counts twice.
  kRepetitionFolded = 10,  // server/shard/gradients/parameter_fold
  // Contributions are summed in the order of arrival.
  kFoldedAsTheyArrive = 11,  // server/shard/gradients/parameter_fold
  // A pull reads any version that is ready.
  kAnyVersionRead = 12,  // server/shard/parameters/parameter_publisher
  // Rule 1: "After promising b a shard sends no answer [...] to a lower ballot."
  kLowerBallotsAnswered = 13,  // server/shard/agreement/shard_machine
  // Rule 1: "sent after that shard's promise was durable".
  kPromiseAnsweredUnsynced = 14,  // server/shard/agreement/shard_machine
  // The shard sends a PREPARE before it is on disk.
  kPrepareAnsweredUnsynced = 15,  // server/shard/agreement/shard_machine
  // Rule 2: "re-stamped durably".
  kRestampUnsynced = 16,  // server/shard/agreement/shard_machine
  // Rule 4: "A promise withdraws nothing."
  kPromiseWithdraws = 17,  // server/shard/agreement/shard_machine
  // Rule 4: "A shard refuses (ballot, round) at or below its PREPARE's."
  kLowerRoundReplaces = 18,  // server/shard/agreement/shard_machine
  // Rule 5: "The record of every log entry n [...] is durable in the same write as, or before,
  // PREPARE(n+1)."
  kDecisionNotJournaled = 19,  // server/shard/agreement/shard_machine
  // A shard accepts a plan while the journal still reads the gradient that the plan overwrites.
  kJournaledGradientOverwritten = 20,  // server/shard/agreement/shard_machine
  // A restarted shard reuses a generation.
  kGenerationsReused = 21,  // server/shard/agreement/shard_machine_replay
  // Replay does not compare a gradient with the digest that the shard voted on.
  kReplayDigestIgnored = 22,  // server/shard/gradients/gradient_replay
  // Replay accepts a record whose payload differs from what was written.
  kTornRecordTaken = 23,  // server/journal/frame
  // The shard acknowledges what did not fit on the disk.
  kFullDiskAcknowledged = 24,  // server/journal/journal_log
  // The shard writes the journal without a sync.
  kSyncLeftOut = 25,  // server/journal/journal_log
  // The journal uses a segment before the segment's name is on disk.
  kNamesUnsynced = 26,  // server/journal/journal_log
  // Mode INTERVAL: the shard votes for a step before the snapshots that a rollback needs exist.
  kVoteBeforeSnapshot = 27,  // server/journal/interval_schedule
  // Mode INTERVAL: a shard that has lost its votes continues as if it had given none.
  kForgottenVotesUnsaid = 28,  // server/shard/agreement/shard_machine_replay
  // A shard uses weights that it computed ahead of a decision, although other gradients arrived
  // since.
  kSpeculationKept = 29,  // server/shard/parameters/speculation
  // A committed update leaves the older version of its parameter the newest.
  kCommitForgotten = 30,  // server/tier/nvme_tier
  // A version is written over the other one.
  kOtherVersionWritten = 31,  // server/tier/nvme_tier
  // A parameter is read from its older version.
  kOlderVersionRead = 32,  // server/tier/nvme_tier
  // Memory is released before it was written.
  kUnwrittenEvicted = 33,  // server/tier/nvme_tier
  // A new parameter has what an earlier process left in the file.
  kStaleFileRead = 34,  // server/tier/nvme_tier
  // Parameters overlap in the file.
  kUnitsOverlap = 35,  // server/tier/file_space
  // A pull reads the newest version on a disk, whatever it asked for.
  kNewestVersionPulled = 36,  // server/shard/parameters/parameter_publisher
  // A snapshot reads a version on a disk that a step has overwritten.
  kFrozenVersionOverwritten = 37,  // server/shard/snapshot/state_freeze
  // Pages of a sum are released before the file has them.
  kSumNotSwapped = 38,  // server/tier/swapped_memory
  // 2.2, step_seconds: "Neither open streams nor joining anew help it."
  kHeldForEver = 39,  // server/coordinator/machine/step_machine_worker_loss
};
// clang-format on

#ifdef KAON_PROTOCOL_MUTATIONS
// Number of the mutation that is on; 0 for none.
inline int chosen_mutation = 0;
inline bool Mutated(Mutation mutation) { return static_cast<int>(mutation) == chosen_mutation; }
#else
constexpr bool Mutated(Mutation) { return false; }
#endif

}  // namespace kaon

#endif  // KAON_SERVER_MUTATION_MUTATION_H_
