// Digests of what a checkpoint's files hold, as shards take them of what is in their memory
// (docs/formats.md): whether a restore will come to the state that was frozen. Reads every tensor;
// one thread.
#ifndef KAON_SERVER_CHECKPOINT_CONTENT_DIGEST_H_
#define KAON_SERVER_CHECKPOINT_CONTENT_DIGEST_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/checkpoint/checkpoint_directory.h"

namespace kaon::checkpoint {

struct ContentDigests {
  uint64_t weights = 0;
  // Of weights, optimizer state, update counters and position.
  uint64_t state = 0;
};

// Of a manifest that CheckManifest accepts. DATA_LOSS naming a bad file.
absl::StatusOr<ContentDigests> DigestsOf(CheckpointDirectory& directory,
                                         const v1::CheckpointManifest& manifest);

// DATA_LOSS naming the digests of both where the manifest has others: what was written is not what
// was frozen, however good its checksums are (P7).
absl::Status CheckDigests(CheckpointDirectory& directory, const v1::CheckpointManifest& manifest);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_CONTENT_DIGEST_H_
