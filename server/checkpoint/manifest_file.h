// The bytes of a manifest: a line naming the format, the message's length, the message, and the
// SHA-256 of all before it (docs/formats.md). Pure functions; any thread.
#ifndef KAON_SERVER_CHECKPOINT_MANIFEST_FILE_H_
#define KAON_SERVER_CHECKPOINT_MANIFEST_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/checkpoint.pb.h"

namespace kaon::checkpoint {

// Longer ones are neither written nor read: memory is bounded whatever the file says.
inline constexpr uint64_t kMaxManifestBytes = uint64_t{128} << 20;

// INVALID_ARGUMENT naming both sizes of a manifest that is too long.
absl::StatusOr<std::string> FormatManifest(const v1::CheckpointManifest& manifest);

// What `bytes`, the whole file called `file`, say; whether it can be true is for CheckManifest.
// Total: any bytes are read or refused. DATA_LOSS naming both values for bytes that are not those
// that were written; FAILED_PRECONDITION for a manifest of another version, naming both, and for
// one with fields that this version does not know.
absl::StatusOr<v1::CheckpointManifest> ParseManifest(absl::string_view file,
                                                     absl::string_view bytes);

// [a-z0-9-]{1,64}, or INVALID_ARGUMENT naming the id.
absl::Status CheckId(absl::string_view id);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_MANIFEST_FILE_H_
