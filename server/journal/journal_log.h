// The journal of one shard on disk: framed, checksummed, hash-chained records in segment files
// (docs/formats.md). Pure but for its Directory: no thread, no clock, so that the simulator runs
// it on a disk that loses and tears what was not synced. Owned by DiskJournal or by the simulator;
// one thread at a time.
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
    // A segment is closed once it holds as much.
    uint64_t segment_bytes = uint64_t{256} << 20;
    // What a directory without a journal is to be known by: random but in tests.
    DirectoryId id_if_created;
    // Of the newest whole snapshot, 0 if there is none: it must stand for what was truncated, and
    // the journal must reach it; of gradients up to it, only headers are read. Absent: whoever
    // reads does not need one.
    std::optional<uint64_t> snapshot_position = 0;
    // Empty; given the records of decided entries at Open, of those that were truncated too. Those
    // that are appended are the caller's to add, perhaps before that, and it outlives the journal.
    // Null: nobody asks for them, and none that are truncated are kept.
    History* history = nullptr;
  };

  // Takes one entry that was read back, in the order of appends; what it borrows is valid during
  // the call. A long gradient slice comes back in several. An error ends the reading with that
  // error.
  using Visitor = LogReader::Visitor;

  // What was found at Open.
  struct Found {
    uint64_t entries = 0;
    // Without what was not read.
    uint64_t bytes = 0;
    // Names file, offset and length of an unsynced tail that a crash tore and that was cut off;
    // empty if none.
    std::string torn_tail;
    // Why the file `history` was not used, naming it; empty if all is well. Records up to the
    // position of the last truncation are not shown then.
    std::string history_problem;
  };

  // Reads everything in `directory` through `visit`, cuts a torn tail off, makes the rest durable
  // and is ready to append. A directory without a journal gets one. DATA_LOSS naming file, offset,
  // sequence number and position when a record that was durable is missing, damaged or of another
  // directory (of the file `history`, a copy, see Found), or when neither the journal nor the
  // snapshot has it; FAILED_PRECONDITION naming both versions for a journal of another version.
  // Nothing is changed then. `directory` outlives the result.
  static absl::StatusOr<std::unique_ptr<JournalLog>> Open(disk::Directory& directory,
                                                          const Options& options,
                                                          const Visitor& visit);

  // Written, not yet durable. On RESOURCE_EXHAUSTED nothing counts as appended and the call may be
  // repeated, or made for another entry; any other error is for good. `described` is null or what
  // DescribeGradient said of the entry, a slice that one frame holds.
  absl::Status Append(const Entry& entry, const FrameHeader* described = nullptr);
  // Everything appended is durable when it returns OK; any error is for good.
  absl::Status Sync();

  // Removes segments all of whose entries come before the decision of `position`, which is in the
  // journal and whose snapshot is durable: FAILED_PRECONDITION naming both positions when it is
  // not. The records that go are kept in a file, as far back as the history has them. On
  // RESOURCE_EXHAUSTED nothing is removed; any other error is for good.
  absl::Status Truncate(uint64_t position);

  const Found& found() const { return found_; }
  // Newest position whose decision was appended; 0 if there is none.
  uint64_t decided_position() const { return kept_.back().decided; }
  // Grows with every append, whatever is removed.
  uint64_t appended_bytes() const { return removed_bytes_ + bytes(); }
  // Of the segments on disk.
  uint64_t bytes() const { return closed_bytes_ + tail_.offset; }

 private:
  // Where the next frame goes.
  struct Tail {
    uint64_t offset = 0;
    uint64_t sequence = 1;
    uint32_t chain = 0;
  };
  // A segment that is being opened while the one before is not closed yet. Kept when the disk is
  // full, and gone on with once it is not.
  struct Opening {
    std::unique_ptr<disk::File> file;
    EncodedHeader end_of_last = {};
    EncodedHeader start = {};
  };

  JournalLog(disk::Directory& directory, const Options& options, uint64_t directory_hash);

  // Cuts off what `end` leaves out, and takes the journal up there.
  absl::Status TakeUp(const LogEnd& end);
  // Errors but RESOURCE_EXHAUSTED are remembered.
  absl::Status Remember(absl::Status status);
  absl::Status TryAppend(const Entry& entry, const FrameHeader* described);
  absl::Status WriteEntry(const Entry& entry, const FrameHeader* described, Tail& tail);
  // Cuts off what a failed write may have left behind the tail, for good: written over, half of it
  // could come back in a crash, in the middle of a sector.
  absl::Status CutFailedWrite();
  absl::Status Rotate();
  absl::Status StartOpening();
  // For the status of a sync: what a failed one leaves on disk is unknown, whatever its code, so
  // that of a full disk must not make anybody try again.
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
  // Why nothing can be done any more.
  absl::Status broken_;
};

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_JOURNAL_LOG_H_
