// Builds and checks the manifest of a whole checkpoint. Its files hold every element of every
// tensor of the job exactly once, and no other bytes (reliability.md P9). Pure functions;
// thread-safe.
#ifndef KAON_SERVER_CHECKPOINT_MANIFEST_H_
#define KAON_SERVER_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/checkpoint/safetensors/fragment_sums.h"

namespace kaon::checkpoint {

// Facts on which every shard agrees at the position of a checkpoint.
struct CheckpointFacts {
  std::string id;
  // Registration in force at the position of `last_record`.
  v1::RegisterBody registration;
  v1::StepRecord last_record;
  // Newest train step of the state.
  uint64_t step = 0;
};

// A checkpoint whose state a job loaded, or is about to load.
struct RestoredCheckpoint {
  std::string id;
  // Timeline that begins with the restore.
  uint64_t timeline = 0;
};

// Combines the parts of all shards. INVALID_ARGUMENT names the shard and both values if a part is
// missing or of another job, timeline or position. Also returns the errors of CheckManifest.
absl::StatusOr<v1::CheckpointManifest> BuildManifest(const CheckpointFacts& facts,
                                                     const std::vector<v1::CheckpointPart>& parts);

// Checks a manifest; any input is safe. INVALID_ARGUMENT names the checkpoint, the parameter, role
// or file, and both values of the first problem. It checks that no element is missing or repeated,
// no tensors overlap, and no bytes are left over. It checks that dtypes and forms are the job's,
// and that every parameter has its counter.
absl::Status CheckManifest(const v1::CheckpointManifest& manifest);

// Returns the sum of all shards' votes on the entry after the restore of this manifest, which
// CheckManifest must accept. It is the state's digest, except for the position, which is another
// one then (reliability.md P7).
uint64_t RestoredDigest(const v1::CheckpointManifest& manifest);

// Convert between a manifest's file and CheckedFile's sums.
FileSums SumsOf(const v1::CheckpointFile& file);
void SetSums(const FileSums& sums, v1::CheckpointFile* file);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_MANIFEST_H_
