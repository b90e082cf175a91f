// Input: the bytes of segment files, or of the file `history`.
// - A frame is rejected, or it encodes to the same bytes again.
// - A journal is rejected with a reason, or it has an end.
// - A history is rejected with a reason, or its records can be written again.
// The target checks the bytes as they are, and again with correct checksums, to reach the code
// after the checks of them. It checks one file, and one file for each first frame of a segment.
#include <glog/logging.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "proto/crc32c.h"
#include "server/journal/entry_codec.h"
#include "server/journal/frame.h"
#include "server/journal/history.h"
#include "server/journal/history_file.h"
#include "server/journal/identity_file.h"
#include "server/journal/log_reader.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace {

using kaon::journal::FrameBytes;
using kaon::journal::kFrameHeaderBytes;

// Identity of the journal that the corpus comes from.
constexpr kaon::journal::DirectoryId kId = {0x0123456789abcdef, 0xfedcba9876543210};

bool IsRefusal(const absl::Status& status) {
  return status.code() == absl::StatusCode::kDataLoss ||
         status.code() == absl::StatusCode::kFailedPrecondition;
}

void CheckFrame(absl::string_view bytes) {
  const auto frame = kaon::journal::DecodeFrame(bytes);
  kaon::journal::MayBeUnwritten(bytes);
  if (!frame.ok()) {
    CHECK(IsRefusal(frame.status())) << frame.status();
    return;
  }
  const auto header = kaon::journal::EncodeFrameHeader(frame->header);
  CHECK(absl::string_view(header.data(), header.size()) == bytes.substr(0, kFrameHeaderBytes));
  CHECK_EQ(FrameBytes(frame->header.payload_bytes), bytes.size());
  const auto entry = kaon::journal::DecodeEntry(*frame);
  CHECK(entry.ok() || IsRefusal(entry.status())) << entry.status();
}

// Corrects the checksums of all frames; finds the frames by their lengths.
void MakeChecksumsRight(std::string& bytes) {
  for (size_t at = 0; at + kFrameHeaderBytes <= bytes.size();) {
    uint32_t payload_bytes;
    std::memcpy(&payload_bytes, &bytes[at + 68], sizeof(payload_bytes));
    const size_t left = bytes.size() - at - kFrameHeaderBytes;
    const size_t size = std::min<size_t>(payload_bytes, left);
    const uint32_t payload_crc = kaon::proto::Crc32c(&bytes[at] + kFrameHeaderBytes, size);
    std::memcpy(&bytes[at + 76], &payload_crc, sizeof(payload_crc));
    const uint32_t header_crc = kaon::proto::Crc32c(&bytes[at], kFrameHeaderBytes - 4);
    std::memcpy(&bytes[at + kFrameHeaderBytes - 4], &header_crc, sizeof(header_crc));
    at += FrameBytes(static_cast<uint32_t>(size));
  }
}

using Segments = std::map<std::string, std::string>;

// Cuts at each sector that looks like the first frame of a segment; the frame's number names the
// file.
Segments Cut(const std::string& bytes) {
  Segments segments;
  std::string name = kaon::journal::SegmentName(1);
  for (size_t at = 0; at < bytes.size(); at += kaon::journal::kSectorBytes) {
    const std::string sector = bytes.substr(at, kaon::journal::kSectorBytes);
    const auto header = kaon::journal::DecodeFrameHeader(sector);
    if (header.ok() && header->type == kaon::journal::FrameType::kSegmentStart) {
      name = kaon::journal::SegmentName(header->sequence);
      segments[name].clear();
    }
    segments[name] += sector;
  }
  return segments;
}

// Reads only the headers of gradients up to position `snapshot`.
void CheckJournal(const Segments& segments, uint64_t snapshot,
                  const std::optional<kaon::journal::DurableMark>& mark) {
  kaon::simulation::SimulatedDirectory directory("/d", 1);
  for (const auto& [name, bytes] : segments) {
    const auto file = std::move(directory.Create(name)).value();
    CHECK(file->Write(0, {bytes}).ok());
  }
  uint64_t visited = 0;
  const kaon::journal::LogReader::Visitor visit = [&](const kaon::journal::Entry&) {
    ++visited;
    return absl::OkStatus();
  };
  const kaon::journal::JournalStart whole;
  const auto end =
      kaon::journal::LogReader(directory, kId.Hash(), whole, mark, snapshot, visit).Read();
  if (!end.ok()) {
    CHECK(IsRefusal(end.status())) << end.status();
    return;
  }
  CHECK_EQ(end->entries, visited);
  const size_t size = segments.at(end->segment).size();
  CHECK_LE(end->offset, size);
  CHECK_EQ(end->offset + end->torn_bytes, size);
}

void CheckHistory(const std::string& bytes) {
  kaon::simulation::SimulatedDirectory directory("/d", 1);
  const auto file = std::move(directory.Create(kaon::journal::kHistoryFile)).value();
  CHECK(file->Write(0, {bytes}).ok());
  const kaon::journal::JournalStart start = {1, 0, 1, true};
  kaon::journal::History history;
  const auto newest = kaon::journal::ReadHistory(directory, kId.Hash(), start, &history);
  if (!newest.ok()) {
    CHECK(IsRefusal(newest.status())) << newest.status();
    return;
  }
  constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();
  CHECK(kaon::journal::WriteHistory(directory, kId.Hash(), kAll, history).ok());
  kaon::journal::History again;
  const auto written = kaon::journal::ReadHistory(directory, kId.Hash(), start, &again);
  CHECK(written.ok()) << written.status();
  CHECK_EQ(*written, *newest);
  CHECK_EQ(again.UpTo(kAll).size(), history.UpTo(kAll).size());
}

void Check(const std::string& bytes) {
  CheckFrame(bytes);
  CheckHistory(bytes);
  const Segments segments = Cut(bytes);
  for (uint64_t snapshot : {0, 3}) {
    CheckJournal({{kaon::journal::SegmentName(1), bytes}}, snapshot, std::nullopt);
    if (segments.size() > 1) CheckJournal(segments, snapshot, std::nullopt);
  }
  // This mark gives a durable frame another checksum.
  CheckJournal(segments, 0, kaon::journal::DurableMark{3, 0});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  std::string input(reinterpret_cast<const char*>(bytes), size);
  Check(input);
  MakeChecksumsRight(input);
  Check(input);
  return 0;
}
