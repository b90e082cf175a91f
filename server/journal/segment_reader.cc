#include "server/journal/segment_reader.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/status_macros.h"

namespace kaon::journal {

namespace {

constexpr absl::string_view kPrefix = "journal-";
// Size of one read where the layout is unknown.
constexpr uint64_t kStrideBytes = uint64_t{1} << 20;
static_assert(kStrideBytes % kSectorBytes == 0);

}  // namespace

std::string SegmentName(uint64_t first_sequence) {
  return absl::StrCat(kPrefix, absl::Hex(first_sequence, absl::kZeroPad16));
}

std::optional<uint64_t> ParseSegmentName(absl::string_view name) {
  absl::string_view digits = name;
  if (!absl::ConsumePrefix(&digits, kPrefix) || digits.size() != 16) return std::nullopt;
  uint64_t value = 0;
  for (const char digit : digits) {
    const size_t nibble = absl::string_view("0123456789abcdef").find(digit);
    if (nibble == absl::string_view::npos) return std::nullopt;
    value = value << 4 | nibble;
  }
  return value;
}

SegmentReader::SegmentReader(disk::File& file, uint64_t size, uint64_t unused_gradients)
    : file_(file), size_(size), unused_gradients_(unused_gradients) {}

absl::StatusOr<absl::string_view> SegmentReader::Fill(uint64_t offset, uint64_t from, uint64_t to) {
  if (buffer_.size() < to) buffer_.resize(to);
  KAON_ASSIGN_OR_RETURN(const size_t count,
                        file_.Read(offset + from, to - from, buffer_.data() + from));
  if (count != to - from) {
    return absl::DataLossError(absl::StrCat(file_.path(), " ends at ", offset + from + count,
                                            " bytes while it is read, expecting ", size_));
  }
  return absl::string_view(buffer_.data(), to);
}

absl::StatusOr<SegmentReader::Found> SegmentReader::Read() {
  Found found;
  const uint64_t left = size_ - offset_;
  if (left == 0) return found;
  KAON_ASSIGN_OR_RETURN(absl::string_view bytes,
                        Fill(offset_, 0, std::min<uint64_t>(left, kSectorBytes)));
  const absl::StatusOr<FrameHeader> header = DecodeFrameHeader(bytes);
  if (header.status().code() == absl::StatusCode::kFailedPrecondition) {
    return absl::FailedPreconditionError(
        absl::StrCat(file_.path(), " at offset ", offset_, ": ", header.status().message()));
  }
  if (header.ok() && FrameBytes(header->payload_bytes) <= left) {
    if (header->type == FrameType::kGradient && header->position <= unused_gradients_) {
      found.kind = Kind::kFrame;
      found.frame.header = *header;
      found.header_only = true;
      found.header_crc = HeaderCrc(bytes);
      offset_ += FrameBytes(header->payload_bytes);
      return found;
    }
    KAON_ASSIGN_OR_RETURN(bytes, Fill(offset_, bytes.size(), FrameBytes(header->payload_bytes)));
    const absl::StatusOr<Frame> frame = DecodeFrame(bytes);
    if (frame.ok()) {
      found.kind = Kind::kFrame;
      found.frame = *frame;
      found.header_crc = HeaderCrc(bytes);
      offset_ += bytes.size();
      return found;
    }
    found.why = frame.status();
  } else {
    found.why =
        header.ok()
            ? absl::DataLossError(absl::StrCat("frame of ", FrameBytes(header->payload_bytes),
                                               " bytes, the file has ", left))
            : header.status();
  }
  found.kind = MayBeUnwritten(bytes) ? Kind::kUnwritten : Kind::kDamaged;
  return found;
}

absl::StatusOr<uint64_t> SegmentReader::HighestDurable(uint64_t directory) {
  uint64_t highest = 0;
  for (uint64_t start = offset_; start < size_; start += kStrideBytes) {
    KAON_ASSIGN_OR_RETURN(const absl::string_view bytes,
                          Fill(start, 0, std::min(size_ - start, kStrideBytes)));
    for (size_t at = 0; at < bytes.size(); at += kSectorBytes) {
      const absl::StatusOr<FrameHeader> header = DecodeFrameHeader(bytes.substr(at));
      if (header.ok() && header->directory == directory) {
        highest = std::max(highest, header->durable_sequence);
      }
    }
  }
  return highest;
}

}  // namespace kaon::journal
