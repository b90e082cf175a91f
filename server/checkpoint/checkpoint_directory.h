// The checkpoints of one directory: <id>.manifest, and the files with tensors that it names. A
// checkpoint exists from the moment its manifest is renamed into place (P9); there is no pointer to
// the newest one that could be torn: who loads looks at every manifest. Each attempt to write one
// has files of its own (docs/adr/0021-checkpoint-attempts.md), so that several processes may use
// one directory, each its own object. Owned by whoever writes or loads checkpoints; one thread at a
// time.
#ifndef KAON_SERVER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
#define KAON_SERVER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/checkpoint/manifest.h"
#include "server/checkpoint/restore_marks.h"
#include "server/checkpoint/safetensors/checked_file.h"
#include "server/disk/disk.h"

namespace kaon::checkpoint {

// A checkpoint that is not used, and why. It is never deleted.
struct SkippedCheckpoint {
  std::string id;
  std::string reason;
};

// One try to write a checkpoint.
struct CheckpointAttempt {
  std::string id;
  // Random: no other attempt of this id has it. Absent for an import, which is one program's.
  std::optional<uint64_t> number;
};

struct FoundCheckpoint {
  // Every byte of it was checked. Absent if there is none.
  std::optional<v1::CheckpointManifest> newest;
  // Those that would have been newer, and those that do not say how new they are.
  std::vector<SkippedCheckpoint> skipped;
};

struct RetainedCheckpoints {
  // Newest first; every byte of them was checked.
  std::vector<std::string> kept;
  std::vector<std::string> removed;
  std::vector<SkippedCheckpoint> skipped;
};

class CheckpointDirectory {
 public:
  // Fewer than so many good checkpoints are never left.
  static constexpr size_t kMinKept = 2;

  // `directory` outlives the result.
  explicit CheckpointDirectory(disk::Directory& directory) : directory_(directory) {}

  // What the names of an attempt's files begin with: "<id>.0123456789abcdef", or "<id>".
  static std::string Stem(absl::string_view id, std::optional<uint64_t> attempt);
  // "<stem>.shard-00001-of-00002.0000.safetensors".
  static std::string FileName(absl::string_view stem, uint32_t shard, uint32_t num_shards,
                              uint32_t index);
  static std::string ManifestName(absl::string_view id);

  // A new, empty file. INVALID_ARGUMENT for a bad id, ALREADY_EXISTS, and as CheckNotRemoved.
  absl::StatusOr<std::unique_ptr<disk::File>> CreateFile(absl::string_view id,
                                                         std::optional<uint64_t> attempt,
                                                         uint32_t shard, uint32_t num_shards,
                                                         uint32_t index);
  // By whoever created it. NOT_FOUND.
  absl::Status RemoveFile(const std::string& name) { return directory_.Remove(name); }
  // Names of files created so far are durable when it returns.
  absl::Status SyncNames() { return directory_.Sync(); }

  // The checkpoint exists, durably, when it returns OK; after an error of the disk it does or does
  // not. INVALID_ARGUMENT as CheckManifest, and for files of two attempts; DATA_LOSS naming a file
  // that is not as the manifest has it (sizes and headers are looked at, Verify reads the rest);
  // NOT_FOUND for one that is gone; ALREADY_EXISTS; FAILED_PRECONDITION for an attempt that was
  // given up (GiveUp).
  absl::Status Commit(const v1::CheckpointManifest& manifest);

  // Ids of checkpoints that have a manifest, ascending.
  absl::StatusOr<std::vector<std::string>> List();
  // The manifest alone, checked. NOT_FOUND; DATA_LOSS or INVALID_ARGUMENT naming what is wrong;
  // FAILED_PRECONDITION for another version.
  absl::StatusOr<v1::CheckpointManifest> Load(absl::string_view id);
  // SHA-256 of the manifest's file. NOT_FOUND; DATA_LOSS for one that is too long.
  absl::StatusOr<std::string> ManifestDigest(absl::string_view id);
  // As Load, and every byte of every file: DATA_LOSS naming the first bad one, or the first tensor
  // with a value that is not finite, and the step and position of the checkpoint.
  absl::StatusOr<v1::CheckpointManifest> Verify(absl::string_view id);
  // A file of a loaded checkpoint, whose every read is checked.
  absl::StatusOr<std::unique_ptr<CheckedFile>> Open(const v1::CheckpointFile& file);

  // The checkpoint of `job` with the highest (timeline, position) that passes Verify. Fails if the
  // directory cannot be listed, or the device cannot be read: what may be whole is not passed over.
  absl::StatusOr<FoundCheckpoint> FindNewest(absl::string_view job);

  // Removes good checkpoints of `job` but the `keep` newest good ones, and those that it was
  // restored from and that fewer than kMinKept good ones were taken since: `restored`, and what
  // marks in the directory say of them that the job's log, which has come to `reached`, has not
  // left behind. INVALID_ARGUMENT when `keep` is less than kMinKept. A bad one counts as none and
  // is left alone. Finishes what another retention has left half removed.
  absl::StatusOr<RetainedCheckpoints> Retain(absl::string_view job, size_t keep,
                                             absl::Span<const RestoredCheckpoint> restored = {},
                                             const LogPoint& reached = {});
  // FAILED_PRECONDITION naming the mark that says so.
  absl::Status CheckNotRemoved(absl::string_view id) {
    return checkpoint::CheckNotRemoved(directory_, id);
  }

  // Numbered attempts that there are files of and that no manifest names: being written, or given
  // up. Those of an id whose manifest cannot be read are left out, as it may name them.
  absl::StatusOr<std::vector<CheckpointAttempt>> Unfinished();
  // Ids that there are files of without a number and without a manifest, and one such file: of an
  // import that runs, or that was killed. Nothing removes these by itself.
  absl::StatusOr<std::map<std::string, std::string>> UnfinishedImports();
  // Removes what is left of an attempt, by whoever alone could commit it. Nothing if it was
  // finished; FAILED_PRECONDITION when the id's manifest cannot be read, as it may name the files.
  absl::Status RemoveAttempt(const CheckpointAttempt& attempt);
  // As RemoveAttempt, where another process may be about to commit it: either that fails from now
  // on, or the attempt is finished and nothing of it is removed.
  absl::Status GiveUp(const CheckpointAttempt& attempt);

 private:
  struct Candidate {
    std::string id;
    uint64_t timeline = 0;
    uint64_t position = 0;
  };

  // The manifest's file; its name goes to `path`.
  absl::StatusOr<std::string> ReadManifest(absl::string_view id, std::string* path);
  // ALREADY_EXISTS naming the manifest.
  absl::Status CheckAbsent(absl::string_view id);
  // Into `file`, once every file it names is there and the attempt was not given up.
  absl::Status WriteManifest(const v1::CheckpointManifest& manifest, absl::string_view stem,
                             disk::File& file);
  // Every byte of it.
  absl::Status VerifyFile(const v1::CheckpointManifest& manifest, int index);
  // That the file's header says what the manifest says of it.
  absl::Status CheckHeader(const v1::CheckpointManifest& manifest, int file, CheckedFile& checked);
  // Of `job`, newest first; what cannot be loaded goes to `skipped`.
  absl::StatusOr<std::vector<Candidate>> NewestFirst(absl::string_view job,
                                                     std::vector<SkippedCheckpoint>* skipped);
  // Of a checkpoint whose manifest was removed.
  absl::Status RemoveFiles(const std::vector<std::string>& names);
  // False when somebody takes its state, or may: then it stays.
  absl::StatusOr<bool> RemoveUnlessRestored(const v1::CheckpointManifest& manifest,
                                            const RetentionView& view);
  // Marks of restores that are over, of a checkpoint that stays.
  absl::Status RemoveOldMarks(absl::string_view id, const RetentionView& view);
  // Of checkpoints that have no manifest any more: marks, and the files that those name.
  absl::Status FinishRemovals();

  disk::Directory& directory_;
};

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
