// How one record lies in a segment file: a header of fixed size, the payload, and zeros up to the
// next sector (docs/formats.md). Frames share no sector, so a write that a power cut tore leaves
// whole sectors of the frame unwritten, and never touches an older frame. Pure functions; any
// thread.
#ifndef KAON_SERVER_JOURNAL_FRAME_H_
#define KAON_SERVER_JOURNAL_FRAME_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kaon::journal {

inline constexpr uint16_t kJournalVersion = 1;
// What a disk writes whole or not at all.
inline constexpr size_t kSectorBytes = 512;
inline constexpr size_t kFrameHeaderBytes = 128;
// Longest payload of a frame with gradient values, and of any other.
inline constexpr uint32_t kMaxGradientBytes = uint32_t{1} << 20;
inline constexpr uint32_t kMaxMessageBytes = uint32_t{128} << 20;

enum class FrameType : uint16_t {
  // First of a segment.
  kSegmentStart = 1,
  // Last of a segment; the next one exists before it is written.
  kSegmentEnd = 2,
  kPromise = 3,
  kPrepare = 4,
  kDecision = 5,
  kGradient = 6,
  // Not in a segment: what the files `durable` and `start` hold, and what `history` begins with.
  kDurable = 7,
  kStart = 8,
  kHistory = 9,
};

// Zero where the type has none.
struct FrameHeader {
  FrameType type = FrameType::kSegmentStart;
  // DirectoryId::Hash() of the data_dir it belongs to.
  uint64_t directory = 0;
  // Frames of one journal count from 1, without gaps.
  uint64_t sequence = 0;
  // Highest sequence number known to be durable when this was written.
  uint64_t durable_sequence = 0;
  uint64_t timeline = 0;
  uint64_t position = 0;
  uint64_t generation = 0;
  // Of the first value, in elements.
  uint64_t offset = 0;
  uint32_t parameter_id = 0;
  uint32_t payload_bytes = 0;
  // Sectors of the frame that are zero because the payload is, and not because nothing was written.
  uint32_t zero_sectors = 0;
  // CRC32C of the payload.
  uint32_t payload_crc = 0;
  // HeaderCrc of the frame before; 0 for the first of a journal.
  uint32_t chain = 0;
};

using EncodedHeader = std::array<char, kFrameHeaderBytes>;

EncodedHeader EncodeFrameHeader(const FrameHeader& header);

// Total: any bytes give a header or a status that names what is wrong with them. DATA_LOSS for
// damage; FAILED_PRECONDITION naming both versions for the intact header of another version. Reads
// the first kFrameHeaderBytes of `bytes`.
absl::StatusOr<FrameHeader> DecodeFrameHeader(absl::string_view bytes);

// The CRC32C that an encoded header ends with; the next frame's `chain`.
uint32_t HeaderCrc(absl::string_view header);

// Sets what the header says of its payload.
void DescribePayload(absl::string_view payload, FrameHeader& header);

// Bytes of a frame in the file, a multiple of kSectorBytes.
constexpr uint64_t FrameBytes(uint32_t payload_bytes) {
  return (kFrameHeaderBytes + uint64_t{payload_bytes} + kSectorBytes - 1) / kSectorBytes *
         kSectorBytes;
}

// The zeros that fill a frame up.
absl::string_view FramePadding(uint32_t payload_bytes);

// A whole frame whose header, payload and padding agree. Borrows `payload`.
struct Frame {
  FrameHeader header;
  absl::string_view payload;
};

// Total, as DecodeFrameHeader. DATA_LOSS also when `bytes` are not exactly the frame's.
absl::StatusOr<Frame> DecodeFrame(absl::string_view bytes);

// Whether `bytes`, which start where a frame should, can be the trace of a write of which some
// sectors never reached the disk: its file ends before the frame does (`bytes` are all there is),
// or a whole sector that should not be is zero.
bool MayBeUnwritten(absl::string_view bytes);

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_FRAME_H_
