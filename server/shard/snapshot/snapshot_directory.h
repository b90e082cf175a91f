// The snapshots of a shard in its data_dir: snapshot-<position>.meta and the tensor files that it
// names. A snapshot exists once its .meta is renamed into place. No pointer names the newest one,
// so none can be torn. The caller owns it; one thread at a time, like its disk::Directory.
#ifndef KAON_SERVER_SHARD_SNAPSHOT_SNAPSHOT_DIRECTORY_H_
#define KAON_SERVER_SHARD_SNAPSHOT_SNAPSHOT_DIRECTORY_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/disk/disk.h"
#include "server/journal/identity_file.h"
#include "server/shard/snapshot/snapshot_file.h"

namespace kaon::shard {

class SnapshotDirectory {
 public:
  // Number of whole snapshots to keep. The journal reaches back to the older one.
  static constexpr size_t kKept = 2;

  // `directory` has identity `id` and outlives this object.
  SnapshotDirectory(disk::Directory& directory, const journal::DirectoryId& id)
      : directory_(directory), id_(id), files_(directory) {}

  // Returns for example "snapshot-000000000000002a".
  static std::string IdOf(uint64_t position);
  const journal::DirectoryId& id() const { return id_; }
  const std::string& path() const { return directory_.path(); }
  // The directory of the tensor files.
  checkpoint::CheckpointDirectory& files() { return files_; }

  // Returns the positions that have a .meta, newest first. They may be damaged.
  absl::StatusOr<std::vector<uint64_t>> List();

  // Returns `status`, about a file of `snapshot`, with step and position added.
  static absl::Status OfState(const Snapshot& snapshot, const absl::Status& status);

  // Loads and checks everything but the tensors' bytes, including the length of every file. Returns
  // NOT_FOUND, or FAILED_PRECONDITION for another version. Returns DATA_LOSS naming the file, both
  // values and the position for damage, a missing file or a snapshot of another directory.
  absl::StatusOr<Snapshot> Load(uint64_t position);
  // Like Load, and checks every byte. Returns DATA_LOSS naming the file and fragment, step and
  // position.
  absl::Status Verify(uint64_t position);
  // Marks a snapshot as whole after all of it was read. Retain then removes it without another
  // read.
  void SetWhole(uint64_t position) { whole_.insert(position); }

  // Makes `snapshot`, whose files are durable, exist durably, and marks it as whole. After
  // RESOURCE_EXHAUSTED it does not exist. After any other error it may or may not exist.
  absl::Status Commit(const Snapshot& snapshot);
  // Returns the oldest position of the kKept newest whole snapshots; 0 while there are fewer.
  uint64_t oldest_kept() const;
  // Removes whole snapshots older than oldest_kept(). Keeps a damaged one and names it in the log.
  absl::Status Retain();
  // Removes whole snapshots between the two positions, which a rollback dropped from the job's
  // history. Keeps a damaged one, like Retain.
  absl::Status RemoveBetween(uint64_t below, uint64_t above);
  // Removes every snapshot before `position`, damaged ones too: their job was deleted.
  absl::Status RemoveBefore(uint64_t position);
  // Removes files of interrupted writers.
  absl::Status RemoveUnfinished();
  // Returns the total size of all snapshot files in bytes.
  absl::StatusOr<uint64_t> Bytes();

 private:
  // Loads the .meta without a look at the other files.
  absl::StatusOr<Snapshot> LoadMeta(uint64_t position);
  absl::Status RemoveIfWhole(uint64_t position);
  absl::Status RemoveOne(uint64_t position);

  disk::Directory& directory_;
  const journal::DirectoryId id_;
  checkpoint::CheckpointDirectory files_;
  std::set<uint64_t> whole_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_SNAPSHOT_DIRECTORY_H_
