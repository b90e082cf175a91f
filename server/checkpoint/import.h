// Creates a checkpoint of step 0 from a safetensors file with weights and from the definition of a
// job. A restore from it starts the job. Works on files alone. Not thread-safe.
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
// (F32, F16 or BF16), with one tensor per parameter, by its name and in its shape. Optimizer state
// is zero. Tied parameters need only one tensor; if the file has several of them, they must be
// equal. After an error nothing is left.
//   INVALID_ARGUMENT  names the bad field of the definition; or every tensor that is missing,
//                     unknown, or of another shape or element type; or the first weight that is not
//                     finite or differs from its tied one
//   ALREADY_EXISTS    the id exists
absl::StatusOr<v1::CheckpointManifest> ImportWeights(disk::File& file, const v1::JobDefinition& job,
                                                     const std::string& id,
                                                     CheckpointDirectory& to);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_IMPORT_H_
