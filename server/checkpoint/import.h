// A checkpoint of step 0 out of a safetensors file with weights and the definition of a job: what a
// restore starts the job from. Works on files alone. Pure but for the files it is given; one thread
// at a time.
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

// Checkpoint `id` of `job`, at timeline 1, position 1, step 0: the weights of `file` (F32, F16 or
// BF16, one tensor for each parameter, by its name and in its shape), and optimizer state of zeros.
// Parameters that are tied need one tensor between them; those that the file has are equal.
// INVALID_ARGUMENT naming the field of the definition, or every tensor that is missing, that no
// parameter has the name of, or whose shape or element type is another one, or the first weight
// that is not finite, or differs from that of a tied one; ALREADY_EXISTS for the id. After an error
// nothing of it is left.
absl::StatusOr<v1::CheckpointManifest> ImportWeights(disk::File& file, const v1::JobDefinition& job,
                                                     const std::string& id,
                                                     CheckpointDirectory& to);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_IMPORT_H_
