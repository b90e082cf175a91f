// The weights of a checkpoint as one safetensors file with the parameters' own names, for programs
// that know nothing of checkpoints. Works on files alone. Pure but for the files it is given; one
// thread at a time.
#ifndef KAON_SERVER_CHECKPOINT_EXPORT_H_
#define KAON_SERVER_CHECKPOINT_EXPORT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/dtype.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/safetensors/fragment_sums.h"
#include "server/disk/disk.h"

namespace kaon::checkpoint {

// Writes file `name` of `to`: every parameter in its shape, frozen ones included; as `dtype`
// kFloat32 the masters bit for bit, as kBFloat16 rounded to nearest even. The name appears once
// everything under it is durable. ALREADY_EXISTS for the name, INVALID_ARGUMENT for another dtype,
// naming an element that is not finite as `dtype`, and for more names than a header of the format
// holds, DATA_LOSS naming a bad file of the checkpoint; nothing is left then.
absl::StatusOr<FileSums> ExportWeights(CheckpointDirectory& from,
                                       const v1::CheckpointManifest& manifest, kernels::DType dtype,
                                       disk::Directory& to, const std::string& name);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_EXPORT_H_
