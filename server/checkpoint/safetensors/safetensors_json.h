// The JSON of a safetensors header: what it says, before anybody asked whether it can be true. The
// only place that knows the JSON library, whose event interface neither throws nor recurses. Pure
// functions; any thread.
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

// INVALID_ARGUMENT naming the file and what is wrong, with the tensor and field: no JSON, bad
// UTF-8, a name or field twice, an unknown dtype, a field that is missing, unknown or of another
// kind. Tensors are in the order of the file; their offsets are as written there.
absl::StatusOr<SafetensorsHeader> ParseHeaderJson(absl::string_view file, absl::string_view json);

// Without padding. Bytes that are not UTF-8 are replaced: who must know parses it again.
std::string FormatHeaderJson(const std::map<std::string, std::string>& metadata,
                             absl::Span<const Tensor> tensors);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_SAFETENSORS_SAFETENSORS_JSON_H_
