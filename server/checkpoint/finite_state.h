// Checks that the values of a state are finite. A state with infinity or NaN cannot train on, so
// its checkpoint does not count as good. Pure functions except for reading the file; thread-safe.
#ifndef KAON_SERVER_CHECKPOINT_FINITE_STATE_H_
#define KAON_SERVER_CHECKPOINT_FINITE_STATE_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/disk/disk.h"

namespace kaon::checkpoint {

// Maximum number of bytes of a tensor to read at once. A multiple of every element's size, and of
// the size of a group of int8 elements.
inline constexpr size_t kFinitePiece = (size_t{1} << 20) / 68 * 68;

// Returns whether all of `bytes`, whole elements or groups of `dtype` (docs/formats.md), are
// finite.
bool AllFinite(v1::StateDType dtype, absl::string_view bytes);

// Reads all tensors of `file`, which is file number `index` of the manifest. DATA_LOSS names the
// first one that is not finite. Also returns the errors of disk::File.
absl::Status CheckFinite(const v1::CheckpointManifest& manifest, int index, disk::File& file);

// Returns DATA_LOSS for a tensor that is not finite, and says what to do.
absl::Status NotFiniteError(const v1::JobDefinition& job, const v1::CheckpointTensor& tensor);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_FINITE_STATE_H_
