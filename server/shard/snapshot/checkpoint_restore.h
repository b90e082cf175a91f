// The state of a checkpoint on its way into a shard's memory: what a restore names is found,
// checked whole before the shard votes for it, and loaded when it is decided. Owned by whoever
// checks or loads; one thread at a time.
#ifndef KAON_SERVER_SHARD_SNAPSHOT_CHECKPOINT_RESTORE_H_
#define KAON_SERVER_SHARD_SNAPSHOT_CHECKPOINT_RESTORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/checkpoint/manifest.h"
#include "server/disk/disk.h"
#include "server/shard/parameters/parameter_publisher.h"
#include "server/shard/parameters/parameter_store.h"

namespace kaon::shard {

class CheckpointRestore {
 public:
  // The checkpoint that `restore` names. NOT_FOUND; DATA_LOSS for one that is damaged, or whose
  // manifest is another file than the one named; INVALID_ARGUMENT naming what of `restore` is not
  // as its manifest has it. `files` outlives the result.
  static absl::StatusOr<std::unique_ptr<CheckpointRestore>> Open(disk::Directory& files,
                                                                 const v1::RestoreBody& restore);

  // checkpoint::RestoredDigest.
  uint64_t restored_digest() const { return checkpoint::RestoredDigest(reader_.manifest()); }

  // Reads every byte of the parameters that the restore places on `shard`, some MiB at a time.
  // DATA_LOSS naming the file.
  absl::Status Check(uint32_t shard);

  // Weights, state and counters of all parameters of `store`, the weights as the publisher's next
  // version. `before_write` is told of each parameter and the weights' memory before either is
  // written. After an error, DATA_LOSS naming the file, nothing of what is there can be used.
  absl::Status Load(ParameterStore& store, ParameterPublisher& publisher,
                    const std::function<void(uint32_t, absl::Span<const float>)>& before_write);

 private:
  CheckpointRestore(disk::Directory& files, const v1::RestoreBody& restore,
                    v1::CheckpointManifest manifest);

  checkpoint::CheckpointDirectory directory_;
  const v1::RestoreBody restore_;
  checkpoint::CheckpointReader reader_;
  // Of the manifest, in the order in which they lie in its files.
  std::vector<const v1::CheckpointTensor*> runs_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_CHECKPOINT_RESTORE_H_
