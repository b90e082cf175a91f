// Converts journal entries to frame payloads and back. Pure functions; thread-safe.
#ifndef KAON_SERVER_JOURNAL_ENTRY_CODEC_H_
#define KAON_SERVER_JOURNAL_ENTRY_CODEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/journal/frame.h"
#include "server/journal/record.h"

namespace kaon::journal {

// Header and payload of one frame. The payload of a gradient is the caller's memory. Any other
// payload is in `message`, so that it stays valid when the object moves.
struct EncodedEntry {
  FrameHeader header;
  std::string message;
  absl::string_view values;

  absl::string_view payload() const {
    return header.type == FrameType::kGradient ? values : absl::string_view(message);
  }
};

// Encodes an entry; a gradient slice must fit into one frame. `described` is the result of
// DescribeGradient, or null to compute it here. INVALID_ARGUMENT names both sizes if the entry is
// too large.
absl::StatusOr<EncodedEntry> EncodeEntry(const Entry& entry,
                                         const FrameHeader* described = nullptr);

// Returns the fields of the frame's header that depend on the values alone.
FrameHeader DescribeGradient(const GradientSlice& slice);

// Decodes an entry. A gradient refers to `frame.payload`, which must be aligned for float.
// DATA_LOSS says what is wrong with a payload whose checksum is correct, or names a type of frame
// that holds no entry.
absl::StatusOr<Entry> DecodeEntry(const Frame& frame);

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_ENTRY_CODEC_H_
