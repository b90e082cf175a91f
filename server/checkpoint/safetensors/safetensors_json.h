// Parses the JSON of a safetensors header, without checking whether its facts can be true. The only
// code that uses the JSON library, whose event interface neither throws nor recurses. Pure
// functions; thread-safe.
#ifndef KAON_SERVER_CHECKPOINT_SAFETENSORS_SAFETENSORS_JSON_H_
#define KAON_SERVER_CHECKPOINT_SAFETENSORS_SAFETENSORS_JSON_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/checkpoint/safetensors/safetensors_header.h"

namespace kaon::checkpoint {

// Parses `json`. Tensors are in the order of the file; their offsets are as written there.
//   INVALID_ARGUMENT  no JSON, bad UTF-8, a repeated name or field, an unknown dtype, or a field
//                     that is missing, unknown or of another kind; names file, tensor and field
absl::StatusOr<SafetensorsHeader> ParseHeaderJson(absl::string_view file, absl::string_view json);

// Returns the JSON without padding. Replaces bytes that are not UTF-8; a caller that must detect
// them parses the result.
std::string FormatHeaderJson(const std::map<std::string, std::string>& metadata,
                             absl::Span<const Tensor> tensors);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_SAFETENSORS_SAFETENSORS_JSON_H_
