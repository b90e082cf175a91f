#include "server/journal/journal_log.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/disk/device_error.h"
#include "server/journal/entry_codec.h"
#include "server/journal/history_file.h"
#include "server/journal/journal_start.h"
#include "server/mutation/mutation.h"

namespace kaon::journal {

namespace {

absl::string_view Bytes(const EncodedHeader& header) { return {header.data(), header.size()}; }

absl::Status WriteFrame(disk::File& file, uint64_t offset, const EncodedHeader& header,
                        absl::string_view payload) {
  const auto payload_bytes = static_cast<uint32_t>(payload.size());
  return file.Write(offset, {Bytes(header), payload, FramePadding(payload_bytes)});
}

EncodedHeader FirstFrame(uint64_t directory_hash) {
  FrameHeader header;
  header.type = FrameType::kSegmentStart;
  header.directory = directory_hash;
  header.sequence = 1;
  return EncodeFrameHeader(header);
}

// Without an identity, nothing was ever durable except, perhaps, the first frame of the first
// segment.
absl::Status CheckNothingIsLost(disk::Directory& directory, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (name != kDurableMarkFile && name != kStartFile && name != kHistoryFile &&
        !ParseSegmentName(name).has_value()) {
      continue;
    }
    KAON_ASSIGN_OR_RETURN(const std::unique_ptr<disk::File> file, directory.Open(name));
    KAON_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
    if (name == SegmentName(1) && size <= kSectorBytes) continue;
    return absl::DataLossError(absl::StrCat("journal ", file->path(), " of ", size,
                                            " bytes is there, but ", directory.path(), "/",
                                            kIdentityFile, " is missing"));
  }
  return absl::OkStatus();
}

absl::Status CreateJournal(disk::Directory& directory, const DirectoryId& id) {
  PassFailpoint(Failpoint::journal_create_begin);
  KAON_ASSIGN_OR_RETURN(const std::vector<std::string> names, directory.List());
  KAON_RETURN_IF_ERROR(CheckNothingIsLost(directory, names));
  if (std::find(names.begin(), names.end(), SegmentName(1)) != names.end()) {
    KAON_RETURN_IF_ERROR(directory.Remove(SegmentName(1)));
  }
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<disk::File> file, directory.Create(SegmentName(1)));
  KAON_RETURN_IF_ERROR(WriteFrame(*file, 0, FirstFrame(id.Hash()), ""));
  KAON_RETURN_IF_ERROR(file->Sync());
  KAON_RETURN_IF_ERROR(directory.Sync());
  // Last, because an identity means that there is a journal.
  return WriteIdentity(directory, id);
}

}  // namespace

JournalLog::JournalLog(disk::Directory& directory, const Options& options, uint64_t directory_hash)
    : directory_(directory), options_(options), directory_hash_(directory_hash) {}

absl::StatusOr<std::unique_ptr<JournalLog>> JournalLog::Open(disk::Directory& directory,
                                                             const Options& options,
                                                             const Visitor& visit) {
  PassFailpoint(Failpoint::journal_open_begin);
  KAON_ASSIGN_OR_RETURN(std::optional<DirectoryId> id, ReadIdentity(directory));
  if (!id.has_value()) {
    id = options.id_if_created;
    KAON_RETURN_IF_ERROR(CreateJournal(directory, *id));
  }
  KAON_ASSIGN_OR_RETURN(const std::optional<DurableMark> mark,
                        DurableMarkFile::Read(directory, id->Hash()));
  KAON_ASSIGN_OR_RETURN(const JournalStart start, ReadStart(directory, id->Hash()));
  const uint64_t snapshot = options.snapshot_position.value_or(start.position);
  if (snapshot < start.position) {
    return absl::DataLossError(absl::StrCat(
        directory.path(), "/", kStartFile, " says that the journal was removed up to position ",
        start.position, ", the newest whole snapshot is of position ", snapshot));
  }
  const absl::StatusOr<uint64_t> read = ReadHistory(directory, id->Hash(), start, options.history);
  // Without this file the journal still works: it is a copy of records that other shards have too,
  // and no state depends on it. Records before the truncation that the journal still has are not
  // used, because a later rollback may have removed them.
  // An error of the device is not damage of this file (reliability.md P18).
  const bool is_damaged = absl::IsDataLoss(read.status()) && !disk::IsDeviceError(read.status());
  if (!read.ok() && !is_damaged) return read.status();
  const uint64_t newest = is_damaged ? start.position : *read;
  const Visitor keep = [&](const Entry& entry) {
    const auto* decision = std::get_if<DecisionRecord>(&entry);
    // Older records were in the file already, or were rolled back since.
    if (decision != nullptr && decision->record.plan().position() > newest && options.history) {
      options.history->Add(decision->record);
    }
    return visit(entry);
  };
  LogReader reader(directory, id->Hash(), start, mark, options.snapshot_position.value_or(0), keep);
  KAON_ASSIGN_OR_RETURN(const LogEnd end, reader.Read());
  PassFailpoint(Failpoint::journal_read_back);
  if (end.kept.back().decided < snapshot) {
    return absl::DataLossError(absl::StrCat(
        "journal ", directory.path(), " ends with the decision of position ",
        end.kept.back().decided, ", the newest whole snapshot is of position ", snapshot));
  }
  std::unique_ptr<JournalLog> log(new JournalLog(directory, options, id->Hash()));
  KAON_RETURN_IF_ERROR(log->TakeUp(end));
  if (is_damaged) log->found_.history_problem = std::string(read.status().message());
  PassFailpoint(Failpoint::journal_opened);
  return log;
}

absl::Status JournalLog::TakeUp(const LogEnd& end) {
  if (!end.unfinished.empty()) KAON_RETURN_IF_ERROR(directory_.Remove(end.unfinished));
  for (const std::string& name : end.removable) KAON_RETURN_IF_ERROR(directory_.Remove(name));
  KAON_ASSIGN_OR_RETURN(file_, directory_.Open(end.segment));
  if (end.torn_bytes > 0) {
    found_.torn_tail =
        absl::StrCat(file_->path(), " from offset ", end.offset, ": ", end.torn_bytes, " bytes");
    KAON_RETURN_IF_ERROR(file_->Truncate(end.offset));
  }
  // Entries that were read back may not be on disk yet, and count as durable from now on.
  KAON_RETURN_IF_ERROR(file_->Sync());
  KAON_RETURN_IF_ERROR(directory_.Sync());
  tail_ = {end.offset, end.next_sequence, end.chain};
  durable_sequence_ = end.next_sequence - 1;
  kept_.assign(end.kept.begin(), end.kept.end());
  for (const KeptSegment& segment : kept_) closed_bytes_ += segment.bytes;
  found_.entries = end.entries;
  found_.bytes = bytes() - end.unread_bytes;
  return MarkDurable();
}

absl::Status JournalLog::Remember(absl::Status status) {
  if (!status.ok() && status.code() != absl::StatusCode::kResourceExhausted) broken_ = status;
  return status;
}

absl::Status JournalLog::Append(const Entry& entry, const FrameHeader* described) {
  KAON_RETURN_IF_ERROR(broken_);
  const absl::Status status = TryAppend(entry, described);
  if (absl::IsResourceExhausted(status) && Mutated(Mutation::kFullDiskAcknowledged)) {
    return absl::OkStatus();
  }
  return Remember(status);
}

absl::Status JournalLog::TryAppend(const Entry& entry, const FrameHeader* described) {
  if (write_failed_) KAON_RETURN_IF_ERROR(CutFailedWrite());
  if (tail_.offset >= options_.segment_bytes) KAON_RETURN_IF_ERROR(Rotate());
  Tail tail = tail_;
  const auto* slice = std::get_if<GradientSlice>(&entry);
  std::shared_ptr<const void> hold;
  if (slice != nullptr && slice->pin) {
    KAON_ASSIGN_OR_RETURN(hold, slice->pin());
  }
  write_failed_ = true;
  PassFailpoint(Failpoint::journal_append_begin);
  if (slice == nullptr || described != nullptr) {
    KAON_RETURN_IF_ERROR(WriteEntry(entry, described, tail));
  } else {
    constexpr size_t kValues = kMaxGradientBytes / sizeof(float);
    size_t at = 0;
    do {
      GradientSlice piece = *slice;
      piece.offset += at;
      piece.values = slice->values.subspan(at, kValues);
      KAON_RETURN_IF_ERROR(WriteEntry(piece, nullptr, tail));
      at += piece.values.size();
    } while (at < slice->values.size());
  }
  PassFailpoint(Failpoint::journal_append_end);
  write_failed_ = false;
  tail_ = tail;
  if (const auto* decision = std::get_if<DecisionRecord>(&entry)) {
    kept_.back().decided = decision->record.plan().position();
  }
  return absl::OkStatus();
}

absl::Status JournalLog::WriteEntry(const Entry& entry, const FrameHeader* described, Tail& tail) {
  KAON_ASSIGN_OR_RETURN(EncodedEntry encoded, EncodeEntry(entry, described));
  encoded.header.directory = directory_hash_;
  encoded.header.sequence = tail.sequence;
  encoded.header.durable_sequence = durable_sequence_;
  encoded.header.chain = tail.chain;
  const EncodedHeader header = EncodeFrameHeader(encoded.header);
  KAON_RETURN_IF_ERROR(WriteFrame(*file_, tail.offset, header, encoded.payload()));
  tail.offset += FrameBytes(encoded.header.payload_bytes);
  ++tail.sequence;
  tail.chain = HeaderCrc(Bytes(header));
  return absl::OkStatus();
}

absl::Status JournalLog::CutFailedWrite() {
  KAON_RETURN_IF_ERROR(file_->Truncate(tail_.offset));
  KAON_RETURN_IF_ERROR(Synced(file_->Sync()));
  write_failed_ = false;
  return absl::OkStatus();
}

// Each stage is durable before the next, so that after a crash at any point the reader knows the
// state. A closed segment has a successor with its first frame. A segment after one that is not
// closed was never used.
absl::Status JournalLog::Rotate() {
  PassFailpoint(Failpoint::journal_rotate_begin);
  if (!opening_.has_value()) KAON_RETURN_IF_ERROR(StartOpening());
  PassFailpoint(Failpoint::journal_rotate_created);
  KAON_RETURN_IF_ERROR(WriteFrame(*opening_->file, 0, opening_->start, ""));
  KAON_RETURN_IF_ERROR(Synced(opening_->file->Sync()));
  if (!Mutated(Mutation::kNamesUnsynced)) KAON_RETURN_IF_ERROR(Synced(directory_.Sync()));
  PassFailpoint(Failpoint::journal_rotate_named);
  write_failed_ = true;
  KAON_RETURN_IF_ERROR(WriteFrame(*file_, tail_.offset, opening_->end_of_last, ""));
  write_failed_ = false;
  KAON_RETURN_IF_ERROR(Synced(file_->Sync()));
  PassFailpoint(Failpoint::journal_rotate_closed);
  kept_.back().bytes = tail_.offset + kSectorBytes;
  closed_bytes_ += kept_.back().bytes;
  kept_.push_back(
      {tail_.sequence + 1, HeaderCrc(Bytes(opening_->end_of_last)), 0, kept_.back().decided});
  file_ = std::move(opening_->file);
  tail_ = {kSectorBytes, tail_.sequence + 2, HeaderCrc(Bytes(opening_->start))};
  durable_sequence_ = tail_.sequence - 1;
  opening_.reset();
  return MarkDurable();
}

absl::Status JournalLog::StartOpening() {
  KAON_RETURN_IF_ERROR(Sync());
  Opening opening;
  FrameHeader header;
  header.directory = directory_hash_;
  header.durable_sequence = durable_sequence_;
  header.type = FrameType::kSegmentEnd;
  header.sequence = tail_.sequence;
  header.chain = tail_.chain;
  opening.end_of_last = EncodeFrameHeader(header);
  header.type = FrameType::kSegmentStart;
  header.sequence = tail_.sequence + 1;
  header.chain = HeaderCrc(Bytes(opening.end_of_last));
  opening.start = EncodeFrameHeader(header);
  KAON_ASSIGN_OR_RETURN(opening.file, directory_.Create(SegmentName(header.sequence)));
  opening_ = std::move(opening);
  return absl::OkStatus();
}

absl::Status JournalLog::Sync() {
  KAON_RETURN_IF_ERROR(broken_);
  if (durable_sequence_ + 1 == tail_.sequence) return absl::OkStatus();
  if (!Mutated(Mutation::kSyncLeftOut)) KAON_RETURN_IF_ERROR(Synced(file_->Sync()));
  PassFailpoint(Failpoint::journal_synced);
  durable_sequence_ = tail_.sequence - 1;
  return Remember(MarkDurable());
}

// First makes the files that replace the removed segments durable. Then removes segments from the
// oldest on. So after a crash at any point the reader knows which ones may be missing.
absl::Status JournalLog::Truncate(uint64_t position) {
  KAON_RETURN_IF_ERROR(broken_);
  if (position > decided_position()) {
    return absl::FailedPreconditionError(
        absl::StrCat("journal ", directory_.path(), " was to be truncated up to position ",
                     position, ", the newest decision in it is of ", decided_position()));
  }
  KAON_RETURN_IF_ERROR(Sync());
  const auto first = std::find_if(kept_.begin(), kept_.end(), [position](const auto& segment) {
    return segment.decided >= position;
  });
  if (first == kept_.begin()) return absl::OkStatus();
  const bool history = options_.history != nullptr;
  const JournalStart start = {first->first_sequence, first->chain, position, history};
  PassFailpoint(Failpoint::journal_truncate_begin);
  if (history) {
    KAON_RETURN_IF_ERROR(
        Remember(WriteHistory(directory_, directory_hash_, position, *options_.history)));
  }
  KAON_RETURN_IF_ERROR(Remember(WriteStart(directory_, directory_hash_, start)));
  PassFailpoint(Failpoint::journal_start_durable);
  while (kept_.front().first_sequence != start.sequence) {
    KAON_RETURN_IF_ERROR(Synced(directory_.Remove(SegmentName(kept_.front().first_sequence))));
    closed_bytes_ -= kept_.front().bytes;
    removed_bytes_ += kept_.front().bytes;
    kept_.pop_front();
    PassFailpoint(Failpoint::journal_segment_removed);
  }
  KAON_RETURN_IF_ERROR(Synced(directory_.Sync()));
  PassFailpoint(Failpoint::journal_truncated);
  return absl::OkStatus();
}

absl::Status JournalLog::Synced(const absl::Status& status) {
  if (!status.ok()) broken_ = absl::DataLossError(status.message());
  return broken_;
}

absl::Status JournalLog::MarkDurable() {
  absl::Status status;
  if (!mark_.has_value()) {
    absl::StatusOr<DurableMarkFile> mark = DurableMarkFile::Open(directory_, directory_hash_);
    status = mark.status();
    if (mark.ok()) mark_.emplace(std::move(*mark));
  }
  PassFailpoint(Failpoint::journal_mark_begin);
  if (status.ok()) status = mark_->Write({durable_sequence_, tail_.chain});
  PassFailpoint(Failpoint::journal_mark_end);
  // An old mark is still true if the disk is full.
  return status.code() == absl::StatusCode::kResourceExhausted ? absl::OkStatus() : status;
}

}  // namespace kaon::journal
