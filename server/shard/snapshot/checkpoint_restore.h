// Restores a checkpoint into a shard's memory: finds it, checks it whole before the shard votes,
// and loads it once the restore is decided. The caller owns it; one thread at a time.
#ifndef KAON_SERVER_SHARD_SNAPSHOT_CHECKPOINT_RESTORE_H_
#define KAON_SERVER_SHARD_SNAPSHOT_CHECKPOINT_RESTORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/checkpoint.pb.h"
#include "kernels/backend.h"
#include "kernels/region.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/checkpoint/manifest.h"
#include "server/disk/disk.h"
#include "server/shard/parameters/parameter_publisher.h"
#include "server/shard/parameters/parameter_store.h"

namespace kaon::shard {

class CheckpointRestore {
 public:
  // Opens the checkpoint that `restore` names. Returns NOT_FOUND, or DATA_LOSS if it is damaged or
  // has a different manifest file. Returns INVALID_ARGUMENT naming the field of `restore` that
  // differs from the manifest. `files` outlives the result.
  static absl::StatusOr<std::unique_ptr<CheckpointRestore>> Open(disk::Directory& files,
                                                                 const v1::RestoreBody& restore);

  // Returns the timeline in which the checkpoint was written.
  uint64_t timeline() const { return reader_.manifest().timeline(); }
  // Returns checkpoint::RestoredDigest of the manifest.
  uint64_t restored_digest() const { return checkpoint::RestoredDigest(reader_.manifest()); }

  // Reads every byte of the parameters that the restore places on `shard`, up to 1 MiB at a time.
  // Returns DATA_LOSS naming the file.
  absl::Status Check(uint32_t shard);

  // Loads weights, state and counters of all parameters of `store`. The weights become the
  // publisher's next version. Calls `before_write` with each parameter and the version of its unit
  // before that is written. Returns DATA_LOSS naming the file; the contents of `store` are
  // unusable after an error.
  absl::Status Load(ParameterStore& store, ParameterPublisher& publisher,
                    const std::function<void(uint32_t parameter_id, int version)>& before_write);

 private:
  // Reads a run of a tensor whose memory is `tensor`.
  absl::Status LoadRun(const v1::CheckpointTensor& run, kernels::Backend& backend,
                       kernels::Region tensor);
  CheckpointRestore(disk::Directory& files, const v1::RestoreBody& restore,
                    v1::CheckpointManifest manifest);

  checkpoint::CheckpointDirectory directory_;
  const v1::RestoreBody restore_;
  checkpoint::CheckpointReader reader_;
  // Tensors of the manifest, in the order of their bytes in its files.
  std::vector<const v1::CheckpointTensor*> runs_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_CHECKPOINT_RESTORE_H_
