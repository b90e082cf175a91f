#include "server/shard/snapshot/snapshot_directory.h"

#include <glog/logging.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/checkpoint/safetensors/checked_file.h"
#include "server/checkpoint/state_place.h"
#include "server/disk/device_error.h"
#include "server/disk/remove_if_there.h"

namespace kaon::shard {

namespace {

constexpr absl::string_view kPrefix = "snapshot-";
constexpr absl::string_view kMeta = ".meta";
constexpr absl::string_view kUnfinishedMeta = ".meta.tmp";
constexpr size_t kDigits = 16;
// Registration, record and part of one shard, at their maximum message sizes.
constexpr uint64_t kMaxMetaBytes = uint64_t{512} << 20;

// Returns the position in the name of a snapshot file; absent for any other name.
std::optional<uint64_t> PositionOf(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kPrefix) || name.size() <= kDigits || name[kDigits] != '.') {
    return std::nullopt;
  }
  uint64_t value = 0;
  for (const char digit : name.substr(0, kDigits)) {
    const size_t nibble = absl::string_view("0123456789abcdef").find(digit);
    if (nibble == absl::string_view::npos) return std::nullopt;
    value = value << 4 | nibble;
  }
  return value;
}

std::string MetaName(uint64_t position) {
  return absl::StrCat(SnapshotDirectory::IdOf(position), kMeta);
}

// After a failed sync the durability of a name is unknown, so RESOURCE_EXHAUSTED becomes DATA_LOSS.
absl::Status Synced(const absl::Status& status) {
  return absl::IsResourceExhausted(status) ? absl::DataLossError(status.message()) : status;
}

}  // namespace

std::string SnapshotDirectory::IdOf(uint64_t position) {
  return absl::StrCat(kPrefix, absl::Hex(position, absl::kZeroPad16));
}

absl::Status SnapshotDirectory::OfState(const Snapshot& snapshot, const absl::Status& status) {
  return checkpoint::OfState(status, snapshot.facts.state.applied_step(), snapshot.position());
}

absl::StatusOr<std::vector<uint64_t>> SnapshotDirectory::List() {
  KAON_ASSIGN_OR_RETURN(const std::vector<std::string> names, directory_.List());
  std::vector<uint64_t> positions;
  for (const std::string& name : names) {
    const std::optional<uint64_t> position = PositionOf(name);
    if (position.has_value() && name == MetaName(*position)) positions.push_back(*position);
  }
  std::sort(positions.rbegin(), positions.rend());
  return positions;
}

absl::StatusOr<Snapshot> SnapshotDirectory::Load(uint64_t position) {
  absl::StatusOr<Snapshot> snapshot = LoadMeta(position);
  if (!snapshot.ok()) return checkpoint::OfState(snapshot.status(), std::nullopt, position);
  for (const v1::CheckpointFile& one : snapshot->part.files()) {
    const absl::Status opened = files_.Open(one).status();
    if (opened.ok()) continue;
    if (!absl::IsNotFound(opened)) return OfState(*snapshot, opened);
    return OfState(*snapshot, absl::DataLossError(absl::StrCat(
                                  "snapshot ", path(), "/", MetaName(position), ": file ", path(),
                                  "/", one.name(), " of ", one.size(), " bytes is missing")));
  }
  return snapshot;
}

absl::StatusOr<Snapshot> SnapshotDirectory::LoadMeta(uint64_t position) {
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<disk::File> file,
                        directory_.Open(MetaName(position)));
  KAON_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
  if (size > kMaxMetaBytes) {
    return absl::DataLossError(absl::StrCat("snapshot ", file->path(), " is ", size,
                                            " bytes long, expecting at most ", kMaxMetaBytes));
  }
  std::string bytes(size, '\0');
  KAON_ASSIGN_OR_RETURN(const size_t read, file->Read(0, size, bytes.data()));
  KAON_ASSIGN_OR_RETURN(Snapshot snapshot,
                        ParseSnapshot(file->path(), absl::string_view(bytes).substr(0, read)));
  if (!(snapshot.directory == id_) || snapshot.position() != position) {
    return absl::DataLossError(absl::StrCat(
        "snapshot ", file->path(), " is of directory ", snapshot.directory.ToHex(),
        " and position ", snapshot.position(), ", expecting ", id_.ToHex(), " and ", position));
  }
  return snapshot;
}

absl::Status SnapshotDirectory::Verify(uint64_t position) {
  KAON_ASSIGN_OR_RETURN(const Snapshot snapshot, Load(position));
  for (const v1::CheckpointFile& one : snapshot.part.files()) {
    KAON_ASSIGN_OR_RETURN(const std::unique_ptr<checkpoint::CheckedFile> file, files_.Open(one));
    KAON_RETURN_IF_ERROR(OfState(snapshot, file->Verify()));
  }
  return absl::OkStatus();
}

absl::Status SnapshotDirectory::Commit(const Snapshot& snapshot) {
  const std::string unfinished = absl::StrCat(IdOf(snapshot.position()), kUnfinishedMeta);
  KAON_RETURN_IF_ERROR(disk::RemoveIfThere(directory_, unfinished));
  {
    KAON_ASSIGN_OR_RETURN(const std::unique_ptr<disk::File> file, directory_.Create(unfinished));
    KAON_RETURN_IF_ERROR(file->Write(0, {FormatSnapshot(snapshot)}));
    PassFailpoint(Failpoint::snapshot_meta_written);
    KAON_RETURN_IF_ERROR(Synced(file->Sync()));
    PassFailpoint(Failpoint::snapshot_meta_durable);
  }
  KAON_RETURN_IF_ERROR(directory_.Rename(unfinished, MetaName(snapshot.position())));
  PassFailpoint(Failpoint::snapshot_meta_renamed);
  KAON_RETURN_IF_ERROR(Synced(directory_.Sync()));
  PassFailpoint(Failpoint::snapshot_committed);
  SetWhole(snapshot.position());
  return absl::OkStatus();
}

uint64_t SnapshotDirectory::oldest_kept() const {
  return whole_.size() < kKept ? 0 : *std::next(whole_.rbegin(), kKept - 1);
}

absl::Status SnapshotDirectory::Retain() {
  const uint64_t oldest = oldest_kept();
  KAON_ASSIGN_OR_RETURN(const std::vector<uint64_t> positions, List());
  for (const uint64_t position : positions) {
    if (position < oldest) KAON_RETURN_IF_ERROR(RemoveIfWhole(position));
  }
  return absl::OkStatus();
}

absl::Status SnapshotDirectory::RemoveBetween(uint64_t below, uint64_t above) {
  KAON_ASSIGN_OR_RETURN(const std::vector<uint64_t> positions, List());
  for (const uint64_t position : positions) {
    if (position > below && position < above) KAON_RETURN_IF_ERROR(RemoveIfWhole(position));
  }
  return absl::OkStatus();
}

absl::Status SnapshotDirectory::RemoveBefore(uint64_t position) {
  KAON_ASSIGN_OR_RETURN(const std::vector<uint64_t> positions, List());
  for (const uint64_t other : positions) {
    if (other >= position) continue;
    PassFailpoint(Failpoint::snapshot_retain_begin);
    KAON_RETURN_IF_ERROR(RemoveOne(other));
  }
  return absl::OkStatus();
}

absl::Status SnapshotDirectory::RemoveIfWhole(uint64_t position) {
  const absl::Status whole = whole_.count(position) > 0 ? absl::OkStatus() : Verify(position);
  if (disk::IsDeviceError(whole)) return whole;
  if (!whole.ok()) {
    LOG(WARNING) << "snapshot of position " << position << " is left where it is: " << whole;
    return absl::OkStatus();
  }
  PassFailpoint(Failpoint::snapshot_retain_begin);
  return RemoveOne(position);
}

absl::Status SnapshotDirectory::RemoveOne(uint64_t position) {
  // Remove the .meta durably first, so that no .meta remains without its files.
  KAON_RETURN_IF_ERROR(directory_.Remove(MetaName(position)));
  PassFailpoint(Failpoint::snapshot_meta_removed);
  KAON_RETURN_IF_ERROR(Synced(directory_.Sync()));
  PassFailpoint(Failpoint::snapshot_removal_durable);
  whole_.erase(position);
  KAON_ASSIGN_OR_RETURN(const std::vector<std::string> names, directory_.List());
  for (const std::string& name : names) {
    if (PositionOf(name) == position) KAON_RETURN_IF_ERROR(directory_.Remove(name));
  }
  PassFailpoint(Failpoint::snapshot_files_removed);
  return absl::OkStatus();
}

absl::Status SnapshotDirectory::RemoveUnfinished() {
  KAON_ASSIGN_OR_RETURN(const std::vector<std::string> names, directory_.List());
  KAON_ASSIGN_OR_RETURN(const std::vector<uint64_t> finished, List());
  for (const std::string& name : names) {
    const std::optional<uint64_t> position = PositionOf(name);
    if (!position.has_value()) continue;
    const bool kept = std::find(finished.begin(), finished.end(), *position) != finished.end() &&
                      !absl::EndsWith(name, kUnfinishedMeta);
    if (kept) continue;
    KAON_RETURN_IF_ERROR(directory_.Remove(name));
    PassFailpoint(Failpoint::snapshot_unfinished_removed);
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> SnapshotDirectory::Bytes() {
  KAON_ASSIGN_OR_RETURN(const std::vector<std::string> names, directory_.List());
  uint64_t bytes = 0;
  for (const std::string& name : names) {
    if (!PositionOf(name).has_value()) continue;
    KAON_ASSIGN_OR_RETURN(const std::unique_ptr<disk::File> file, directory_.Open(name));
    KAON_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
    bytes += size;
  }
  return bytes;
}

}  // namespace kaon::shard
