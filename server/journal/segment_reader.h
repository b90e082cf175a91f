// Reads the frames of one segment file in order, and classifies what lies where there is no frame.
// Not thread-safe. LogReader owns it.
#ifndef KAON_SERVER_JOURNAL_SEGMENT_READER_H_
#define KAON_SERVER_JOURNAL_SEGMENT_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/disk/disk.h"
#include "server/journal/frame.h"

namespace kaon::journal {

// Returns `journal-` and 16 hexadecimal digits: the sequence number of the segment's first frame.
// Names sort like the numbers.
std::string SegmentName(uint64_t first_sequence);
// Returns nullopt for any other name.
std::optional<uint64_t> ParseSegmentName(absl::string_view name);

class SegmentReader {
 public:
  enum class Kind {
    kFrame,
    // The file ends here, after a whole frame.
    kEnd,
    // No frame; a write whose sectors did not all reach the disk can leave this.
    kUnwritten,
    // No frame; no crash leaves this.
    kDamaged,
  };
  struct Found {
    Kind kind = Kind::kEnd;
    // Valid until the next call. The payload is empty if only the header was read.
    Frame frame;
    bool header_only = false;
    uint32_t header_crc = 0;
    // Describes the problem, for kUnwritten and kDamaged.
    absl::Status why;
  };

  // `file` has `size` bytes and must outlive the reader. Of gradients up to position
  // `unused_gradients` only headers are read.
  SegmentReader(disk::File& file, uint64_t size, uint64_t unused_gradients);

  // Reads what lies at offset(), and advances past a frame only. Returns the errors of the disk,
  // and FAILED_PRECONDITION for a frame of another version.
  absl::StatusOr<Found> Read();

  // Returns the offset of the next frame.
  uint64_t offset() const { return offset_; }
  uint64_t size() const { return size_; }

  // Returns the highest sequence number that an intact header of `directory`, at offset() or after
  // it, calls durable; 0 if there is none.
  absl::StatusOr<uint64_t> HighestDurable(uint64_t directory);

 private:
  // Reads bytes [from, to) of what lies at `offset` into the buffer, which already holds the bytes
  // before them.
  absl::StatusOr<absl::string_view> Fill(uint64_t offset, uint64_t from, uint64_t to);

  disk::File& file_;
  const uint64_t size_;
  const uint64_t unused_gradients_;
  uint64_t offset_ = 0;
  // A frame starts at the first byte, so that the values after the header are aligned for float.
  std::vector<char> buffer_;
};

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_SEGMENT_READER_H_
