#include "server/journal/frame.h"

#include <algorithm>
#include <cstring>

#include "absl/base/config.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/crc32c.h"
#include "proto/status_macros.h"
#include "server/mutation/mutation.h"

namespace kaon::journal {

namespace {

#ifndef ABSL_IS_LITTLE_ENDIAN
#error "Gradient values are written as they lie in memory, and the format is little-endian."
#endif

// "KAJ" and a byte that is not text, so that no text file starts like a frame.
constexpr uint32_t kMagic = 0x914a414b;

// Offset of each field. Magic, version and CRC keep their places in every version.
enum Field : size_t {
  kMagicAt = 0,
  kVersionAt = 4,
  kTypeAt = 6,
  kDirectoryAt = 8,
  kSequenceAt = 16,
  kDurableSequenceAt = 24,
  kTimelineAt = 32,
  kPositionAt = 40,
  kGenerationAt = 48,
  kOffsetAt = 56,
  kParameterIdAt = 64,
  kPayloadBytesAt = 68,
  kZeroSectorsAt = 72,
  kPayloadCrcAt = 76,
  kChainAt = 80,
  kReservedAt = 84,
  kHeaderCrcAt = 124,
};

constexpr char kZeros[kSectorBytes] = {};

template <typename T>
void Put(Field at, T value, EncodedHeader& header) {
  std::memcpy(header.data() + at, &value, sizeof(value));
}

template <typename T>
T Get(Field at, absl::string_view header) {
  T value;
  std::memcpy(&value, header.data() + at, sizeof(value));
  return value;
}

bool IsZero(absl::string_view bytes) {
  // Most sectors are not zero, and their first bytes show it.
  return bytes.empty() ||
         (bytes[0] == 0 && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

// Counts zero sectors of a frame after the first, which holds the header. `payload` may be cut
// short; its missing part does not count.
uint32_t CountZeroSectors(absl::string_view payload) {
  constexpr size_t kInFirst = kSectorBytes - kFrameHeaderBytes;
  uint32_t count = 0;
  for (size_t at = kInFirst; at < payload.size(); at += kSectorBytes) {
    if (IsZero(payload.substr(at, kSectorBytes))) ++count;
  }
  return count;
}

absl::Status Damaged(absl::string_view what, uint64_t read, uint64_t expected) {
  return absl::DataLossError(absl::StrCat(what, " ", read, " read, expecting ", expected));
}

absl::Status CheckFields(const FrameHeader& header, absl::string_view bytes) {
  const auto type = static_cast<uint16_t>(header.type);
  if (type < static_cast<uint16_t>(FrameType::kSegmentStart) ||
      type > static_cast<uint16_t>(FrameType::kHistory)) {
    return absl::DataLossError(absl::StrCat("frame type ", type, " is unknown"));
  }
  const bool gradient = header.type == FrameType::kGradient;
  const uint32_t limit = gradient ? kMaxGradientBytes : kMaxMessageBytes;
  if (header.payload_bytes > limit) {
    return absl::DataLossError(
        absl::StrCat("payload of ", header.payload_bytes, " bytes, at most ", limit));
  }
  if (gradient && header.payload_bytes % sizeof(float) != 0) {
    return absl::DataLossError(
        absl::StrCat("payload of ", header.payload_bytes, " bytes is no number of float32"));
  }
  if (!IsZero(bytes.substr(kReservedAt, kHeaderCrcAt - kReservedAt))) {
    return absl::DataLossError("reserved bytes of the frame header are not zero");
  }
  return absl::OkStatus();
}

}  // namespace

EncodedHeader EncodeFrameHeader(const FrameHeader& header) {
  EncodedHeader bytes = {};
  Put(kMagicAt, kMagic, bytes);
  Put(kVersionAt, kJournalVersion, bytes);
  Put(kTypeAt, static_cast<uint16_t>(header.type), bytes);
  Put(kDirectoryAt, header.directory, bytes);
  Put(kSequenceAt, header.sequence, bytes);
  Put(kDurableSequenceAt, header.durable_sequence, bytes);
  Put(kTimelineAt, header.timeline, bytes);
  Put(kPositionAt, header.position, bytes);
  Put(kGenerationAt, header.generation, bytes);
  Put(kOffsetAt, header.offset, bytes);
  Put(kParameterIdAt, header.parameter_id, bytes);
  Put(kPayloadBytesAt, header.payload_bytes, bytes);
  Put(kZeroSectorsAt, header.zero_sectors, bytes);
  Put(kPayloadCrcAt, header.payload_crc, bytes);
  Put(kChainAt, header.chain, bytes);
  Put(kHeaderCrcAt, proto::Crc32c(bytes.data(), kHeaderCrcAt), bytes);
  return bytes;
}

absl::StatusOr<FrameHeader> DecodeFrameHeader(absl::string_view bytes) {
  if (bytes.size() < kFrameHeaderBytes) {
    return Damaged("frame header of bytes", bytes.size(), kFrameHeaderBytes);
  }
  if (const uint32_t magic = Get<uint32_t>(kMagicAt, bytes); magic != kMagic) {
    return Damaged("magic number", magic, kMagic);
  }
  const uint32_t crc = proto::Crc32c(bytes.data(), kHeaderCrcAt);
  if (crc != HeaderCrc(bytes)) return Damaged("header CRC", HeaderCrc(bytes), crc);
  if (const auto version = Get<uint16_t>(kVersionAt, bytes); version != kJournalVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("journal version ", version, " read, expecting ", kJournalVersion));
  }
  FrameHeader header;
  header.type = static_cast<FrameType>(Get<uint16_t>(kTypeAt, bytes));
  header.directory = Get<uint64_t>(kDirectoryAt, bytes);
  header.sequence = Get<uint64_t>(kSequenceAt, bytes);
  header.durable_sequence = Get<uint64_t>(kDurableSequenceAt, bytes);
  header.timeline = Get<uint64_t>(kTimelineAt, bytes);
  header.position = Get<uint64_t>(kPositionAt, bytes);
  header.generation = Get<uint64_t>(kGenerationAt, bytes);
  header.offset = Get<uint64_t>(kOffsetAt, bytes);
  header.parameter_id = Get<uint32_t>(kParameterIdAt, bytes);
  header.payload_bytes = Get<uint32_t>(kPayloadBytesAt, bytes);
  header.zero_sectors = Get<uint32_t>(kZeroSectorsAt, bytes);
  header.payload_crc = Get<uint32_t>(kPayloadCrcAt, bytes);
  header.chain = Get<uint32_t>(kChainAt, bytes);
  KAON_RETURN_IF_ERROR(CheckFields(header, bytes));
  return header;
}

uint32_t HeaderCrc(absl::string_view header) { return Get<uint32_t>(kHeaderCrcAt, header); }

void DescribePayload(absl::string_view payload, FrameHeader& header) {
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  header.payload_crc = proto::Crc32c(payload.data(), payload.size());
  header.zero_sectors = CountZeroSectors(payload);
}

absl::string_view FramePadding(uint32_t payload_bytes) {
  return {kZeros, FrameBytes(payload_bytes) - kFrameHeaderBytes - payload_bytes};
}

absl::StatusOr<Frame> DecodeFrame(absl::string_view bytes) {
  Frame frame;
  KAON_ASSIGN_OR_RETURN(frame.header, DecodeFrameHeader(bytes));
  const uint64_t expected_bytes = FrameBytes(frame.header.payload_bytes);
  if (bytes.size() != expected_bytes) {
    return Damaged("frame of bytes", bytes.size(), expected_bytes);
  }
  frame.payload = bytes.substr(kFrameHeaderBytes, frame.header.payload_bytes);
  if (Mutated(Mutation::kTornRecordTaken)) return frame;
  FrameHeader found;
  DescribePayload(frame.payload, found);
  if (found.payload_crc != frame.header.payload_crc) {
    return Damaged("payload CRC", found.payload_crc, frame.header.payload_crc);
  }
  if (found.zero_sectors != frame.header.zero_sectors) {
    return Damaged("zero sectors", found.zero_sectors, frame.header.zero_sectors);
  }
  if (!IsZero(bytes.substr(kFrameHeaderBytes + frame.header.payload_bytes))) {
    return absl::DataLossError("bytes that fill the frame up are not zero");
  }
  return frame;
}

bool MayBeUnwritten(absl::string_view bytes) {
  if (IsZero(bytes.substr(0, kSectorBytes)) || bytes.size() < kFrameHeaderBytes) return true;
  const absl::StatusOr<FrameHeader> header = DecodeFrameHeader(bytes);
  // The header is in one sector, and a sector is written whole.
  if (!header.ok()) return false;
  if (bytes.size() < FrameBytes(header->payload_bytes)) return true;
  const absl::string_view payload = bytes.substr(kFrameHeaderBytes, header->payload_bytes);
  return CountZeroSectors(payload) > header->zero_sectors;
}

}  // namespace kaon::journal
