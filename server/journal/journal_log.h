// The journal of one shard on disk: framed, checksummed, hash-chained records in segment files
// (docs/formats.md). It depends on its Directory alone, without thread or clock. So the simulator
// can run it on a disk that loses and tears what was not synced. Not thread-safe. DiskJournal or
// the simulator owns it.
#ifndef KAON_SERVER_JOURNAL_JOURNAL_LOG_H_
#define KAON_SERVER_JOURNAL_JOURNAL_LOG_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/disk/disk.h"
#include "server/journal/durable_mark.h"
#include "server/journal/frame.h"
#include "server/journal/history.h"
#include "server/journal/identity_file.h"
#include "server/journal/log_reader.h"
#include "server/journal/record.h"

namespace kaon::journal {

class JournalLog {
 public:
  struct Options {
    // A segment is closed once it holds this many bytes.
    uint64_t segment_bytes = uint64_t{256} << 20;
    // Identity of a directory that has no journal yet: random except in tests.
    DirectoryId id_if_created;
    // Position of the newest whole snapshot, 0 if there is none. It must cover what was truncated,
    // and the journal must reach it. Of gradients up to it, only headers are read. nullopt if the
    // reader needs no snapshot.
    std::optional<uint64_t> snapshot_position = 0;
    // Receives the records of decided entries at Open, including truncated ones; it must be empty
    // and must outlive the journal. The caller adds later records itself, perhaps before it appends
    // them. If null, no records of truncated entries are kept.
    History* history = nullptr;
  };

  // Called for each entry that Open reads back, in order of appends; the entry's memory is valid
  // during the call. A long gradient slice arrives in several pieces. An error ends the reading
  // with that error.
  using Visitor = LogReader::Visitor;

  // Results of Open.
  struct Found {
    uint64_t entries = 0;
    // Bytes of the segments, without those that were not read.
    uint64_t bytes = 0;
    // File, offset and length of an unsynced tail that a crash tore and that was cut off; empty if
    // none.
    std::string torn_tail;
    // Why the file `history` was not used, naming it; empty if it was. Then History has no records
    // up to the position of the last truncation.
    std::string history_problem;
  };

  // Reads everything in `directory` through `visit`, cuts off a torn tail, makes the rest durable,
  // and is ready to append. Creates a journal in a directory without one. `directory` must outlive
  // the result. After these errors nothing is changed:
  //   DATA_LOSS            a durable record is missing, damaged or of another directory, or neither
  //                        the journal nor the snapshot has it; names file, offset, sequence number
  //                        and position. A damaged file `history`, a copy, is no error: see Found
  //   FAILED_PRECONDITION  a journal of another version; names both
  static absl::StatusOr<std::unique_ptr<JournalLog>> Open(disk::Directory& directory,
                                                          const Options& options,
                                                          const Visitor& visit);

  // Writes an entry, without making it durable. After RESOURCE_EXHAUSTED nothing counts as
  // appended, and the caller may retry or append another entry. Any other error is permanent.
  // `described` is null or the result of DescribeGradient for the entry, a slice that one frame
  // holds.
  absl::Status Append(const Entry& entry, const FrameHeader* described = nullptr);
  // Makes everything appended durable. Any error is permanent.
  absl::Status Sync();

  // Removes segments whose entries all come before the decision of `position`. FAILED_PRECONDITION
  // names both positions if that decision is not in the journal. Its snapshot must be durable. A
  // file keeps the removed records that `history` still has. On RESOURCE_EXHAUSTED nothing is
  // removed; any other error is permanent.
  absl::Status Truncate(uint64_t position);

  const Found& found() const { return found_; }
  // Returns the newest position whose decision was appended; 0 if there is none.
  uint64_t decided_position() const { return kept_.back().decided; }
  // Returns the bytes appended so far, including removed ones.
  uint64_t appended_bytes() const { return removed_bytes_ + bytes(); }
  // Returns the bytes of the segments on disk.
  uint64_t bytes() const { return closed_bytes_ + tail_.offset; }

 private:
  // Place of the next frame.
  struct Tail {
    uint64_t offset = 0;
    uint64_t sequence = 1;
    uint32_t chain = 0;
  };
  // A segment that is being opened before the previous one is closed. It is kept while the disk is
  // full, and continued afterwards.
  struct Opening {
    std::unique_ptr<disk::File> file;
    EncodedHeader end_of_last = {};
    EncodedHeader start = {};
  };

  JournalLog(disk::Directory& directory, const Options& options, uint64_t directory_hash);

  // Cuts off what lies after `end`, and continues the journal there.
  absl::Status TakeUp(const LogEnd& end);
  // Keeps every error except RESOURCE_EXHAUSTED in broken_.
  absl::Status Remember(absl::Status status);
  absl::Status TryAppend(const Entry& entry, const FrameHeader* described);
  absl::Status WriteEntry(const Entry& entry, const FrameHeader* described, Tail& tail);
  // Removes durably what a failed write may have left after the tail. Overwriting would not do:
  // after a crash half of it could reappear in the middle of a sector.
  absl::Status CutFailedWrite();
  absl::Status Rotate();
  absl::Status StartOpening();
  // Handles the status of a sync. The state after a failed sync is unknown, whatever its code. So
  // the code of a full disk becomes DATA_LOSS, which nobody retries.
  absl::Status Synced(const absl::Status& status);
  absl::Status MarkDurable();

  disk::Directory& directory_;
  const Options options_;
  const uint64_t directory_hash_;
  Found found_;

  std::unique_ptr<disk::File> file_;
  std::optional<DurableMarkFile> mark_;
  Tail tail_;
  uint64_t durable_sequence_ = 0;
  // The last one is open.
  std::deque<KeptSegment> kept_;
  uint64_t closed_bytes_ = 0;
  uint64_t removed_bytes_ = 0;
  bool write_failed_ = false;
  std::optional<Opening> opening_;
  // Permanent error, which every later call returns.
  absl::Status broken_;
};

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_JOURNAL_LOG_H_
