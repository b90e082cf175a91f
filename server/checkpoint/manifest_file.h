// The bytes of a manifest: a line with the format's name, the message's length, the message, and
// the SHA-256 of everything before it (docs/formats.md). Pure functions; thread-safe.
#ifndef KAON_SERVER_CHECKPOINT_MANIFEST_FILE_H_
#define KAON_SERVER_CHECKPOINT_MANIFEST_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/checkpoint.pb.h"

namespace kaon::checkpoint {

// Limit for writing and reading, which bounds the memory whatever a file contains.
inline constexpr uint64_t kMaxManifestBytes = uint64_t{128} << 20;

// INVALID_ARGUMENT names both sizes of a manifest that is too long.
absl::StatusOr<std::string> FormatManifest(const v1::CheckpointManifest& manifest);

// Parses `bytes`, the whole file called `file`; any bytes are safe. It does not check the facts;
// CheckManifest does. DATA_LOSS names both values if the bytes are not those that were written.
// FAILED_PRECONDITION names both versions for another version, or the fields that this version does
// not know.
absl::StatusOr<v1::CheckpointManifest> ParseManifest(absl::string_view file,
                                                     absl::string_view bytes);

// Returns INVALID_ARGUMENT, naming the id, unless it matches [a-z0-9-]{1,64}.
absl::Status CheckId(absl::string_view id);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_MANIFEST_FILE_H_
