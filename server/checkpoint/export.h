// Exports the weights of a checkpoint, or weights and optimizer state, as one safetensors file for
// programs that do not know our checkpoints. Parameters have their own names. Works on files alone.
// Not thread-safe.
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

// Writes file `name` of `to`: every parameter in its shape, including frozen ones. `dtype` kFloat32
// copies the masters bit for bit; kBFloat16 rounds to nearest even. The name appears once the
// contents are durable. After an error nothing is left.
//   ALREADY_EXISTS    the name exists
//   INVALID_ARGUMENT  another dtype, an element that is not finite as `dtype` (names it), or more
//                     names than a header of the format holds
//   DATA_LOSS         names a bad file of the checkpoint
absl::StatusOr<FileSums> ExportWeights(CheckpointDirectory& from,
                                       const v1::CheckpointManifest& manifest, kernels::DType dtype,
                                       disk::Directory& to, const std::string& name);

// Writes weights and optimizer state as fp32, under the names that ImportWeights reads. The
// metadata `registration` is the RegisterBody as Protobuf's JSON with every default written out.
// `momentum_form` is the form of Muon's buffers; it is absent if the job's groups have both forms.
// Codes of ExportWeights.
absl::StatusOr<FileSums> ExportState(CheckpointDirectory& from,
                                     const v1::CheckpointManifest& manifest, disk::Directory& to,
                                     const std::string& name);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_EXPORT_H_
