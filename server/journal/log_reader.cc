#include "server/journal/log_reader.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "server/journal/entry_codec.h"
#include "server/journal/identity_file.h"

namespace kaon::journal {

namespace {

using Kind = SegmentReader::Kind;

// Returns the step of the state after a decision; nullopt if the decision does not change it.
std::optional<uint64_t> StepOf(const v1::StepPlan& plan) {
  if (plan.has_step()) return plan.step().step();
  if (plan.has_restore()) return plan.restore().step();
  if (plan.has_rollback()) return plan.rollback().target().step();
  return std::nullopt;
}

}  // namespace

LogReader::LogReader(disk::Directory& directory, uint64_t directory_hash, const JournalStart& start,
                     const std::optional<DurableMark>& mark, uint64_t snapshot,
                     const Visitor& visit)
    : directory_(directory),
      directory_hash_(directory_hash),
      start_(start),
      mark_(mark),
      snapshot_(snapshot),
      visit_(visit),
      position_(start.position) {
  end_.next_sequence = start.sequence;
  end_.chain = start.chain;
}

absl::StatusOr<LogEnd> LogReader::Read() {
  KAON_ASSIGN_OR_RETURN(const std::vector<std::string> names, directory_.List());
  for (const std::string& name : names) {
    const std::optional<uint64_t> first = ParseSegmentName(name);
    if (first.has_value()) (*first < start_.sequence ? end_.removable : segments_).push_back(name);
  }
  for (size_t index = 0; index < segments_.size(); ++index) {
    if (segments_[index] != SegmentName(end_.next_sequence)) {
      // The file `start` would exist if older segments had been removed.
      const std::string nor = end_.next_sequence > 1
                                  ? ""
                                  : absl::StrCat(", and no ", directory_.path(), "/", kStartFile,
                                                 " says that it was removed");
      return Damage(absl::StrCat(directory_.path(), "/", segments_[index]), 0,
                    absl::StrCat("segment ", directory_.path(), "/",
                                 SegmentName(end_.next_sequence), " is missing", nor));
    }
    KAON_ASSIGN_OR_RETURN(const bool closed, ReadSegment(index));
    if (!closed) return end_;
  }
  // The next segment is created before one is closed, and the first one before the identity.
  return Damage(absl::StrCat(directory_.path(), "/", SegmentName(end_.next_sequence)), 0,
                "the segment is missing");
}

absl::StatusOr<bool> LogReader::ReadSegment(size_t index) {
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<disk::File> file, directory_.Open(segments_[index]));
  KAON_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
  SegmentReader reader(*file, size, snapshot_);
  const uint64_t decided = end_.kept.empty() ? 0 : end_.kept.back().decided;
  end_.kept.push_back({end_.next_sequence, end_.chain, 0, decided});
  while (true) {
    const uint64_t offset = reader.offset();
    KAON_ASSIGN_OR_RETURN(const SegmentReader::Found found, reader.Read());
    if (found.kind != Kind::kFrame) {
      KAON_RETURN_IF_ERROR(EndIn(index, file->path(), reader, found));
      return false;
    }
    KAON_RETURN_IF_ERROR(TakeFrame(file->path(), offset, found));
    if (found.frame.header.type != FrameType::kSegmentEnd) continue;
    if (reader.offset() != size) {
      return Damage(file->path(), reader.offset(),
                    absl::StrCat(size - reader.offset(), " bytes behind the segment's end"));
    }
    end_.kept.back().bytes = size;
    return true;
  }
}

std::string LogReader::WhyNotNext(bool first_of_segment, const SegmentReader::Found& found) const {
  const FrameHeader& header = found.frame.header;
  if (header.directory != directory_hash_) {
    return absl::StrCat("a frame of directory ", absl::Hex(header.directory), ", expecting ",
                        absl::Hex(directory_hash_), " as ", directory_.path(), "/", kIdentityFile,
                        " has it");
  }
  if (header.sequence != end_.next_sequence) {
    return absl::StrCat("frame ", header.sequence, " lies there");
  }
  if (header.chain != end_.chain) {
    return absl::StrCat("it follows a frame with header CRC ", header.chain,
                        ", the one before it has ", end_.chain);
  }
  if ((header.type == FrameType::kSegmentStart) != first_of_segment ||
      header.type == FrameType::kDurable || header.type == FrameType::kStart ||
      header.type == FrameType::kHistory) {
    return absl::StrCat("frame type ", static_cast<uint16_t>(header.type), " at this place");
  }
  if (mark_.has_value() && mark_->sequence == header.sequence &&
      mark_->header_crc != found.header_crc) {
    return absl::StrCat("its header CRC is ", found.header_crc, ", the durable one's was ",
                        mark_->header_crc);
  }
  return "";
}

absl::Status LogReader::TakeFrame(const std::string& path, uint64_t offset,
                                  const SegmentReader::Found& found) {
  const FrameHeader& header = found.frame.header;
  const std::string why_not = WhyNotNext(offset == 0, found);
  if (!why_not.empty()) return Damage(path, offset, why_not);
  if (found.header_only) {
    end_.unread_bytes += FrameBytes(header.payload_bytes);
    position_ = header.position;
  } else if (header.type != FrameType::kSegmentStart && header.type != FrameType::kSegmentEnd) {
    const absl::StatusOr<Entry> entry = DecodeEntry(found.frame);
    if (!entry.ok()) return Damage(path, offset, entry.status().message());
    KAON_RETURN_IF_ERROR(visit_(*entry));
    ++end_.entries;
    if (header.position != 0) position_ = header.position;
    if (const auto* decision = std::get_if<DecisionRecord>(&*entry)) {
      end_.kept.back().decided = header.position;
      if (const auto step = StepOf(decision->record.plan())) step_ = step;
    }
  }
  ++end_.next_sequence;
  end_.chain = found.header_crc;
  return absl::OkStatus();
}

absl::Status LogReader::EndIn(size_t index, const std::string& path, SegmentReader& reader,
                              const SegmentReader::Found& found) {
  if (found.kind == Kind::kDamaged) {
    return Damage(path, reader.offset(), found.why.message());
  }
  // The first frame of a segment is durable before anything refers to the segment.
  if (reader.offset() == 0) {
    return Damage(path, 0, found.kind == Kind::kEnd ? "the segment is empty" : found.why.message());
  }
  KAON_ASSIGN_OR_RETURN(uint64_t durable, reader.HighestDurable(directory_hash_));
  KAON_ASSIGN_OR_RETURN(const uint64_t later, HighestDurableFrom(index + 1));
  durable = std::max({durable, later, mark_.has_value() ? mark_->sequence : 0});
  if (durable >= end_.next_sequence) {
    return Damage(path, reader.offset(),
                  absl::StrCat(found.kind == Kind::kEnd ? "it is missing" : found.why.message(),
                               "; everything up to ", durable, " was durable"));
  }
  end_.segment = segments_[index];
  end_.offset = reader.offset();
  end_.torn_bytes = reader.size() - reader.offset();
  return TakeUnfinished(index + 1);
}

absl::Status LogReader::TakeUnfinished(size_t index) {
  for (; index < segments_.size(); ++index) {
    KAON_ASSIGN_OR_RETURN(const std::unique_ptr<disk::File> file,
                          directory_.Open(segments_[index]));
    KAON_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
    // The frame that closes the last segment has the number before its first.
    if (segments_[index] != SegmentName(end_.next_sequence + 1) || size > kSectorBytes) {
      return Damage(file->path(), 0,
                    absl::StrCat("a segment of ", size, " bytes lies behind the journal's end"));
    }
    end_.unfinished = segments_[index];
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> LogReader::HighestDurableFrom(size_t index) const {
  uint64_t highest = 0;
  for (; index < segments_.size(); ++index) {
    KAON_ASSIGN_OR_RETURN(const std::unique_ptr<disk::File> file,
                          directory_.Open(segments_[index]));
    KAON_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
    SegmentReader reader(*file, size, snapshot_);
    KAON_ASSIGN_OR_RETURN(const uint64_t durable, reader.HighestDurable(directory_hash_));
    highest = std::max(highest, durable);
  }
  return highest;
}

absl::Status LogReader::Damage(const std::string& path, uint64_t offset,
                               absl::string_view what) const {
  const std::string step = step_.has_value() ? absl::StrCat("step ", *step_, ", ") : "";
  return absl::DataLossError(absl::StrCat("journal ", path, " at offset ", offset, ", frame ",
                                          end_.next_sequence, " after ", step, "position ",
                                          position_, ": ", what));
}

}  // namespace kaon::journal
