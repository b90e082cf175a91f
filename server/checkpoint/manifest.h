// What a manifest must say to be that of a whole checkpoint: every element of every tensor of the
// job, once, in files that hold nothing else (P9). Pure functions; any thread.
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

// What every shard agrees on at the position of a checkpoint.
struct CheckpointFacts {
  std::string id;
  // As applied at the position of `last_record`.
  v1::RegisterBody registration;
  v1::StepRecord last_record;
  // Newest train step of the state.
  uint64_t step = 0;
};

// A checkpoint whose state a job took, or is about to.
struct RestoredCheckpoint {
  std::string id;
  // The timeline that began, or begins, with it.
  uint64_t timeline = 0;
};

// Puts the parts of all shards together. INVALID_ARGUMENT naming the shard and both values when one
// is missing or is of another job, timeline or position; and as CheckManifest.
absl::StatusOr<v1::CheckpointManifest> BuildManifest(const CheckpointFacts& facts,
                                                     const std::vector<v1::CheckpointPart>& parts);

// INVALID_ARGUMENT naming the checkpoint, the parameter, role or file, and both values, of the
// first thing that is wrong: elements that are nowhere or twice, tensors that overlap in a file or
// leave bytes to nobody, a dtype or form that is not the job's, a parameter without its counter.
// Total.
absl::Status CheckManifest(const v1::CheckpointManifest& manifest);

// What the votes of all shards on the entry after its restore add up to: the state's digest, but
// for the position, which is another one then (P7). Of a manifest that CheckManifest accepts.
uint64_t RestoredDigest(const v1::CheckpointManifest& manifest);

// For CheckedFile, and back.
FileSums SumsOf(const v1::CheckpointFile& file);
void SetSums(const FileSums& sums, v1::CheckpointFile* file);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_MANIFEST_H_
