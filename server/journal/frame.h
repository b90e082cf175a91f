// Layout of one record in a segment file: a header of fixed size, the payload, and zeros up to the
// next sector (docs/formats.md). Frames share no sector. So a write torn by a power cut leaves
// whole sectors of its frame unwritten, and never touches an older frame. Pure functions;
// thread-safe.
#ifndef KAON_SERVER_JOURNAL_FRAME_H_
#define KAON_SERVER_JOURNAL_FRAME_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kaon::journal {

inline constexpr uint16_t kJournalVersion = 1;
// Unit that a disk writes whole or not at all.
inline constexpr size_t kSectorBytes = 512;
inline constexpr size_t kFrameHeaderBytes = 128;
// Maximum payload of a frame with gradient values, and of any other frame.
inline constexpr uint32_t kMaxGradientBytes = uint32_t{1} << 20;
inline constexpr uint32_t kMaxMessageBytes = uint32_t{128} << 20;

enum class FrameType : uint16_t {
  // First frame of a segment.
  kSegmentStart = 1,
  // Last frame of a segment; it is written after the next segment exists.
  kSegmentEnd = 2,
  kPromise = 3,
  kPrepare = 4,
  kDecision = 5,
  kGradient = 6,
  // Not in a segment: contents of the files `durable` and `start`, and the first frame of
  // `history`.
  kDurable = 7,
  kStart = 8,
  kHistory = 9,
};

// A field that the type does not have is zero.
struct FrameHeader {
  FrameType type = FrameType::kSegmentStart;
  // DirectoryId::Hash() of the frame's data_dir.
  uint64_t directory = 0;
  // Frames of one journal count from 1, without gaps.
  uint64_t sequence = 0;
  // Highest sequence number that was known to be durable at the time of writing.
  uint64_t durable_sequence = 0;
  uint64_t timeline = 0;
  uint64_t position = 0;
  uint64_t generation = 0;
  // Offset of the first value, in elements.
  uint64_t offset = 0;
  uint32_t parameter_id = 0;
  uint32_t payload_bytes = 0;
  // Number of the frame's sectors that are zero because the payload is zero there. Other zero
  // sectors were not written.
  uint32_t zero_sectors = 0;
  // CRC32C of the payload.
  uint32_t payload_crc = 0;
  // HeaderCrc of the previous frame; 0 for the first of a journal.
  uint32_t chain = 0;
};

using EncodedHeader = std::array<char, kFrameHeaderBytes>;

EncodedHeader EncodeFrameHeader(const FrameHeader& header);

// Decodes the first kFrameHeaderBytes of `bytes`. Any bytes give a header or an error. DATA_LOSS
// names the damage; FAILED_PRECONDITION names both versions for an intact header of another
// version.
absl::StatusOr<FrameHeader> DecodeFrameHeader(absl::string_view bytes);

// Returns the CRC32C at the end of an encoded header; it is the next frame's `chain`.
uint32_t HeaderCrc(absl::string_view header);

// Sets the header's fields that describe the payload.
void DescribePayload(absl::string_view payload, FrameHeader& header);

// Returns the size of a frame in the file, a multiple of kSectorBytes.
constexpr uint64_t FrameBytes(uint32_t payload_bytes) {
  return (kFrameHeaderBytes + uint64_t{payload_bytes} + kSectorBytes - 1) / kSectorBytes *
         kSectorBytes;
}

// Returns the zeros after the payload of a frame.
absl::string_view FramePadding(uint32_t payload_bytes);

// A whole frame whose header, payload and padding agree. `payload` refers to the decoded bytes.
struct Frame {
  FrameHeader header;
  absl::string_view payload;
};

// Decodes a frame with the errors of DecodeFrameHeader. DATA_LOSS also if `bytes` are not exactly
// one frame.
absl::StatusOr<Frame> DecodeFrame(absl::string_view bytes);

// Returns whether `bytes` can come from a write whose sectors did not all reach the disk. `bytes`
// reach from the place of a frame to the end of the file. Either the file ends before the frame
// does, or a whole sector is zero that should not be.
bool MayBeUnwritten(absl::string_view bytes);

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_FRAME_H_
