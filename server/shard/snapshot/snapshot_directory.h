// The snapshots of a shard in its data_dir: snapshot-<position>.meta, and the files with tensors
// that it names. A snapshot exists from the moment its .meta is renamed into place; there is no
// pointer to the newest one that could be torn. Owned by whoever recovers or writes; one thread at
// a time, as its disk::Directory.
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
  // As many whole ones are kept: the journal reaches back to the older.
  static constexpr size_t kKept = 2;

  // `directory`, whose identity is `id`, outlives the result.
  SnapshotDirectory(disk::Directory& directory, const journal::DirectoryId& id)
      : directory_(directory), id_(id), files_(directory) {}

  // "snapshot-000000000000002a".
  static std::string IdOf(uint64_t position);
  const journal::DirectoryId& id() const { return id_; }
  const std::string& path() const { return directory_.path(); }
  // Where the files with tensors are.
  checkpoint::CheckpointDirectory& files() { return files_; }

  // Positions that have a .meta, newest first; whether they are whole is not known.
  absl::StatusOr<std::vector<uint64_t>> List();

  // `status`, of one of its files, which it then names the state of.
  static absl::Status OfState(const Snapshot& snapshot, const absl::Status& status);

  // Everything but the tensors' bytes, checked, and that every file has its length. DATA_LOSS
  // naming the file, both values and the position for damage, for a missing file and for a snapshot
  // of another directory; FAILED_PRECONDITION for another version; NOT_FOUND.
  absl::StatusOr<Snapshot> Load(uint64_t position);
  // As Load, and every byte. DATA_LOSS naming the file and fragment, step and position.
  absl::Status Verify(uint64_t position);
  // What was read whole is known to be, and need not be read again before it is removed.
  void SetWhole(uint64_t position) { whole_.insert(position); }

  // The snapshot, whose files are durable, exists durably when it returns OK, and is one of the
  // whole. On RESOURCE_EXHAUSTED it does not exist; after any other error it does or does not.
  absl::Status Commit(const Snapshot& snapshot);
  // Oldest position of the kKept newest that are known to be whole; 0 while there are fewer.
  uint64_t oldest_kept() const;
  // Removes whole ones that are older than oldest_kept(). A bad one is left, and named in the log.
  absl::Status Retain();
  // Removes whole ones between the two positions: a rollback made them nobody's. A bad one is left,
  // as Retain leaves it.
  absl::Status RemoveBetween(uint64_t below, uint64_t above);
  // Removes what interrupted writers left.
  absl::Status RemoveUnfinished();
  // Of all files of snapshots.
  absl::StatusOr<uint64_t> Bytes();

 private:
  // Without a look at the other files.
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
