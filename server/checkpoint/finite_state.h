// Whether the values of a state are finite: a state with infinity or NaN in it trains no more, so a
// checkpoint of it does not count as good. Pure but for the file; any thread.
#ifndef KAON_SERVER_CHECKPOINT_FINITE_STATE_H_
#define KAON_SERVER_CHECKPOINT_FINITE_STATE_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/disk/disk.h"

namespace kaon::checkpoint {

// At most this many bytes of a tensor are read at once. A multiple of every element's size, and of
// that of a group of int8 elements.
inline constexpr size_t kFinitePiece = (size_t{1} << 20) / 68 * 68;

// Returns whether `bytes`, whole elements or groups of `dtype` (docs/formats.md), are finite.
bool AllFinite(v1::StateDType dtype, absl::string_view bytes);

// Reads the tensors of file number `index` of the manifest, which is `file`. DATA_LOSS naming the
// first that is not finite; the codes of disk::File.
absl::Status CheckFinite(const v1::CheckpointManifest& manifest, int index, disk::File& file);

// DATA_LOSS for a tensor that is not finite, saying what to do.
absl::Status NotFiniteError(const v1::JobDefinition& job, const v1::CheckpointTensor& tensor);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_FINITE_STATE_H_
