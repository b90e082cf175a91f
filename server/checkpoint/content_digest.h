// Digests of the contents of a checkpoint's files, computed as shards compute those of their memory
// (docs/formats.md). They tell whether a restore gives the state that was frozen. Reads every
// tensor. Not thread-safe.
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
  // Digest of weights, optimizer state, update counters and position.
  uint64_t state = 0;
};

// Computes the digests for a manifest that CheckManifest accepts. DATA_LOSS names a bad file.
absl::StatusOr<ContentDigests> DigestsOf(CheckpointDirectory& directory,
                                         const v1::CheckpointManifest& manifest);

// Returns DATA_LOSS with both digests if the manifest has other ones: the files differ from the
// frozen state, although their checksums are correct (reliability.md P7).
absl::Status CheckDigests(CheckpointDirectory& directory, const v1::CheckpointManifest& manifest);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_CONTENT_DIGEST_H_
