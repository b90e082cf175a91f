// Creates a checkpoint of step 0 from a safetensors file with weights, and perhaps optimizer state,
// and from the definition of a job. A restore from it starts the job. Works on files alone. Not
// thread-safe.
#ifndef KAON_SERVER_CHECKPOINT_IMPORT_H_
#define KAON_SERVER_CHECKPOINT_IMPORT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/checkpoint.pb.h"
#include "kaon/v1/parameters.pb.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/disk/disk.h"

namespace kaon::checkpoint {

// Writes checkpoint `id` of `job`, at timeline 1, position 1, step 0. Weights come from `file`
// (F32, F16 or BF16), with one tensor per parameter, by its name and in its shape. The state of a
// parameter comes from tensors `exp_avg:NAME` and so on, and its number of updates from the I64
// scalar `updates_applied:NAME`. Metadata `momentum_form`, ema or sum, is the form of Muon's
// buffers; they are converted to the job's. State is zero if the file has none of them. The job's
// schedules continue after the largest number of updates. Tied parameters need only one tensor; if
// the file has several of them, they must be equal. After an error nothing is left.
//   INVALID_ARGUMENT  names the bad field of the definition; or every tensor that is missing,
//                     unknown, or of another shape or element type; or the first weight or state
//                     that is not finite, a weight that differs from its tied one, or a negative
//                     second moment
//   ALREADY_EXISTS    the id exists
absl::StatusOr<v1::CheckpointManifest> ImportWeights(disk::File& file, const v1::JobDefinition& job,
                                                     const std::string& id,
                                                     CheckpointDirectory& to);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_IMPORT_H_
