#include "server/journal/history_file.h"

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/status_macros.h"
#include "server/disk/remove_if_there.h"
#include "server/journal/entry_codec.h"
#include "server/journal/frame.h"
#include "server/journal/segment_reader.h"

namespace kaon::journal {

namespace {

constexpr char kTemporaryFile[] = "history.tmp";
// Size of one write to the disk.
constexpr size_t kStrideBytes = size_t{1} << 20;

// Writes the frames of one file, numbered from 1 and chained.
class FrameWriter {
 public:
  FrameWriter(disk::File& file, uint64_t directory_hash)
      : file_(file), directory_hash_(directory_hash) {}

  absl::Status Add(FrameHeader header, absl::string_view payload) {
    header.directory = directory_hash_;
    header.sequence = ++sequence_;
    header.chain = chain_;
    const EncodedHeader encoded = EncodeFrameHeader(header);
    const absl::string_view bytes(encoded.data(), encoded.size());
    chain_ = HeaderCrc(bytes);
    absl::StrAppend(&buffer_, bytes, payload, FramePadding(header.payload_bytes));
    return buffer_.size() < kStrideBytes ? absl::OkStatus() : Flush();
  }
  absl::Status Flush() {
    KAON_RETURN_IF_ERROR(file_.Write(offset_, {buffer_}));
    offset_ += buffer_.size();
    buffer_.clear();
    return absl::OkStatus();
  }

 private:
  disk::File& file_;
  const uint64_t directory_hash_;
  uint64_t sequence_ = 0;
  uint32_t chain_ = 0;
  uint64_t offset_ = 0;
  std::string buffer_;
};

absl::Status WriteTemporary(disk::Directory& directory, uint64_t directory_hash, uint64_t position,
                            std::vector<v1::StepRecord> records) {
  // A crash may have left it.
  KAON_RETURN_IF_ERROR(disk::RemoveIfThere(directory, kTemporaryFile));
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<disk::File> file, directory.Create(kTemporaryFile));
  FrameWriter writer(*file, directory_hash);
  FrameHeader first;
  first.type = FrameType::kHistory;
  first.position = position;
  first.durable_sequence = 1 + records.size();
  KAON_RETURN_IF_ERROR(writer.Add(first, ""));
  for (v1::StepRecord& record : records) {
    KAON_ASSIGN_OR_RETURN(const EncodedEntry encoded,
                          EncodeEntry(DecisionRecord{std::move(record)}));
    KAON_RETURN_IF_ERROR(writer.Add(encoded.header, encoded.payload()));
  }
  KAON_RETURN_IF_ERROR(writer.Flush());
  return file->Sync();
}

// Reads the file once, from its first frame on.
class HistoryReader {
 public:
  HistoryReader(disk::File& file, uint64_t size, uint64_t directory_hash)
      : path_(file.path()), reader_(file, size, 0), directory_hash_(directory_hash) {}

  // Returns the position up to which the file holds the records.
  absl::StatusOr<uint64_t> ReadFirst() {
    KAON_ASSIGN_OR_RETURN(const Frame frame, ReadFrame(FrameType::kHistory));
    last_ = frame.header.durable_sequence;
    position_ = frame.header.position;
    return position_;
  }
  // Returns the position of the newest record.
  absl::StatusOr<uint64_t> ReadRecords(History* history) {
    uint64_t newest = 0;
    std::vector<v1::StepRecord> records;
    while (sequence_ < last_) {
      KAON_ASSIGN_OR_RETURN(const Frame frame, ReadFrame(FrameType::kDecision));
      absl::StatusOr<Entry> entry = DecodeEntry(frame);
      if (!entry.ok()) return Damage(entry.status().message());
      v1::StepRecord& record = std::get<DecisionRecord>(*entry).record;
      const uint64_t position = record.plan().position();
      if (position <= newest || position > position_) {
        return Damage(absl::StrCat("the record of position ", position, " follows that of ", newest,
                                   ", all are up to ", position_));
      }
      newest = position;
      if (history != nullptr) records.push_back(std::move(record));
    }
    offset_ = reader_.offset();
    if (offset_ != reader_.size()) {
      return Damage(
          absl::StrCat(reader_.size() - offset_, " bytes behind the last of ", last_, " frames"));
    }
    for (v1::StepRecord& record : records) history->Add(std::move(record));
    return newest;
  }
  // Names the frame that was read last.
  absl::Status Damage(absl::string_view what) const {
    return absl::DataLossError(absl::StrCat(path_, " at offset ", offset_, ": ", what));
  }

 private:
  absl::StatusOr<Frame> ReadFrame(FrameType type) {
    ++sequence_;
    offset_ = reader_.offset();
    KAON_ASSIGN_OR_RETURN(const SegmentReader::Found found, reader_.Read());
    if (found.kind == SegmentReader::Kind::kEnd) {
      return Damage(absl::StrCat("frame ", sequence_, " is missing"));
    }
    if (found.kind != SegmentReader::Kind::kFrame) return Damage(found.why.message());
    const FrameHeader& header = found.frame.header;
    if (header.type != type || header.directory != directory_hash_ ||
        header.sequence != sequence_ || header.chain != chain_) {
      return Damage(absl::StrCat("frame ", header.sequence, " of directory ",
                                 absl::Hex(header.directory), ", type ",
                                 static_cast<uint16_t>(header.type), " and chain ", header.chain,
                                 ", expecting ", sequence_, ", ", absl::Hex(directory_hash_), ", ",
                                 static_cast<uint16_t>(type), " and ", chain_));
    }
    chain_ = found.header_crc;
    return found.frame;
  }

  const std::string path_;
  SegmentReader reader_;
  const uint64_t directory_hash_;
  // Of the last frame read: offset, sequence number, HeaderCrc.
  uint64_t offset_ = 0;
  uint64_t sequence_ = 0;
  uint32_t chain_ = 0;
  // Values of the first frame: sequence number of the last frame, position of the newest record.
  uint64_t last_ = 0;
  uint64_t position_ = 0;
};

}  // namespace

absl::StatusOr<uint64_t> ReadHistory(disk::Directory& directory, uint64_t directory_hash,
                                     const JournalStart& start, History* history) {
  const absl::StatusOr<std::unique_ptr<disk::File>> file = directory.Open(kHistoryFile);
  if (absl::IsNotFound(file.status()) && start.history) {
    return absl::DataLossError(
        absl::StrCat(directory.path(), "/", kHistoryFile, " is missing: ", kStartFile,
                     " says that it holds records of entries up to position ", start.position));
  }
  if (absl::IsNotFound(file.status())) return 0;
  if (!file.ok()) return file.status();
  KAON_ASSIGN_OR_RETURN(const uint64_t size, (*file)->Size());
  HistoryReader reader(**file, size, directory_hash);
  KAON_ASSIGN_OR_RETURN(const uint64_t position, reader.ReadFirst());
  if (position >= start.position) return reader.ReadRecords(history);
  // The records between both positions are lost.
  if (!start.history) return 0;
  return reader.Damage(absl::StrCat("it holds records of entries up to position ", position, ", ",
                                    kStartFile, " says up to ", start.position));
}

absl::Status WriteHistory(disk::Directory& directory, uint64_t directory_hash, uint64_t position,
                          const History& history) {
  absl::Status written =
      WriteTemporary(directory, directory_hash, position, history.UpTo(position));
  if (written.ok()) written = directory.Rename(kTemporaryFile, kHistoryFile);
  if (absl::IsResourceExhausted(written)) {
    // The partial file occupies the room for which the journal waits.
    KAON_RETURN_IF_ERROR(disk::RemoveIfThere(directory, kTemporaryFile));
  }
  KAON_RETURN_IF_ERROR(written);
  const absl::Status synced = directory.Sync();
  // It is unknown now which of the two files a crash would leave.
  if (absl::IsResourceExhausted(synced)) return absl::DataLossError(synced.message());
  return synced;
}

}  // namespace kaon::journal
