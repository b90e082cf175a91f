// Reads a whole journal in order, checks that nothing that was durable is missing or changed, and
// says where it ends. Changes nothing. Owned by JournalLog::Open; one thread.
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

// One segment file that a journal has.
struct KeptSegment {
  uint64_t first_sequence = 1;
  // HeaderCrc of the frame before its first; 0 for the first of all.
  uint32_t chain = 0;
  // Once it is closed.
  uint64_t bytes = 0;
  // Newest position decided in it or before it.
  uint64_t decided = 0;
};

// Where the next frame goes.
struct LogEnd {
  // Name of the file, and the offset in it.
  std::string segment;
  uint64_t offset = 0;
  uint64_t next_sequence = 1;
  // HeaderCrc of the last frame.
  uint32_t chain = 0;

  // Entries read.
  uint64_t entries = 0;
  // Bytes of gradients that were not read.
  uint64_t unread_bytes = 0;
  // Oldest first; the last one is where the next frame goes.
  std::vector<KeptSegment> kept;
  // Bytes behind the end that hold nothing durable.
  uint64_t torn_bytes = 0;
  // Name of a segment that was being begun when a crash came, and holds nothing; empty if there is
  // none.
  std::string unfinished;
  // Names of segments before `start`, which a truncation did not get to.
  std::vector<std::string> removable;
};

class LogReader {
 public:
  using Visitor = std::function<absl::Status(const Entry& entry)>;

  // `directory_hash`, `start` and `mark` as its files say. Gradients up to position `snapshot` are
  // neither read nor visited: what they led to is in that snapshot. All references outlive the
  // reader.
  LogReader(disk::Directory& directory, uint64_t directory_hash, const JournalStart& start,
            const std::optional<DurableMark>& mark, uint64_t snapshot, const Visitor& visit);

  // Once. DATA_LOSS naming file, offset, sequence number and the step and position before when a
  // frame that was durable is missing, damaged or of another directory; FAILED_PRECONDITION naming
  // both versions; errors of `visit`.
  absl::StatusOr<LogEnd> Read();

 private:
  // False when the log ends in it.
  absl::StatusOr<bool> ReadSegment(size_t index);
  absl::Status TakeFrame(const std::string& path, uint64_t offset,
                         const SegmentReader::Found& found);
  // What makes an intact frame the wrong one here; empty if nothing does.
  std::string WhyNotNext(bool first_of_segment, const SegmentReader::Found& found) const;
  // OK if the log may end where `reader` stands: what is missing from there on was never durable.
  absl::Status EndIn(size_t index, const std::string& path, SegmentReader& reader,
                     const SegmentReader::Found& found);
  // What lies behind the end may be a segment that was just begun, and nothing else.
  absl::Status TakeUnfinished(size_t index);
  // The highest number that a frame of a later segment says was durable.
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
  // Of the newest entry that has one.
  uint64_t position_;
  // Of the state after the newest decision that was read; absent before one.
  std::optional<uint64_t> step_;
};

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_LOG_READER_H_
