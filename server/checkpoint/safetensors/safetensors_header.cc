#include "server/checkpoint/safetensors/safetensors_header.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/checkpoint/safetensors/little_endian.h"
#include "server/checkpoint/safetensors/safetensors_json.h"

namespace kaon::checkpoint {

namespace {

absl::Status Error(absl::string_view file, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("file ", file, ": ", what));
}

absl::Status TensorError(absl::string_view file, const Tensor& tensor, absl::string_view what) {
  return Error(file, absl::StrCat("tensor ", Quoted(tensor.name), ": ", what));
}

// The order of our files: without holes, every tensor is aligned to its elements.
auto Rank(const Tensor& tensor) {
  return std::make_tuple(~SizeOf(tensor.type), absl::string_view(tensor.name));
}

absl::Status CheckSize(absl::string_view file, const Tensor& tensor, uint64_t total) {
  if (tensor.end < tensor.begin || tensor.end > total) {
    return TensorError(file, tensor,
                       absl::StrCat("field data_offsets is [", tensor.begin, ",", tensor.end,
                                    "], expecting a range in [0,", total, "]"));
  }
  const absl::StatusOr<uint64_t> bytes = TensorBytes(tensor.type, tensor.shape);
  if (!bytes.ok()) return TensorError(file, tensor, bytes.status().message());
  if (*bytes != tensor.end - tensor.begin) {
    return TensorError(file, tensor,
                       absl::StrCat("field data_offsets spans ", tensor.end - tensor.begin,
                                    " bytes, but shape [", absl::StrJoin(tensor.shape, ","),
                                    "] of ", NameOf(tensor.type), " has ", *bytes));
  }
  return absl::OkStatus();
}

// Checks that every byte of the data belongs to exactly one tensor.
absl::Status CheckContiguous(absl::string_view file, const std::vector<Tensor>& tensors,
                             uint64_t total) {
  uint64_t end = 0;
  const Tensor* before = nullptr;
  for (const Tensor& tensor : tensors) {
    if (tensor.begin < end) {
      return TensorError(file, tensor,
                         absl::StrCat("begins at ", tensor.begin, ", inside tensor ",
                                      Quoted(before->name), ", which ends at ", end));
    }
    if (tensor.begin > end) {
      return TensorError(file, tensor,
                         absl::StrCat("begins at ", tensor.begin, ", expecting ", end,
                                      ": bytes between belong to no tensor"));
    }
    end = tensor.end;
    before = &tensor;
  }
  if (end == total) return absl::OkStatus();
  return Error(
      file, absl::StrCat("its data is ", total, " bytes long, but the last tensor ends at ", end));
}

absl::Status CheckCanonical(absl::string_view file, const std::vector<Tensor>& tensors,
                            uint64_t first_byte) {
  if (first_byte % kDataAlignment != 0) {
    return Error(file, absl::StrCat("its data begins at byte ", first_byte,
                                    ", expecting a multiple of ", kDataAlignment));
  }
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (Rank(tensors[i - 1]) < Rank(tensors[i])) continue;
    return TensorError(file, tensors[i],
                       absl::StrCat("comes after tensor ", Quoted(tensors[i - 1].name),
                                    ", expecting larger elements first, then names in order"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string Quoted(absl::string_view name) { return absl::StrCat("'", proto::Excerpt(name), "'"); }

absl::string_view NameOf(TensorType type) {
  switch (type) {
    case TensorType::kFloat32:
      return "F32";
    case TensorType::kBFloat16:
      return "BF16";
    case TensorType::kFloat16:
      return "F16";
    case TensorType::kInt8:
      return "I8";
    case TensorType::kUint8:
      return "U8";
    case TensorType::kInt64:
      return "I64";
    case TensorType::kUint64:
      break;
  }
  return "U64";
}

uint64_t SizeOf(TensorType type) {
  switch (type) {
    case TensorType::kFloat32:
      return 4;
    case TensorType::kBFloat16:
    case TensorType::kFloat16:
      return 2;
    case TensorType::kInt8:
    case TensorType::kUint8:
      return 1;
    case TensorType::kInt64:
    case TensorType::kUint64:
      break;
  }
  return 8;
}

absl::StatusOr<uint64_t> TensorBytes(TensorType type, absl::Span<const uint64_t> shape) {
  uint64_t bytes = SizeOf(type);
  // An empty tensor has no bytes, even if the product of its other dimensions overflows.
  if (std::find(shape.begin(), shape.end(), uint64_t{0}) != shape.end()) return 0;
  for (const uint64_t dimension : shape) {
    if (__builtin_mul_overflow(bytes, dimension, &bytes)) {
      return absl::InvalidArgumentError(absl::StrCat("shape [", absl::StrJoin(shape, ","), "] of ",
                                                     NameOf(type), " has more than 2^64-1 bytes"));
    }
  }
  return bytes;
}

absl::StatusOr<std::vector<Tensor>> LayOut(std::vector<Tensor> tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const Tensor& a, const Tensor& b) { return Rank(a) < Rank(b); });
  uint64_t end = 0;
  for (Tensor& tensor : tensors) {
    KAON_ASSIGN_OR_RETURN(const uint64_t bytes, TensorBytes(tensor.type, tensor.shape));
    tensor.begin = end;
    if (__builtin_add_overflow(end, bytes, &end)) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(tensor.name), " of ", bytes,
                                                     " bytes begins at ", tensor.begin,
                                                     ": ends beyond 2^64-1"));
    }
    tensor.end = end;
  }
  return tensors;
}

absl::StatusOr<std::string> FormatHeader(absl::string_view file,
                                         const std::map<std::string, std::string>& metadata,
                                         absl::Span<const Tensor> tensors,
                                         const SafetensorsRules& rules) {
  std::string json = FormatHeaderJson(metadata, tensors);
  const uint64_t unpadded = kLengthBytes + json.size();
  const uint64_t first_byte = (unpadded + kDataAlignment - 1) / kDataAlignment * kDataAlignment;
  json.resize(first_byte - kLengthBytes, ' ');
  const uint64_t data_bytes = tensors.empty() ? 0 : tensors.back().end;
  // Check the header by the code that will read it.
  std::string header = LittleEndian64(json.size()) + json;
  KAON_RETURN_IF_ERROR(ParseHeaderLength(file, header, first_byte + data_bytes, rules).status());
  KAON_ASSIGN_OR_RETURN(const SafetensorsHeader read,
                        ParseHeader(file, json, first_byte + data_bytes, rules));
  if (read.metadata != metadata ||
      !std::equal(read.tensors.begin(), read.tensors.end(), tensors.begin(), tensors.end())) {
    return Error(file, "a name is no UTF-8, or is __metadata__, which is no tensor's");
  }
  return header;
}

absl::StatusOr<uint64_t> ParseHeaderLength(absl::string_view file, absl::string_view prefix,
                                           uint64_t file_bytes, const SafetensorsRules& rules) {
  if (file_bytes < kLengthBytes || prefix.size() < kLengthBytes) {
    return Error(file, absl::StrCat("is ", file_bytes, " bytes long, expecting the ", kLengthBytes,
                                    " bytes of the header's length"));
  }
  const uint64_t length = FromLittleEndian64(prefix);
  if (length > rules.max_header_bytes) {
    return Error(file, absl::StrCat("its header is ", length, " bytes long, expecting at most ",
                                    rules.max_header_bytes));
  }
  if (length > file_bytes - kLengthBytes) {
    return Error(file, absl::StrCat("its header is ", length, " bytes long, but only ",
                                    file_bytes - kLengthBytes, " bytes follow"));
  }
  return length;
}

absl::StatusOr<SafetensorsHeader> ParseHeader(absl::string_view file, absl::string_view json,
                                              uint64_t file_bytes, const SafetensorsRules& rules) {
  if (file_bytes < kLengthBytes || json.size() > file_bytes - kLengthBytes) {
    return Error(file,
                 absl::StrCat("is ", file_bytes, " bytes long, its header alone is ", json.size()));
  }
  // The format requires this; the JSON library also accepts spaces and a byte order mark.
  if (json.empty() || json[0] != '{') {
    return Error(file, absl::StrCat("its header begins with '", absl::CHexEscape(json.substr(0, 1)),
                                    "', expecting '{'"));
  }
  KAON_ASSIGN_OR_RETURN(SafetensorsHeader header, ParseHeaderJson(file, json));
  header.first_byte = kLengthBytes + json.size();
  const uint64_t total = file_bytes - header.first_byte;
  for (const Tensor& tensor : header.tensors) {
    KAON_RETURN_IF_ERROR(CheckSize(file, tensor, total));
  }
  if (rules.canonical) {
    KAON_RETURN_IF_ERROR(CheckCanonical(file, header.tensors, header.first_byte));
  } else {
    // Sort by end too: an empty tensor comes before the one that begins at the same place.
    std::stable_sort(header.tensors.begin(), header.tensors.end(),
                     [](const Tensor& a, const Tensor& b) {
                       return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
                     });
  }
  KAON_RETURN_IF_ERROR(CheckContiguous(file, header.tensors, total));
  return header;
}

}  // namespace kaon::checkpoint
