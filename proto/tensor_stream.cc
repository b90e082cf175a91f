#include "proto/tensor_stream.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/crc32c.h"
#include "proto/status_macros.h"

namespace kaon::proto {

namespace {

constexpr unsigned char kLengthDelimited = 2;
constexpr unsigned char kFinishTag = (2 << 3) | kLengthDelimited;
constexpr unsigned char kChunkTag = (3 << 3) | kLengthDelimited;
constexpr unsigned char kPiecesTag = (4 << 3) | kLengthDelimited;
constexpr unsigned char kPayloadTag = (15 << 3) | kLengthDelimited;
// Tag of missing_parameters in a finish.
constexpr unsigned char kMissingTag = (1 << 3) | kLengthDelimited;

// Maximum size of a message without its long parts: the payload, and the missing parameters of a
// finish. It is three times what kMaxPieces pieces need.
constexpr size_t kMaxHeaderBytes = size_t{128} << 10;

void AppendVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

size_t TotalBytes(Slices slices) {
  size_t bytes = 0;
  for (const auto& slice : slices) bytes += slice.size();
  return bytes;
}

// Reads slices from the front.
class SliceReader {
 public:
  explicit SliceReader(Slices slices) : slices_(slices), remaining_(TotalBytes(slices)) {}

  size_t remaining() const { return remaining_; }

  // Appends the next byte to `copy` and returns it. There must be one.
  unsigned char Next(std::string* copy) {
    while (at_ == slices_.front().size()) Advance();
    const auto byte = static_cast<unsigned char>(slices_.front()[at_++]);
    --remaining_;
    copy->push_back(static_cast<char>(byte));
    return byte;
  }

  // Appends `size` bytes to `copy`. Returns false if there are fewer.
  bool Copy(size_t size, std::string* copy) {
    if (size > remaining_) return false;
    remaining_ -= size;
    while (size > 0) {
      while (at_ == slices_.front().size()) Advance();
      const size_t run = std::min(size, slices_.front().size() - at_);
      copy->append(reinterpret_cast<const char*>(slices_.front().data()) + at_, run);
      at_ += run;
      size -= run;
    }
    return true;
  }

  std::vector<absl::Span<const std::byte>> TakeRest() {
    std::vector<absl::Span<const std::byte>> rest;
    for (; !slices_.empty(); Advance()) {
      const auto slice = slices_.front().subspan(at_);
      if (!slice.empty()) rest.push_back(slice);
    }
    remaining_ = 0;
    return rest;
  }

 private:
  void Advance() {
    slices_.remove_prefix(1);
    at_ = 0;
  }

  Slices slices_;
  size_t at_ = 0;
  size_t remaining_;
};

// Reads a varint of at most four bytes; leaves longer ones to the generated parser.
std::optional<uint64_t> ReadShortVarint(SliceReader& reader, std::string* copy) {
  uint64_t value = 0;
  for (int shift = 0; shift < 28; shift += 7) {
    if (reader.remaining() == 0) return std::nullopt;
    const unsigned char byte = reader.Next(copy);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return value;
  }
  return std::nullopt;
}

// Copies the rest of a field whose tag was read. Returns false if it is cut off, or of a kind left
// to the generated parser.
bool CopyField(unsigned char tag, SliceReader& reader, std::string* copy) {
  switch (tag & 7) {
    case 0:
      while (reader.remaining() > 0) {
        if ((reader.Next(copy) & 0x80) == 0) return true;
      }
      return false;
    case 1:
      return reader.Copy(8, copy);
    case kLengthDelimited: {
      const std::optional<uint64_t> size = ReadShortVarint(reader, copy);
      return size.has_value() && reader.Copy(*size, copy);
    }
    case 5:
      return reader.Copy(4, copy);
    default:
      return false;
  }
}

using google::protobuf::io::CodedInputStream;

// Returns the bytes of a finish, whose length comes next, without packed missing parameters. Leaves
// the input after the finish, or at the first byte that it cannot read.
size_t MeasureFinish(CodedInputStream& input) {
  const int begin = input.CurrentPosition();
  const int limit = input.ReadLengthAndPushLimit();
  size_t missing_bytes = 0;
  for (uint32_t tag = input.ReadTag(); tag != 0; tag = input.ReadTag()) {
    const int field = input.CurrentPosition();
    if (!google::protobuf::internal::WireFormatLite::SkipField(&input, tag)) break;
    if (tag == kMissingTag) missing_bytes += input.CurrentPosition() - field;
  }
  input.PopLimit(limit);
  return input.CurrentPosition() - begin - missing_bytes;
}

// Cost of parsing a message.
struct Measured {
  size_t pieces = 0;
  // Bytes that are neither payload nor missing parameters.
  size_t header_bytes = 0;
};

// Measures the top-level fields, up to the first byte that the generated parser would reject. It
// may read into a field that is cut off before it stops.
Measured Measure(const std::string& message) {
  const int size = static_cast<int>(message.size());
  CodedInputStream input(reinterpret_cast<const uint8_t*>(message.data()), size);
  Measured measured;
  int field = 0;
  for (uint32_t tag = input.ReadTag(); tag != 0; tag = input.ReadTag()) {
    measured.pieces += tag == kPiecesTag;
    if (tag == kFinishTag) {
      measured.header_bytes += MeasureFinish(input);
    } else {
      const bool whole = google::protobuf::internal::WireFormatLite::SkipField(&input, tag);
      const int end = whole ? input.CurrentPosition() : size;
      if (tag != kPayloadTag) measured.header_bytes += end - field;
      if (!whole) break;
    }
    field = input.CurrentPosition();
  }
  return measured;
}

absl::Status PiecesError(size_t pieces) {
  return absl::InvalidArgumentError(
      absl::StrCat("pieces has ", pieces, " entries, expecting ", kMinPieces, " .. ", kMaxPieces));
}

// Returns the message if its payload is the last field, or if it has none. Absent: the generated
// parser decides.
std::optional<DecodedPush> DecodeInPlace(Slices slices) {
  SliceReader reader(slices);
  std::string header;
  DecodedPush decoded;
  size_t pieces = 0;
  while (reader.remaining() > 0) {
    const size_t field_start = header.size();
    const unsigned char tag = reader.Next(&header);
    if ((tag & 0x80) != 0 || (tag >> 3) == 0) return std::nullopt;
    if (tag == kPiecesTag && ++pieces > kMaxPieces) return std::nullopt;
    if (tag != kPayloadTag) {
      if (!CopyField(tag, reader, &header)) return std::nullopt;
      continue;
    }
    const std::optional<uint64_t> size = ReadShortVarint(reader, &header);
    if (!size.has_value() || *size != reader.remaining()) return std::nullopt;
    header.resize(field_start);
    decoded.payload = reader.TakeRest();
  }
  if (header.size() > kMaxHeaderBytes && Measure(header).header_bytes > kMaxHeaderBytes) {
    return std::nullopt;
  }
  if (!decoded.message.ParseFromString(header)) return std::nullopt;
  return decoded;
}

}  // namespace

size_t WireSizeOf(v1::DType dtype) {
  switch (dtype) {
    case v1::DTYPE_FLOAT32:
      return 4;
    case v1::DTYPE_BFLOAT16:
    case v1::DTYPE_FLOAT16:
      return 2;
    default:
      return 0;
  }
}

std::string EncodeChunkHeader(absl::Span<const v1::TensorChunk> chunks, size_t payload_bytes) {
  const unsigned char tag = chunks.size() == 1 ? kChunkTag : kPiecesTag;
  std::string header;
  for (const v1::TensorChunk& chunk : chunks) {
    header.push_back(static_cast<char>(tag));
    AppendVarint(chunk.ByteSizeLong(), &header);
    chunk.AppendToString(&header);
  }
  header.push_back(static_cast<char>(kPayloadTag));
  AppendVarint(payload_bytes, &header);
  return header;
}

size_t DecodedPush::payload_bytes() const { return TotalBytes(payload); }

absl::StatusOr<DecodedPush> DecodePush(Slices slices) {
  if (std::optional<DecodedPush> decoded = DecodeInPlace(slices); decoded.has_value()) {
    return *std::move(decoded);
  }
  const size_t size = TotalBytes(slices);
  std::string flat;
  flat.reserve(size);
  for (const auto& slice : slices) {
    flat.append(reinterpret_cast<const char*>(slice.data()), slice.size());
  }
  if (size <= static_cast<size_t>(std::numeric_limits<int>::max())) {
    const Measured measured = Measure(flat);
    if (measured.pieces > kMaxPieces) return PiecesError(measured.pieces);
    if (measured.header_bytes > kMaxHeaderBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "message has ", measured.header_bytes,
          " bytes beside payload and missing_parameters, expecting at most ", kMaxHeaderBytes));
    }
  }
  DecodedPush decoded;
  if (size > static_cast<size_t>(std::numeric_limits<int>::max()) ||
      !decoded.message.ParseFromString(flat)) {
    return absl::InvalidArgumentError(
        absl::StrCat("message of ", size, " bytes is not a kaon.v1.PushRequest"));
  }
  const std::string& payload = decoded.message.payload();
  const auto* bytes = reinterpret_cast<const std::byte*>(payload.data());
  decoded.owned.assign(bytes, bytes + payload.size());
  if (!decoded.owned.empty()) decoded.payload.push_back(decoded.owned);
  decoded.message.clear_payload();
  return decoded;
}

namespace {

// Returns the payload bytes of pieces[index]; the message has at most `left` of them.
absl::StatusOr<size_t> PieceBytes(const v1::PushRequest& message, int index, size_t left) {
  const v1::TensorChunk& piece = message.pieces(index);
  const std::string which =
      absl::StrCat("pieces[", index, "] of parameter ", piece.parameter_id(), ": ");
  const size_t element_bytes = WireSizeOf(piece.dtype());
  if (element_bytes == 0) {
    return absl::InvalidArgumentError(absl::StrCat(which, "dtype is ",
                                                   static_cast<int>(piece.dtype()),
                                                   ", expecting 1 (fp32), 2 (bf16) or 3 (fp16)"));
  }
  const uint64_t most_elements = kMaxChunkBytes / element_bytes;
  if (piece.num_elements() < 1 || piece.num_elements() > most_elements) {
    return absl::InvalidArgumentError(absl::StrCat(which, "num_elements is ", piece.num_elements(),
                                                   ", expecting 1 .. ", most_elements));
  }
  const size_t bytes = piece.num_elements() * element_bytes;
  if (bytes <= left) return bytes;
  return absl::InvalidArgumentError(
      absl::StrCat(which, bytes, " bytes, the payload has ", left, " behind the pieces before it"));
}

// Moves the first `bytes` of `from`, which has them, to the end of `to`.
void TakeFront(size_t bytes, Slices* from, size_t* at,
               std::vector<absl::Span<const std::byte>>* to) {
  while (bytes > 0) {
    const auto rest = from->front().subspan(*at);
    const auto run = rest.first(std::min(bytes, rest.size()));
    if (!run.empty()) to->push_back(run);
    bytes -= run.size();
    *at += run.size();
    if (run.size() < rest.size()) continue;
    from->remove_prefix(1);
    *at = 0;
  }
}

}  // namespace

absl::StatusOr<ChunkViews> SplitPayload(const DecodedPush& decoded) {
  const v1::PushRequest& message = decoded.message;
  ChunkViews views;
  const size_t payload_bytes = decoded.payload_bytes();
  if (message.has_chunk() && message.pieces_size() > 0) {
    return absl::InvalidArgumentError(absl::StrCat("pieces has ", message.pieces_size(),
                                                   " entries beside a chunk, expecting none"));
  }
  if (message.has_chunk()) {
    views.chunks.push_back({&message.chunk(), decoded.payload});
    return views;
  }
  if (message.pieces_size() == 0) return views;
  if (message.pieces_size() < static_cast<int>(kMinPieces)) return PiecesError(1);
  if (payload_bytes > kMaxChunkBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload has ", payload_bytes, " bytes, expecting at most ", kMaxChunkBytes));
  }
  size_t left = payload_bytes;
  size_t at = 0;
  Slices from = decoded.payload;
  std::vector<size_t> ends;
  for (int i = 0; i < message.pieces_size(); ++i) {
    KAON_ASSIGN_OR_RETURN(const size_t bytes, PieceBytes(message, i, left));
    TakeFront(bytes, &from, &at, &views.runs);
    ends.push_back(views.runs.size());
    left -= bytes;
  }
  if (left > 0) {
    return absl::InvalidArgumentError(absl::StrCat("payload has ", payload_bytes, " bytes, its ",
                                                   message.pieces_size(), " pieces have ",
                                                   payload_bytes - left));
  }
  // From here on the runs stay in place.
  for (int i = 0; i < message.pieces_size(); ++i) {
    const size_t begin = i == 0 ? 0 : ends[i - 1];
    views.chunks.push_back(
        {&message.pieces(i), absl::MakeConstSpan(views.runs).subspan(begin, ends[i] - begin)});
  }
  return views;
}

uint32_t Crc32c(Slices slices) {
  uint32_t crc = 0;
  for (const auto& slice : slices) crc = ExtendCrc32c(crc, slice.data(), slice.size());
  return crc;
}

absl::Status VerifyChecksum(const v1::TensorChunk& chunk, Slices payload) {
  const uint32_t crc = Crc32c(payload);
  if (crc == chunk.crc32c()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "parameter ", chunk.parameter_id(), " micro-batch ", chunk.micro_batch(), " elements from ",
      chunk.offset(), ": CRC32C of ", TotalBytes(payload), " bytes is ",
      absl::Hex(crc, absl::kZeroPad8), ", sent as ", absl::Hex(chunk.crc32c(), absl::kZeroPad8)));
}

}  // namespace kaon::proto
