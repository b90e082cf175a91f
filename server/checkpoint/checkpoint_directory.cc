#include "server/checkpoint/checkpoint_directory.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "job/effective_job.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/checkpoint/finite_state.h"
#include "server/checkpoint/manifest_file.h"
#include "server/checkpoint/safetensors/safetensors_reader.h"
#include "server/checkpoint/state_place.h"
#include "server/checkpoint/state_tensors.h"
#include "server/disk/device_error.h"
#include "server/disk/remove_if_there.h"

namespace kaon::checkpoint {

namespace {

constexpr absl::string_view kManifest = ".manifest";
constexpr absl::string_view kUncommittedManifest = ".manifest.tmp";
// Marks an attempt that must not be committed any more.
constexpr absl::string_view kGivenUp = ".given-up";
constexpr absl::string_view kShard = ".shard-";
constexpr size_t kAttemptDigits = 16;

// Returns the attempt of one of its files; nullopt for any other name.
std::optional<CheckpointAttempt> AttemptOf(absl::string_view name) {
  const size_t dot = name.find('.');
  if (dot == absl::string_view::npos || !CheckId(name.substr(0, dot)).ok()) return std::nullopt;
  const absl::string_view id = name.substr(0, dot);
  name.remove_prefix(dot + 1);
  if (name.size() <= kAttemptDigits || name[kAttemptDigits] != '.') return std::nullopt;
  const absl::string_view digits = name.substr(0, kAttemptDigits);
  if (digits.find_first_not_of("0123456789abcdef") != absl::string_view::npos) return std::nullopt;
  uint64_t number = 0;
  if (!absl::SimpleHexAtoi(digits, &number)) return std::nullopt;
  return CheckpointAttempt{std::string(id), number};
}

// Returns the stem that all files share; INVALID_ARGUMENT names two files of different attempts.
absl::StatusOr<std::string> StemOf(const v1::CheckpointManifest& manifest) {
  std::string stem = manifest.id();
  for (int i = 0; i < manifest.files_size(); ++i) {
    const std::string& name = manifest.files(i).name();
    const std::string of_file = name.substr(0, name.find(std::string(kShard)));
    if (i > 0 && of_file != stem) {
      return absl::InvalidArgumentError(absl::StrCat("checkpoint ", manifest.id(), ": file ", name,
                                                     " is of another attempt than ",
                                                     manifest.files(i - 1).name()));
    }
    stem = of_file;
  }
  return stem;
}

bool IsOf(const v1::CheckpointManifest& manifest, absl::string_view stem) {
  return std::any_of(manifest.files().begin(), manifest.files().end(),
                     [&stem](const v1::CheckpointFile& file) {
                       return absl::StartsWith(file.name(), absl::StrCat(stem, kShard));
                     });
}

absl::Status WasGivenUp(absl::string_view stem) {
  return absl::FailedPreconditionError(
      absl::StrCat("attempt ", stem, " was given up by another coordinator"));
}

absl::StatusOr<std::string> ReadWhole(disk::File& file, uint64_t max_bytes) {
  KAON_ASSIGN_OR_RETURN(const uint64_t size, file.Size());
  if (size > max_bytes) {
    return absl::DataLossError(absl::StrCat("file ", file.path(), " is ", size,
                                            " bytes long, expecting at most ", max_bytes));
  }
  std::string bytes(size, '\0');
  KAON_ASSIGN_OR_RETURN(const size_t read, file.Read(0, size, bytes.data()));
  bytes.resize(read);
  return bytes;
}

absl::Status Differs(absl::string_view path, const Tensor& is, const Tensor& expected) {
  const auto describe = [](const Tensor& tensor) {
    return absl::StrCat(Quoted(tensor.name), " ", NameOf(tensor.type), " at ", tensor.begin, " to ",
                        tensor.end);
  };
  return absl::DataLossError(absl::StrCat("file ", path, " has tensor ", describe(is),
                                          ", the manifest has ", describe(expected)));
}

}  // namespace

std::string CheckpointDirectory::Stem(absl::string_view id, std::optional<uint64_t> attempt) {
  if (!attempt.has_value()) return std::string(id);
  return absl::StrCat(id, ".", absl::Hex(*attempt, absl::kZeroPad16));
}

std::string CheckpointDirectory::FileName(absl::string_view stem, uint32_t shard,
                                          uint32_t num_shards, uint32_t index) {
  return absl::StrFormat("%s%s%05d-of-%05d.%04d.safetensors", stem, kShard, shard, num_shards,
                         index);
}

std::string CheckpointDirectory::ManifestName(absl::string_view id) {
  return absl::StrCat(id, kManifest);
}

absl::StatusOr<std::unique_ptr<disk::File>> CheckpointDirectory::CreateFile(
    absl::string_view id, std::optional<uint64_t> attempt, uint32_t shard, uint32_t num_shards,
    uint32_t index) {
  KAON_RETURN_IF_ERROR(CheckId(id));
  // A pending removal of this id removes files by name.
  KAON_RETURN_IF_ERROR(CheckNotRemoved(id));
  return directory_.Create(FileName(Stem(id, attempt), shard, num_shards, index));
}

absl::StatusOr<std::unique_ptr<CheckedFile>> CheckpointDirectory::Open(
    const v1::CheckpointFile& file) {
  KAON_ASSIGN_OR_RETURN(std::unique_ptr<disk::File> opened, directory_.Open(file.name()));
  return CheckedFile::Create(std::move(opened), SumsOf(file));
}

absl::Status CheckpointDirectory::CheckHeader(const v1::CheckpointManifest& manifest, int file,
                                              CheckedFile& checked) {
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> reader,
                        SafetensorsReader::Open(checked, kOurFiles));
  std::vector<const v1::CheckpointTensor*> expected;
  for (const v1::CheckpointTensor& tensor : manifest.tensors()) {
    if (tensor.file() == static_cast<uint32_t>(file)) expected.push_back(&tensor);
  }
  std::sort(expected.begin(), expected.end(),
            [](const auto* a, const auto* b) { return a->offset() < b->offset(); });
  const std::vector<Tensor>& tensors = reader->header().tensors;
  if (tensors.size() != expected.size()) {
    return absl::DataLossError(absl::StrCat("file ", checked.path(), " has ", tensors.size(),
                                            " tensors, the manifest has ", expected.size()));
  }
  const v1::JobDefinition& job = manifest.registration().definition();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto id = static_cast<int>(expected[i]->parameter_id());
    Tensor tensor = TensorInFile(job.parameters(id), *expected[i]);
    // An offset inside the header wraps around, and so differs.
    tensor.begin = expected[i]->offset() - reader->header().first_byte;
    tensor.end = tensor.begin + StateBytes(expected[i]->dtype(), expected[i]->num_elements());
    if (!(tensors[i] == tensor)) return Differs(checked.path(), tensors[i], tensor);
  }
  return absl::OkStatus();
}

absl::Status CheckpointDirectory::CheckAbsent(absl::string_view id) {
  const absl::StatusOr<std::unique_ptr<disk::File>> existing = directory_.Open(ManifestName(id));
  if (existing.ok()) {
    return absl::AlreadyExistsError(
        absl::StrCat("checkpoint ", id, " is there: ", (*existing)->path()));
  }
  return absl::IsNotFound(existing.status()) ? absl::OkStatus() : existing.status();
}

absl::Status CheckpointDirectory::WriteManifest(const v1::CheckpointManifest& manifest,
                                                absl::string_view stem, disk::File& file) {
  const absl::Status given_up = directory_.Open(absl::StrCat(stem, kGivenUp)).status();
  if (given_up.ok()) return WasGivenUp(stem);
  if (!absl::IsNotFound(given_up)) return given_up;
  for (int i = 0; i < manifest.files_size(); ++i) {
    KAON_ASSIGN_OR_RETURN(const std::unique_ptr<CheckedFile> named, Open(manifest.files(i)));
    KAON_RETURN_IF_ERROR(CheckHeader(manifest, i, *named));
  }
  KAON_ASSIGN_OR_RETURN(const std::string bytes, FormatManifest(manifest));
  KAON_RETURN_IF_ERROR(file.Write(0, {bytes}));
  PassFailpoint(Failpoint::manifest_written);
  KAON_RETURN_IF_ERROR(file.Sync());
  PassFailpoint(Failpoint::manifest_synced);
  // Meanwhile another attempt may have become this checkpoint.
  return CheckAbsent(manifest.id());
}

absl::Status CheckpointDirectory::Commit(const v1::CheckpointManifest& manifest) {
  KAON_RETURN_IF_ERROR(CheckManifest(manifest));
  KAON_ASSIGN_OR_RETURN(const std::string stem, StemOf(manifest));
  KAON_RETURN_IF_ERROR(CheckAbsent(manifest.id()));
  // Create this file first: GiveUp of the attempt removes it, and then the rename fails.
  const std::string uncommitted = absl::StrCat(stem, kUncommittedManifest);
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<disk::File> file, directory_.Create(uncommitted));
  const absl::Status written = WriteManifest(manifest, stem, *file);
  if (!written.ok()) {
    // Report the first error, and ignore errors of the cleanup.
    directory_.Remove(uncommitted).IgnoreError();
    return written;
  }
  const absl::Status renamed = directory_.Rename(uncommitted, ManifestName(manifest.id()));
  if (absl::IsNotFound(renamed)) return WasGivenUp(stem);
  KAON_RETURN_IF_ERROR(renamed);
  PassFailpoint(Failpoint::manifest_renamed);
  KAON_RETURN_IF_ERROR(directory_.Sync());
  PassFailpoint(Failpoint::manifest_durable);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> CheckpointDirectory::List() {
  KAON_ASSIGN_OR_RETURN(const std::vector<std::string> names, directory_.List());
  std::vector<std::string> ids;
  for (absl::string_view name : names) {
    if (absl::ConsumeSuffix(&name, kManifest) && CheckId(name).ok()) ids.emplace_back(name);
  }
  return ids;
}

absl::StatusOr<std::string> CheckpointDirectory::ReadManifest(absl::string_view id,
                                                              std::string* path) {
  KAON_RETURN_IF_ERROR(CheckId(id));
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<disk::File> file, directory_.Open(ManifestName(id)));
  *path = file->path();
  // Enough for the line, the length and the digest around the message.
  constexpr uint64_t kFrameBytes = 4096;
  return ReadWhole(*file, kMaxManifestBytes + kFrameBytes);
}

absl::StatusOr<std::string> CheckpointDirectory::ManifestDigest(absl::string_view id) {
  std::string path;
  KAON_ASSIGN_OR_RETURN(const std::string bytes, ReadManifest(id, &path));
  return Sha256(bytes);
}

absl::StatusOr<v1::CheckpointManifest> CheckpointDirectory::Load(absl::string_view id) {
  std::string path;
  KAON_ASSIGN_OR_RETURN(const std::string bytes, ReadManifest(id, &path));
  KAON_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, ParseManifest(path, bytes));
  if (manifest.id() != id) {
    return absl::DataLossError(absl::StrCat("manifest ", path, " is of checkpoint ",
                                            Quoted(manifest.id()), ", expecting ", Quoted(id)));
  }
  // An option that is newer than the checkpoint counts as unset.
  v1::JobDefinition& job = *manifest.mutable_registration()->mutable_definition();
  KAON_ASSIGN_OR_RETURN(job, job::Effective(job));
  KAON_RETURN_IF_ERROR(CheckManifest(manifest));
  return manifest;
}

absl::StatusOr<v1::CheckpointManifest> CheckpointDirectory::Verify(absl::string_view id) {
  KAON_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, Load(id));
  for (int i = 0; i < manifest.files_size(); ++i) {
    KAON_RETURN_IF_ERROR(OfState(VerifyFile(manifest, i), manifest.step(), manifest.position()));
  }
  return manifest;
}

absl::Status CheckpointDirectory::VerifyFile(const v1::CheckpointManifest& manifest, int index) {
  const absl::StatusOr<std::unique_ptr<CheckedFile>> file = Open(manifest.files(index));
  if (absl::IsNotFound(file.status())) {
    return absl::DataLossError(absl::StrCat("file ", manifest.files(index).name(), " of ",
                                            manifest.files(index).size(),
                                            " bytes is missing: ", file.status().message()));
  }
  if (!file.ok()) return file.status();
  KAON_RETURN_IF_ERROR((*file)->Verify());
  KAON_RETURN_IF_ERROR(CheckHeader(manifest, index, **file));
  return CheckFinite(manifest, index, **file);
}

absl::StatusOr<std::vector<CheckpointDirectory::Candidate>> CheckpointDirectory::NewestFirst(
    absl::string_view job, std::vector<SkippedCheckpoint>* skipped) {
  KAON_ASSIGN_OR_RETURN(const std::vector<std::string> names, directory_.List());
  std::set<std::string> ids;
  for (const std::string& name : names) {
    if (IsMark(name)) continue;
    const absl::string_view id = absl::string_view(name).substr(0, name.find('.'));
    if (CheckId(id).ok() && id.size() < name.size()) ids.emplace(id);
  }
  std::vector<Candidate> candidates;
  for (const std::string& id : ids) {
    const absl::StatusOr<v1::CheckpointManifest> manifest = Load(id);
    if (absl::IsNotFound(manifest.status())) {
      skipped->push_back({id, "it has no manifest: it was never finished"});
    } else if (disk::IsDeviceError(manifest.status())) {
      return manifest.status();
    } else if (!manifest.ok()) {
      skipped->push_back({id, manifest.status().ToString()});
    } else if (manifest->job() != job) {
      skipped->push_back({id, absl::StrCat("it is of job ", Quoted(manifest->job()), ", expecting ",
                                           Quoted(job))});
    } else {
      candidates.push_back({id, manifest->timeline(), manifest->position()});
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.timeline, a.position, a.id) > std::tie(b.timeline, b.position, b.id);
  });
  return candidates;
}

absl::StatusOr<FoundCheckpoint> CheckpointDirectory::FindNewest(absl::string_view job) {
  FoundCheckpoint found;
  KAON_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, NewestFirst(job, &found.skipped));
  for (const Candidate& candidate : candidates) {
    if (const absl::Status stays = CheckNotRemoved(candidate.id); !stays.ok()) {
      if (disk::IsDeviceError(stays)) return stays;
      found.skipped.push_back({candidate.id, stays.ToString()});
      continue;
    }
    absl::StatusOr<v1::CheckpointManifest> manifest = Verify(candidate.id);
    if (manifest.ok()) {
      found.newest = std::move(manifest).value();
      break;
    }
    if (disk::IsDeviceError(manifest.status())) return manifest.status();
    found.skipped.push_back({candidate.id, manifest.status().ToString()});
  }
  return found;
}

absl::StatusOr<RetainedCheckpoints> CheckpointDirectory::Retain(
    absl::string_view job, size_t keep, absl::Span<const RestoredCheckpoint> restored,
    const LogPoint& reached) {
  if (keep < kMinKept) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoints to keep: ", keep, ", expecting at least ", kMinKept));
  }
  RetainedCheckpoints retained;
  KAON_RETURN_IF_ERROR(FinishRemovals());
  KAON_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates,
                        NewestFirst(job, &retained.skipped));
  RetentionView view{reached, {}};
  // Newer checkpoints come first. Those of a timeline that the restore left do not replace the
  // restored one.
  const auto is_needed = [&](const Candidate& candidate) {
    return std::any_of(restored.begin(), restored.end(), [&](const RestoredCheckpoint& one) {
      const auto since = std::count_if(view.newer.begin(), view.newer.end(),
                                       [&one](uint64_t newer) { return newer >= one.timeline; });
      return one.id == candidate.id && static_cast<size_t>(since) < kMinKept;
    });
  };
  for (const Candidate& candidate : candidates) {
    // Verify old ones too: a bad one is evidence, and its files may help to repair another.
    const absl::StatusOr<v1::CheckpointManifest> manifest = Verify(candidate.id);
    if (!manifest.ok()) {
      retained.skipped.push_back({candidate.id, manifest.status().ToString()});
      continue;
    }
    const bool stays = retained.kept.size() < keep || is_needed(candidate);
    // No restore can use it any more, so it does not count as kept. It is removed once there are
    // enough.
    if (stays && !CheckNotRemoved(candidate.id).ok()) continue;
    if (!stays) {
      PassFailpoint(Failpoint::checkpoint_retain_begin);
      KAON_ASSIGN_OR_RETURN(const bool removed, RemoveUnlessRestored(*manifest, view));
      if (removed) {
        retained.removed.push_back(candidate.id);
        continue;
      }
    }
    KAON_RETURN_IF_ERROR(RemoveOldMarks(candidate.id, view));
    retained.kept.push_back(candidate.id);
    view.newer.push_back(candidate.timeline);
  }
  return retained;
}

absl::StatusOr<bool> CheckpointDirectory::RemoveUnlessRestored(
    const v1::CheckpointManifest& manifest, const RetentionView& view) {
  const std::string& id = manifest.id();
  // Look before setting the mark too, because that mark is never withdrawn.
  KAON_ASSIGN_OR_RETURN(RestoreMarks marks, FindRestoreMarks(directory_, id, view, kMinKept));
  if (!marks.keeping.empty()) return false;
  std::vector<std::string> files;
  for (const v1::CheckpointFile& file : manifest.files()) files.push_back(file.name());
  KAON_RETURN_IF_ERROR(MarkRemoval(directory_, id, files));
  KAON_ASSIGN_OR_RETURN(marks, FindRestoreMarks(directory_, id, view, kMinKept));
  if (!marks.keeping.empty()) return false;
  // Remove the manifest first, durably, so that no manifest is ever left without its files. Another
  // retention may have removed it already.
  KAON_RETURN_IF_ERROR(disk::RemoveIfThere(directory_, ManifestName(id)));
  PassFailpoint(Failpoint::checkpoint_manifest_removed);
  KAON_RETURN_IF_ERROR(RemoveFiles(files));
  for (const std::string& name : marks.over) {
    KAON_RETURN_IF_ERROR(disk::RemoveIfThere(directory_, name));
  }
  KAON_RETURN_IF_ERROR(disk::RemoveIfThere(directory_, RemovalMarkName(id)));
  KAON_RETURN_IF_ERROR(directory_.Sync());
  return true;
}

absl::Status CheckpointDirectory::RemoveOldMarks(absl::string_view id, const RetentionView& view) {
  KAON_ASSIGN_OR_RETURN(const RestoreMarks marks, FindRestoreMarks(directory_, id, view, kMinKept));
  for (const std::string& name : marks.over) {
    KAON_RETURN_IF_ERROR(disk::RemoveIfThere(directory_, name));
  }
  return absl::OkStatus();
}

absl::Status CheckpointDirectory::FinishRemovals() {
  KAON_ASSIGN_OR_RETURN(const std::vector<std::string> names, directory_.List());
  for (const std::string& name : names) {
    const std::string id = name.substr(0, name.find('.'));
    if (!IsMark(name) || !absl::IsNotFound(directory_.Open(ManifestName(id)).status())) continue;
    if (name == RemovalMarkName(id)) {
      const absl::StatusOr<std::vector<std::string>> files = FilesToRemove(directory_, id);
      if (absl::IsNotFound(files.status())) continue;
      KAON_RETURN_IF_ERROR(files.status());
      KAON_RETURN_IF_ERROR(RemoveFiles(*files));
    }
    KAON_RETURN_IF_ERROR(disk::RemoveIfThere(directory_, name));
  }
  return absl::OkStatus();
}

absl::Status CheckpointDirectory::RemoveFiles(const std::vector<std::string>& names) {
  KAON_RETURN_IF_ERROR(directory_.Sync());
  PassFailpoint(Failpoint::checkpoint_removal_durable);
  for (const std::string& name : names) {
    KAON_RETURN_IF_ERROR(disk::RemoveIfThere(directory_, name));
  }
  PassFailpoint(Failpoint::checkpoint_files_removed);
  return directory_.Sync();
}

absl::StatusOr<std::vector<CheckpointAttempt>> CheckpointDirectory::Unfinished() {
  KAON_ASSIGN_OR_RETURN(const std::vector<std::string> names, directory_.List());
  std::map<std::string, CheckpointAttempt> found;
  for (const std::string& name : names) {
    const std::optional<CheckpointAttempt> attempt = AttemptOf(name);
    if (attempt.has_value()) found[Stem(attempt->id, attempt->number)] = *attempt;
  }
  std::vector<CheckpointAttempt> unfinished;
  for (const auto& [stem, attempt] : found) {
    const absl::StatusOr<v1::CheckpointManifest> manifest = Load(attempt.id);
    const bool is_other = manifest.ok() && !IsOf(*manifest, stem);
    if (is_other || absl::IsNotFound(manifest.status())) unfinished.push_back(attempt);
  }
  return unfinished;
}

absl::StatusOr<std::map<std::string, std::string>> CheckpointDirectory::UnfinishedImports() {
  KAON_ASSIGN_OR_RETURN(const std::vector<std::string> names, directory_.List());
  std::map<std::string, std::string> found;
  for (const std::string& name : names) {
    const std::string id = name.substr(0, name.find('.'));
    if (!CheckId(id).ok() || found.count(id) > 0) continue;
    if (name != absl::StrCat(id, kUncommittedManifest) &&
        !absl::StartsWith(name, absl::StrCat(id, kShard))) {
      continue;
    }
    const bool finished = std::binary_search(names.begin(), names.end(), ManifestName(id));
    if (!finished) found.emplace(id, name);
  }
  return found;
}

absl::Status CheckpointDirectory::RemoveAttempt(const CheckpointAttempt& attempt) {
  KAON_RETURN_IF_ERROR(CheckId(attempt.id));
  const std::string stem = Stem(attempt.id, attempt.number);
  const absl::StatusOr<v1::CheckpointManifest> manifest = Load(attempt.id);
  if (manifest.ok() && IsOf(*manifest, stem)) return absl::OkStatus();
  if (!manifest.ok() && !absl::IsNotFound(manifest.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat("files of attempt ", stem, " are left, as the manifest of checkpoint ",
                     attempt.id, " cannot be read: ", manifest.status().ToString()));
  }
  KAON_ASSIGN_OR_RETURN(const std::vector<std::string> names, directory_.List());
  for (const std::string& name : names) {
    // The mark that the attempt was abandoned stays: its maker removes it last.
    if (name != absl::StrCat(stem, kUncommittedManifest) &&
        !absl::StartsWith(name, absl::StrCat(stem, kShard))) {
      continue;
    }
    KAON_RETURN_IF_ERROR(disk::RemoveIfThere(directory_, name));
  }
  return directory_.Sync();
}

absl::Status CheckpointDirectory::GiveUp(const CheckpointAttempt& attempt) {
  KAON_RETURN_IF_ERROR(CheckId(attempt.id));
  const std::string stem = Stem(attempt.id, attempt.number);
  const std::string mark = absl::StrCat(stem, kGivenUp);
  // Commit creates its file, looks for this mark, looks for the files, and then renames. So one of
  // these holds:
  // - Commit sees the mark;
  // - its rename fails, because its file is gone;
  // - RemoveAttempt below sees the manifest;
  // - the mark is gone again, and a file of the attempt is gone too.
  const absl::Status marked = directory_.Create(mark).status();
  if (!marked.ok() && !absl::IsAlreadyExists(marked)) return marked;
  KAON_RETURN_IF_ERROR(disk::RemoveIfThere(directory_, absl::StrCat(stem, kUncommittedManifest)));
  KAON_RETURN_IF_ERROR(directory_.Sync());
  const absl::Status removed = RemoveAttempt(attempt);
  const absl::Status unmarked = disk::RemoveIfThere(directory_, mark);
  KAON_RETURN_IF_ERROR(removed);
  KAON_RETURN_IF_ERROR(unmarked);
  return directory_.Sync();
}

}  // namespace kaon::checkpoint
