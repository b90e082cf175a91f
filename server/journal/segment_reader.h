// Reads the frames of one segment file in order, one at a time, and says what lies where there is
// none. Owned by LogReader; one thread.
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

// `journal-` and 16 hexadecimal digits: the sequence number of the segment's first frame. Names
// sort as the numbers do.
std::string SegmentName(uint64_t first_sequence);
// Absent for any other name.
std::optional<uint64_t> ParseSegmentName(absl::string_view name);

class SegmentReader {
 public:
  enum class Kind {
    kFrame,
    // The file ends here, as it does after a whole frame.
    kEnd,
    // No frame, but what a write leaves of which not all sectors reached the disk.
    kUnwritten,
    // No frame, and no crash leaves this.
    kDamaged,
  };
  struct Found {
    Kind kind = Kind::kEnd;
    // Borrowed until the next call. The payload is empty when only the header was read.
    Frame frame;
    bool header_only = false;
    uint32_t header_crc = 0;
    // What is wrong, unless there is a frame or the end.
    absl::Status why;
  };

  // `file` outlives the reader; it has `size` bytes. Of gradients up to position `unused_gradients`
  // only headers are read.
  SegmentReader(disk::File& file, uint64_t size, uint64_t unused_gradients);

  // What lies at offset(), which moves on behind a frame and nowhere else. Errors: those of the
  // disk; FAILED_PRECONDITION for the frame of another version.
  absl::StatusOr<Found> Read();

  // Of the next frame.
  uint64_t offset() const { return offset_; }
  uint64_t size() const { return size_; }

  // The highest number that an intact header of `directory` at offset() or behind it says was
  // durable; 0 if there is none.
  absl::StatusOr<uint64_t> HighestDurable(uint64_t directory);

 private:
  // Reads bytes from .. to-1 of what lies at `offset`, behind those that are in the buffer already.
  absl::StatusOr<absl::string_view> Fill(uint64_t offset, uint64_t from, uint64_t to);

  disk::File& file_;
  const uint64_t size_;
  const uint64_t unused_gradients_;
  uint64_t offset_ = 0;
  // A frame starts at its first byte, so that values behind the header lie as floats do.
  std::vector<char> buffer_;
};

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_SEGMENT_READER_H_
