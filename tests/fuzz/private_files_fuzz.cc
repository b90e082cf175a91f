// Input: one of the small files of a data_dir: start, durable, identity, incarnation. The file is
// read, or rejected with a reason. A value that was read is written again unchanged.
#include <glog/logging.h>

#include <array>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/crc32c.h"
#include "server/journal/durable_mark.h"
#include "server/journal/frame.h"
#include "server/journal/identity_file.h"
#include "server/journal/incarnation_marker.h"
#include "server/journal/journal_start.h"
#include "tests/fuzz/scratch_directory.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::journal {
namespace {

// Identity of the journal that the corpus comes from.
constexpr DirectoryId kId = {0x0123456789abcdef, 0xfedcba9876543210};

void CheckRefusal(const absl::Status& status) {
  CHECK(absl::IsDataLoss(status) || absl::IsFailedPrecondition(status)) << status;
  CHECK_LT(status.message().size(), size_t{2000}) << status;
}

void Put(simulation::SimulatedDirectory& directory, const char* name, absl::string_view bytes) {
  CHECK(directory.Create(name).value()->Write(0, {bytes}).ok());
}

std::string Whole(simulation::SimulatedDirectory& directory, const char* name) {
  const auto file = directory.Open(name).value();
  std::string bytes(file->Size().value(), '\0');
  CHECK_EQ(file->Read(0, bytes.size(), bytes.data()).value(), bytes.size());
  return bytes;
}

void CheckStart(absl::string_view bytes) {
  simulation::SimulatedDirectory directory("/d", 1);
  Put(directory, kStartFile, bytes);
  const auto start = ReadStart(directory, kId.Hash());
  if (!start.ok()) return CheckRefusal(start.status());
  CHECK(WriteStart(directory, kId.Hash(), *start).ok());
  const JournalStart again = ReadStart(directory, kId.Hash()).value();
  CHECK_EQ(again.sequence, start->sequence);
  CHECK_EQ(again.chain, start->chain);
  CHECK_EQ(again.position, start->position);
}

void CheckMark(absl::string_view bytes) {
  simulation::SimulatedDirectory directory("/d", 1);
  Put(directory, kDurableMarkFile, bytes);
  const auto mark = DurableMarkFile::Read(directory, kId.Hash());
  if (!mark.ok()) return CheckRefusal(mark.status());
  if (!mark->has_value()) return;
  DurableMarkFile file = DurableMarkFile::Open(directory, kId.Hash()).value();
  CHECK(file.Write(**mark).ok());
  const DurableMark again = DurableMarkFile::Read(directory, kId.Hash()).value().value();
  CHECK_EQ(again.sequence, (*mark)->sequence);
  CHECK_EQ(again.header_crc, (*mark)->header_crc);
}

void CheckIdentity(absl::string_view bytes) {
  simulation::SimulatedDirectory directory("/d", 1);
  Put(directory, kIdentityFile, bytes);
  const auto id = ReadIdentity(directory);
  if (!id.ok()) return CheckRefusal(id.status());
  // WriteIdentity needs a directory without the file.
  simulation::SimulatedDirectory other("/d", 1);
  CHECK(WriteIdentity(other, id->value()).ok());
  CHECK(Whole(other, kIdentityFile) == bytes);
}

// Checks the only file that is not accessed through disk::Directory.
void CheckMarker(absl::string_view bytes) {
  const std::string& directory = ScratchDirectory();
  std::ofstream(absl::StrCat(directory, "/incarnation"), std::ios::binary) << bytes;
  const auto marker = IncarnationMarker::Open(directory);
  if (!marker.ok()) return CheckRefusal(marker.status());
  CHECK(marker->held_state());
}

// Corrects the checksum of a frame that is alone in its file.
std::string WithRightChecksum(std::string bytes) {
  if (bytes.size() < kFrameHeaderBytes) return bytes;
  const uint32_t crc = proto::Crc32c(bytes.data(), kFrameHeaderBytes - 4);
  std::memcpy(&bytes[kFrameHeaderBytes - 4], &crc, sizeof(crc));
  return bytes;
}

}  // namespace
}  // namespace kaon::journal

// Input: a byte that chooses the file, then its content.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  namespace journal = kaon::journal;
  if (size < 1) return 0;
  const std::string file(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  switch (bytes[0] % 4) {
    case 0:
      journal::CheckStart(file);
      journal::CheckStart(journal::WithRightChecksum(file));
      break;
    case 1:
      journal::CheckMark(file);
      journal::CheckMark(journal::WithRightChecksum(file));
      break;
    case 2:
      journal::CheckIdentity(file);
      break;
    default:
      journal::CheckMarker(file);
  }
  return 0;
}
