// One attempt at a checkpoint, from asking the shards to its manifest, as a pure state machine. It
// knows which shards still owe their part. Owned by Checkpoints; one thread. A run that ends with
// an error leaves nothing that could be loaded: its manifest is never written.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_CHECKPOINT_RUN_H_
#define KAON_SERVER_COORDINATOR_MACHINE_CHECKPOINT_RUN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/checkpoint.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/coordinator/machine/actions.h"

namespace kaon::coordinator {

class CheckpointRun {
 public:
  // `facts` are of the newest decided entry: every shard is sent its decision before it is asked.
  // `attempt` is random. `call` waits for the checkpoint; a periodic checkpoint has none.
  CheckpointRun(checkpoint::CheckpointFacts facts, uint64_t attempt, int num_shards,
                std::optional<CallId> call);

  uint64_t attempt() const { return attempt_; }
  const checkpoint::CheckpointFacts& facts() const { return facts_; }
  const std::optional<CallId>& call() const { return call_; }
  // Returns whether no caller asked for the checkpoint: one is taken every so many steps.
  bool is_periodic() const { return is_periodic_; }
  // Forgets the call; the checkpoint is taken all the same.
  void ForgetCall() { call_.reset(); }

  // Returns the message for every shard that Lacks its part; send it at each heartbeat.
  v1::TakeCheckpoint Ask() const;
  bool Lacks(int shard) const { return !parts_[shard].part.has_value(); }
  // Returns the shard's error, if the shard has failed. Ignores reports of other attempts.
  absl::Status OnReport(int shard, const v1::CheckpointReport& report);
  // Call at each heartbeat. Returns DEADLINE_EXCEEDED once no shard has made progress for
  // `patience`; the error names the shards that owe their part and how far each is.
  absl::Status Tick(absl::Time now, absl::Duration patience);

  // Returns the parts once, when every part is there; nothing before and afterwards.
  std::optional<std::vector<v1::CheckpointPart>> TakeParts();
  // Returns whether TakeParts returned the parts: the manifest is being written.
  bool handed_out() const { return handed_out_; }
  // Returns "3 of 8 parts of checkpoint run-1-42", for people.
  std::string Progress() const;

 private:
  // Progress of one shard: the most that it reported. Late reports have smaller numbers.
  struct Part {
    uint64_t written_bytes = 0;
    uint64_t total_bytes = 0;
    std::optional<v1::CheckpointPart> part;
  };

  const checkpoint::CheckpointFacts facts_;
  const uint64_t attempt_;
  std::optional<CallId> call_;
  const bool is_periodic_;
  std::vector<Part> parts_;
  // A shard made progress since the newest tick; the newest tick that found progress.
  bool moved_ = true;
  absl::Time moved_at_ = absl::InfinitePast();
  bool handed_out_ = false;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_CHECKPOINT_RUN_H_
