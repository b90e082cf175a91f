// Entries of the journal as the payloads of frames and back. Pure; any thread.
#ifndef KAON_SERVER_JOURNAL_ENTRY_CODEC_H_
#define KAON_SERVER_JOURNAL_ENTRY_CODEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/journal/frame.h"
#include "server/journal/record.h"

namespace kaon::journal {

// The payload of one frame, and what its header says of it. Of a gradient the payload is the
// caller's values; of all else it is in `message`, so that an object that moves keeps it.
struct EncodedEntry {
  FrameHeader header;
  std::string message;
  absl::string_view values;

  absl::string_view payload() const {
    return header.type == FrameType::kGradient ? values : absl::string_view(message);
  }
};

// A gradient slice must fit into one frame. INVALID_ARGUMENT naming both sizes when the entry is
// too large. `described` is what DescribeGradient said of it; null: it is summed up here.
absl::StatusOr<EncodedEntry> EncodeEntry(const Entry& entry,
                                         const FrameHeader* described = nullptr);

// What the header of its frame says of the values alone.
FrameHeader DescribeGradient(const GradientSlice& slice);

// What a gradient borrows is `frame.payload`, which must lie as floats do. DATA_LOSS naming what is
// wrong with a payload of correct checksum, and for types of frame that hold no entry.
absl::StatusOr<Entry> DecodeEntry(const Frame& frame);

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_ENTRY_CODEC_H_
