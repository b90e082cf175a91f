// The header of a safetensors file: which tensors it holds and where. A file is 8 bytes with the
// header's length, the header (JSON), and the tensors' bytes one after the other: docs/formats.md.
// Pure functions and plain values; any thread.
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

// Where the data of our own files begins: at a multiple of this.
inline constexpr uint64_t kDataAlignment = 4096;
// The file's first bytes, which hold the header's length.
inline constexpr uint64_t kLengthBytes = 8;
inline constexpr size_t kMaxDimensions = 32;

// Element types this version reads and writes.
enum class TensorType { kFloat32, kBFloat16, kFloat16, kInt8, kUint8, kInt64, kUint64 };

// "F32", "BF16", "F16", "I8", "U8", "I64", "U64".
absl::string_view NameOf(TensorType type);
// Bytes of one element.
uint64_t SizeOf(TensorType type);
// INVALID_ARGUMENT giving the arithmetic when the product does not fit 64 bits.
absl::StatusOr<uint64_t> TensorBytes(TensorType type, absl::Span<const uint64_t> shape);

// A name that a file gave, for messages: in quotes, escaped, cut short when it is long.
std::string Quoted(absl::string_view name);

struct Tensor {
  // UTF-8, unique in its file.
  std::string name;
  TensorType type = TensorType::kFloat32;
  // Row-major; empty for a scalar.
  std::vector<uint64_t> shape;
  // First byte and the byte after the last, counted from the file's first tensor.
  uint64_t begin = 0;
  uint64_t end = 0;

  friend bool operator==(const Tensor& a, const Tensor& b) {
    return a.name == b.name && a.type == b.type && a.shape == b.shape && a.begin == b.begin &&
           a.end == b.end;
  }
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  // Ascending; each begins where the one before ends, and the last ends with the file.
  std::vector<Tensor> tensors;
  // First byte of the first tensor, counted from the file's first byte.
  uint64_t first_byte = 0;
};

struct SafetensorsRules {
  uint64_t max_header_bytes = 0;
  // In the order of LayOut, padded with spaces so that the data is aligned.
  bool canonical = false;
};
inline constexpr SafetensorsRules kOurFiles = {uint64_t{1} << 20, true};
// What other programs wrote; their limit is the format's.
inline constexpr SafetensorsRules kImportedFiles = {100'000'000, false};
// What other programs are to read.
inline constexpr SafetensorsRules kExportedFiles = {kImportedFiles.max_header_bytes, true};

// Puts the tensors into the order of our files (larger elements first, so that each is aligned,
// then by name) and sets begin and end.
absl::StatusOr<std::vector<Tensor>> LayOut(std::vector<Tensor> tensors);

// The first bytes of one of our files, up to the data; `tensors` as LayOut gives them. `rules` are
// canonical.
absl::StatusOr<std::string> FormatHeader(absl::string_view file,
                                         const std::map<std::string, std::string>& metadata,
                                         absl::Span<const Tensor> tensors,
                                         const SafetensorsRules& rules = kOurFiles);

// Bytes of JSON that follow the first 8; `prefix` is what the file begins with.
absl::StatusOr<uint64_t> ParseHeaderLength(absl::string_view file, absl::string_view prefix,
                                           uint64_t file_bytes, const SafetensorsRules& rules);

// Of a file of `file_bytes` whose header is `json`, which is what follows the first 8 bytes. Total:
// any bytes are read or refused.
absl::StatusOr<SafetensorsHeader> ParseHeader(absl::string_view file, absl::string_view json,
                                              uint64_t file_bytes, const SafetensorsRules& rules);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_SAFETENSORS_SAFETENSORS_HEADER_H_
