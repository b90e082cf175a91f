// Reads a whole journal in order, checks that nothing durable is missing or changed, and finds its
// end. Changes nothing. Not thread-safe. JournalLog::Open owns it.
#ifndef KAON_SERVER_JOURNAL_LOG_READER_H_
#define KAON_SERVER_JOURNAL_LOG_READER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/disk/disk.h"
#include "server/journal/durable_mark.h"
#include "server/journal/journal_start.h"
#include "server/journal/record.h"
#include "server/journal/segment_reader.h"

namespace kaon::journal {

// One segment file of a journal.
struct KeptSegment {
  uint64_t first_sequence = 1;
  // HeaderCrc of the frame before its first; 0 for the first of all.
  uint32_t chain = 0;
  // Size once it is closed.
  uint64_t bytes = 0;
  // Newest position decided in it or before it.
  uint64_t decided = 0;
};

// Place of the next frame, and what the reader found.
struct LogEnd {
  // Name of the file, and the offset in it.
  std::string segment;
  uint64_t offset = 0;
  uint64_t next_sequence = 1;
  // HeaderCrc of the last frame.
  uint32_t chain = 0;

  // Number of entries read.
  uint64_t entries = 0;
  // Bytes of gradients that were not read.
  uint64_t unread_bytes = 0;
  // Oldest first; the next frame goes into the last one.
  std::vector<KeptSegment> kept;
  // Bytes after the end, none of them durable.
  uint64_t torn_bytes = 0;
  // Name of a segment that a crash left half created and that holds nothing; empty if none.
  std::string unfinished;
  // Names of segments before `start` that an interrupted truncation left.
  std::vector<std::string> removable;
};

class LogReader {
 public:
  using Visitor = std::function<absl::Status(const Entry& entry)>;

  // The arguments from `directory_hash` to `mark` are the contents of the directory's files.
  // Gradients up to position `snapshot` are neither read nor visited, because that snapshot
  // contains their effect. All references must outlive the reader.
  LogReader(disk::Directory& directory, uint64_t directory_hash, const JournalStart& start,
            const std::optional<DurableMark>& mark, uint64_t snapshot, const Visitor& visit);

  // Reads the journal; call it once. Returns the errors of `visit`, and:
  //   DATA_LOSS            a durable frame is missing, damaged or of another directory; names file,
  //                        offset, sequence number, and the step and position before it
  //   FAILED_PRECONDITION  another version; names both
  absl::StatusOr<LogEnd> Read();

 private:
  // Returns false if the log ends in this segment.
  absl::StatusOr<bool> ReadSegment(size_t index);
  absl::Status TakeFrame(const std::string& path, uint64_t offset,
                         const SegmentReader::Found& found);
  // Returns why an intact frame is not the expected one; empty if it is.
  std::string WhyNotNext(bool first_of_segment, const SegmentReader::Found& found) const;
  // Returns OK if the log may end at the place of `reader`: nothing missing after it was durable.
  absl::Status EndIn(size_t index, const std::string& path, SegmentReader& reader,
                     const SegmentReader::Found& found);
  // Accepts one segment after the end if it was just begun; reports anything else as damage.
  absl::Status TakeUnfinished(size_t index);
  // Returns the highest sequence number that a frame of a later segment calls durable.
  absl::StatusOr<uint64_t> HighestDurableFrom(size_t index) const;
  absl::Status Damage(const std::string& path, uint64_t offset, absl::string_view what) const;

  disk::Directory& directory_;
  const uint64_t directory_hash_;
  const JournalStart start_;
  const std::optional<DurableMark> mark_;
  const uint64_t snapshot_;
  const Visitor& visit_;

  std::vector<std::string> segments_;
  LogEnd end_;
  // Position of the newest entry that has one.
  uint64_t position_;
  // Step of the state after the newest decision read; nullopt before one.
  std::optional<uint64_t> step_;
};

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_LOG_READER_H_
