// The header of a safetensors file: its tensors and their places. A file has 8 bytes with the
// header's length, the header (JSON), and the tensors' bytes one after the other (docs/formats.md).
// Pure functions and plain values; thread-safe.
//
// Every error is INVALID_ARGUMENT naming the file, the tensor, the field and both values.
#ifndef KAON_SERVER_CHECKPOINT_SAFETENSORS_SAFETENSORS_HEADER_H_
#define KAON_SERVER_CHECKPOINT_SAFETENSORS_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kaon::checkpoint {

// Alignment of the first data byte in our own files.
inline constexpr uint64_t kDataAlignment = 4096;
// Size of the first field, which holds the header's length.
inline constexpr uint64_t kLengthBytes = 8;
inline constexpr size_t kMaxDimensions = 32;

// Element types that this version reads and writes.
enum class TensorType { kFloat32, kBFloat16, kFloat16, kInt8, kUint8, kInt64, kUint64 };

// Returns "F32", "BF16", "F16", "I8", "U8", "I64" or "U64".
absl::string_view NameOf(TensorType type);
// Returns the bytes of one element.
uint64_t SizeOf(TensorType type);
// Returns the bytes of a tensor. INVALID_ARGUMENT states the arithmetic if the product does not fit
// into 64 bits.
absl::StatusOr<uint64_t> TensorBytes(TensorType type, absl::Span<const uint64_t> shape);

// Returns a name from a file for messages: in quotes, escaped, cut short if it is long.
std::string Quoted(absl::string_view name);

struct Tensor {
  // UTF-8, unique in its file.
  std::string name;
  TensorType type = TensorType::kFloat32;
  // Row-major; empty for a scalar.
  std::vector<uint64_t> shape;
  // First byte, and the byte after the last, counted from the file's first tensor.
  uint64_t begin = 0;
  uint64_t end = 0;

  friend bool operator==(const Tensor& a, const Tensor& b) {
    return a.name == b.name && a.type == b.type && a.shape == b.shape && a.begin == b.begin &&
           a.end == b.end;
  }
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  // Ascending; each begins where the previous one ends, and the last one ends with the file.
  std::vector<Tensor> tensors;
  // Offset of the first tensor in the file.
  uint64_t first_byte = 0;
};

struct SafetensorsRules {
  uint64_t max_header_bytes = 0;
  // Requires the order of LayOut, and spaces as padding so that the data is aligned.
  bool canonical = false;
};
inline constexpr SafetensorsRules kOurFiles = {uint64_t{1} << 20, true};
// Files of other programs; the limit is that of the format.
inline constexpr SafetensorsRules kImportedFiles = {100'000'000, false};
// Files for other programs.
inline constexpr SafetensorsRules kExportedFiles = {kImportedFiles.max_header_bytes, true};

// Sorts the tensors into the order of our files, and sets begin and end. Larger elements come
// first, so that each is aligned; then names decide.
absl::StatusOr<std::vector<Tensor>> LayOut(std::vector<Tensor> tensors);

// Returns the first bytes of one of our files, up to the data. `tensors` must come from LayOut, and
// `rules` must be canonical.
absl::StatusOr<std::string> FormatHeader(absl::string_view file,
                                         const std::map<std::string, std::string>& metadata,
                                         absl::Span<const Tensor> tensors,
                                         const SafetensorsRules& rules = kOurFiles);

// Returns the number of bytes of JSON after the first 8; `prefix` is the start of the file.
absl::StatusOr<uint64_t> ParseHeaderLength(absl::string_view file, absl::string_view prefix,
                                           uint64_t file_bytes, const SafetensorsRules& rules);

// Parses the header of a file of `file_bytes`; any bytes are safe. `json` is the text after the
// first 8 bytes.
absl::StatusOr<SafetensorsHeader> ParseHeader(absl::string_view file, absl::string_view json,
                                              uint64_t file_bytes, const SafetensorsRules& rules);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_SAFETENSORS_SAFETENSORS_HEADER_H_
