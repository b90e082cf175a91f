// One attempt at a checkpoint, from asking the shards to its manifest, as a pure state machine:
// which shards still owe their part, and what came of it. Owned by StepMachine; called by its
// thread. A run that ends with an error leaves nothing that could be loaded: its manifest is never
// written.
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
  // `facts` of the newest decided entry, whose decision every shard is sent before it is asked.
  // `attempt` is random. `call` waits for the checkpoint; none does for one that is taken by
  // itself.
  CheckpointRun(checkpoint::CheckpointFacts facts, uint64_t attempt, int num_shards,
                std::optional<CallId> call);

  uint64_t attempt() const { return attempt_; }
  const checkpoint::CheckpointFacts& facts() const { return facts_; }
  const std::optional<CallId>& call() const { return call_; }
  // Nobody asked for it: it is taken every so many steps.
  bool is_periodic() const { return is_periodic_; }
  // The caller is gone; the checkpoint is taken all the same.
  void ForgetCall() { call_.reset(); }

  // To be sent to every shard that Lacks its part, now and then.
  v1::TakeCheckpoint Ask() const;
  bool Lacks(int shard) const { return !parts_[shard].part.has_value(); }
  // The shard's error, if it has failed. Reports of other attempts are ignored.
  absl::Status OnReport(int shard, const v1::CheckpointReport& report);
  // Now and then: DEADLINE_EXCEEDED naming the shards that owe their part, and how far each is,
  // once none has come further for `patience`.
  absl::Status Tick(absl::Time now, absl::Duration patience);

  // Every part is there. They are handed out once: nothing afterwards.
  std::optional<std::vector<v1::CheckpointPart>> TakeParts();
  // They were: the manifest is being written.
  bool handed_out() const { return handed_out_; }
  // "3 of 8 parts of checkpoint run-1-42", for people.
  std::string Progress() const;

 private:
  // Of one shard, as far as it was told; late reports tell of less.
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
  // A shard has come further since the newest tick; when, by the ticks.
  bool moved_ = true;
  absl::Time moved_at_ = absl::InfinitePast();
  bool handed_out_ = false;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_CHECKPOINT_RUN_H_
