// The checkpoints of one directory: <id>.manifest, and the files with tensors that it names. A
// checkpoint exists from the moment its manifest is renamed into place (reliability.md P9). There
// is no pointer to the newest one that a crash could tear: a loader looks at every manifest.
// Each attempt to write one has its own files (docs/adr/0021-checkpoint-attempts.md), so several
// processes may use one directory, each with its own object. Not thread-safe. The writer or loader
// of checkpoints owns the object.
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

// A checkpoint that is not used, and the reason. It is never deleted.
struct SkippedCheckpoint {
  std::string id;
  std::string reason;
};

// One try to write a checkpoint.
struct CheckpointAttempt {
  std::string id;
  // Random, unique among the attempts of this id. Absent for an import, which a single program
  // writes.
  std::optional<uint64_t> number;
};

struct FoundCheckpoint {
  // Newest good checkpoint, with every byte checked. Absent if there is none.
  std::optional<v1::CheckpointManifest> newest;
  // Checkpoints that would have been newer, or whose age is unknown.
  std::vector<SkippedCheckpoint> skipped;
};

struct RetainedCheckpoints {
  // Newest first, with every byte checked.
  std::vector<std::string> kept;
  std::vector<std::string> removed;
  std::vector<SkippedCheckpoint> skipped;
};

class CheckpointDirectory {
 public:
  // Retain never leaves fewer good checkpoints than this.
  static constexpr size_t kMinKept = 2;

  // `directory` must outlive the result.
  explicit CheckpointDirectory(disk::Directory& directory) : directory_(directory) {}

  // Returns the first part of the names of an attempt's files: "<id>.0123456789abcdef", or "<id>".
  static std::string Stem(absl::string_view id, std::optional<uint64_t> attempt);
  // Returns "<stem>.shard-00001-of-00002.0000.safetensors".
  static std::string FileName(absl::string_view stem, uint32_t shard, uint32_t num_shards,
                              uint32_t index);
  static std::string ManifestName(absl::string_view id);

  // Creates a new, empty file. INVALID_ARGUMENT for a bad id, ALREADY_EXISTS, and the errors of
  // CheckNotRemoved.
  absl::StatusOr<std::unique_ptr<disk::File>> CreateFile(absl::string_view id,
                                                         std::optional<uint64_t> attempt,
                                                         uint32_t shard, uint32_t num_shards,
                                                         uint32_t index);
  // Removes a file that the caller created. NOT_FOUND.
  absl::Status RemoveFile(const std::string& name) { return directory_.Remove(name); }
  // Makes the names of the created files durable.
  absl::Status SyncNames() { return directory_.Sync(); }

  // Creates the checkpoint durably. After an error of the disk it may or may not exist.
  //   INVALID_ARGUMENT     as CheckManifest, and for files of two attempts
  //   DATA_LOSS            a file is not as the manifest says (checks sizes and headers; Verify
  //                        reads the rest)
  //   NOT_FOUND            a file is missing
  //   ALREADY_EXISTS       the checkpoint exists
  //   FAILED_PRECONDITION  the attempt was abandoned (GiveUp)
  absl::Status Commit(const v1::CheckpointManifest& manifest);

  // Returns the ids of checkpoints that have a manifest, ascending.
  absl::StatusOr<std::vector<std::string>> List();
  // Reads and checks the manifest alone. NOT_FOUND; DATA_LOSS or INVALID_ARGUMENT names the
  // problem; FAILED_PRECONDITION for another version.
  absl::StatusOr<v1::CheckpointManifest> Load(absl::string_view id);
  // Returns the SHA-256 of the manifest's file. NOT_FOUND; DATA_LOSS for a file that is too long.
  absl::StatusOr<std::string> ManifestDigest(absl::string_view id);
  // Calls Load, and checks every byte of every file. DATA_LOSS names the first bad byte, or the
  // first tensor with a value that is not finite, and the step and position of the checkpoint.
  absl::StatusOr<v1::CheckpointManifest> Verify(absl::string_view id);
  // Opens a file of a loaded checkpoint. The file checks every read.
  absl::StatusOr<std::unique_ptr<CheckedFile>> Open(const v1::CheckpointFile& file);

  // Returns the checkpoint of `job` with the highest (timeline, position) that passes Verify. Fails
  // if it cannot list the directory or read the device, because it must not skip a checkpoint that
  // may be good.
  absl::StatusOr<FoundCheckpoint> FindNewest(absl::string_view job);

  // Removes good checkpoints of `job`, and finishes removals that another call left incomplete. It
  // keeps:
  // - the `keep` newest good ones;
  // - each checkpoint that the job was restored from, until kMinKept good ones are newer than the
  //   restore. Restores are those in `restored`, and those of marks in the directory that are not
  //   over (RestoreMarks). `reached` is the newest entry of the job's log.
  // Bad checkpoints do not count and stay. INVALID_ARGUMENT if `keep` is less than kMinKept.
  absl::StatusOr<RetainedCheckpoints> Retain(absl::string_view job, size_t keep,
                                             absl::Span<const RestoredCheckpoint> restored = {},
                                             const LogPoint& reached = {});
  // Removes one checkpoint and returns its manifest. Codes of Load, and FAILED_PRECONDITION if no
  // newer checkpoint of its job is good, or if a restore uses it or may use it.
  absl::StatusOr<v1::CheckpointManifest> Delete(absl::string_view id);
  // Path of the directory, for messages.
  const std::string& path() const { return directory_.path(); }
  // Returns FAILED_PRECONDITION, naming the mark, if the checkpoint is being removed.
  absl::Status CheckNotRemoved(absl::string_view id) {
    return checkpoint::CheckNotRemoved(directory_, id);
  }

  // Returns numbered attempts that have files and that no manifest names: in progress, or
  // abandoned. Leaves out attempts of an id whose manifest cannot be read, because it may name
  // them.
  absl::StatusOr<std::vector<CheckpointAttempt>> Unfinished();
  // Returns ids that have files without a number but no manifest, each with one such file. They
  // come from an import that runs or was killed. Nothing removes these automatically.
  absl::StatusOr<std::map<std::string, std::string>> UnfinishedImports();
  // Removes the files of an attempt that only the caller could commit. Does nothing if the attempt
  // is finished. FAILED_PRECONDITION if the id's manifest cannot be read, because it may name the
  // files.
  absl::Status RemoveAttempt(const CheckpointAttempt& attempt);
  // Like RemoveAttempt, but safe while another process may commit the attempt. Either that commit
  // fails from now on, or the attempt is finished and none of its files is removed.
  absl::Status GiveUp(const CheckpointAttempt& attempt);

 private:
  struct Candidate {
    std::string id;
    uint64_t timeline = 0;
    uint64_t position = 0;
  };

  // Reads the manifest's file, and sets `path` to its name.
  absl::StatusOr<std::string> ReadManifest(absl::string_view id, std::string* path);
  // Returns ALREADY_EXISTS, naming the manifest, if there is one.
  absl::Status CheckAbsent(absl::string_view id);
  // Writes the manifest into `file`, after checking that every file it names exists and the attempt
  // was not abandoned.
  absl::Status WriteManifest(const v1::CheckpointManifest& manifest, absl::string_view stem,
                             disk::File& file);
  // Reads and checks every byte of the file.
  absl::Status VerifyFile(const v1::CheckpointManifest& manifest, int index);
  // Checks that the file's header agrees with the manifest.
  absl::Status CheckHeader(const v1::CheckpointManifest& manifest, int file, CheckedFile& checked);
  // Returns checkpoints of `job`, newest first; adds those that cannot be loaded to `skipped`.
  absl::StatusOr<std::vector<Candidate>> NewestFirst(absl::string_view job,
                                                     std::vector<SkippedCheckpoint>* skipped);
  // Removes the files of a checkpoint whose manifest is removed.
  absl::Status RemoveFiles(const std::vector<std::string>& names);
  // Returns false, and leaves the checkpoint, if a restore uses it or may use it.
  absl::StatusOr<bool> RemoveUnlessRestored(const v1::CheckpointManifest& manifest,
                                            const RetentionView& view);
  // Removes marks of finished restores, of a checkpoint that stays.
  absl::Status RemoveOldMarks(absl::string_view id, const RetentionView& view);
  // Removes marks without a manifest, and the files that those name.
  absl::Status FinishRemovals();

  disk::Directory& directory_;
};

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
