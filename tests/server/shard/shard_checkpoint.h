// A checkpoint of one driven shard, and the plan that takes it. Pure functions but for the files;
// one thread.
#ifndef KAON_TESTS_SERVER_SHARD_SHARD_CHECKPOINT_H_
#define KAON_TESTS_SERVER_SHARD_SHARD_CHECKPOINT_H_

#include <glog/logging.h>

#include <memory>
#include <string>

#include "proto/decide_version.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/manifest.h"
#include "server/checkpoint/written_by.h"
#include "server/disk/disk.h"
#include "server/shard/snapshot/checkpoint_part.h"
#include "tests/server/shard/driven_shard.h"

namespace kaon::shard {

// Of the state as it is now, written and committed; what names it in a plan.
inline v1::RestoreBody WriteShardCheckpoint(DrivenShard& shard, disk::Directory& files,
                                            const std::string& id) {
  const std::unique_ptr<StateFreeze> freeze = shard.core().Freeze().value();
  const v1::CheckpointPart part =
      WriteCheckpointPart(*freeze, files,
                          {id, 1, checkpoint::WrittenBy("reference", "Xeon"), nullptr})
          .value();
  const v1::ShardState& state = freeze->facts().state;
  const checkpoint::CheckpointFacts facts = {id, state.registration(), state.applied_record(),
                                             state.applied_step()};
  const v1::CheckpointManifest manifest = checkpoint::BuildManifest(facts, {part}).value();
  checkpoint::CheckpointDirectory directory(files);
  CHECK_EQ(directory.Commit(manifest), absl::OkStatus());
  v1::RestoreBody restore;
  *restore.mutable_registration() = state.registration();
  restore.set_checkpoint(id);
  restore.set_manifest_sha256(directory.ManifestDigest(id).value());
  restore.set_step(state.applied_step());
  *restore.mutable_last_decision() = state.applied_record().decision();
  return restore;
}

// At the shard's next position, as timeline `timeline`.
inline v1::StepPlan RestorePlan(const DrivenShard& shard, const v1::RestoreBody& restore,
                                uint64_t timeline) {
  const v1::ShardState state = shard.state();
  v1::StepPlan plan;
  plan.set_job("gpt2");
  plan.set_timeline(timeline);
  plan.set_position(state.applied_position() + 1);
  *plan.mutable_ballot() = MakeBallot(1);
  plan.set_round(1);
  plan.set_decide_version(proto::kDecideVersion);
  plan.set_config_revision(state.config_revision());
  *plan.mutable_restore() = restore;
  return plan;
}

}  // namespace kaon::shard

#endif  // KAON_TESTS_SERVER_SHARD_SHARD_CHECKPOINT_H_
