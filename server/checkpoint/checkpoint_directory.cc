#include "server/checkpoint/checkpoint_directory.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "job/effective.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/checkpoint/manifest.h"
#include "server/checkpoint/manifest_file.h"
#include "server/checkpoint/safetensors_reader.h"
#include "server/checkpoint/state_tensors.h"

namespace kaon::checkpoint {

namespace {

constexpr absl::string_view kManifest = ".manifest";
constexpr absl::string_view kUncommittedManifest = ".manifest.tmp";

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

std::string CheckpointDirectory::FileName(absl::string_view id, uint32_t shard, uint32_t num_shards,
                                          uint32_t index) {
  return absl::StrFormat("%s.shard-%05d-of-%05d.%04d.safetensors", id, shard, num_shards, index);
}

std::string CheckpointDirectory::ManifestName(absl::string_view id) {
  return absl::StrCat(id, kManifest);
}

absl::StatusOr<std::unique_ptr<disk::File>> CheckpointDirectory::CreateFile(absl::string_view id,
                                                                            uint32_t shard,
                                                                            uint32_t num_shards,
                                                                            uint32_t index) {
  KAON_RETURN_IF_ERROR(CheckId(id));
  return directory_.Create(FileName(id, shard, num_shards, index));
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
    // An offset inside the header wraps, and differs.
    tensor.begin = expected[i]->offset() - reader->header().first_byte;
    tensor.end = tensor.begin + StateBytes(expected[i]->dtype(), expected[i]->num_elements());
    if (!(tensors[i] == tensor)) return Differs(checked.path(), tensors[i], tensor);
  }
  return absl::OkStatus();
}

absl::Status CheckpointDirectory::Commit(const v1::CheckpointManifest& manifest) {
  KAON_RETURN_IF_ERROR(CheckManifest(manifest));
  KAON_ASSIGN_OR_RETURN(const std::string bytes, FormatManifest(manifest));
  const std::string name = ManifestName(manifest.id());
  const absl::StatusOr<std::unique_ptr<disk::File>> existing = directory_.Open(name);
  if (existing.ok()) {
    return absl::AlreadyExistsError(
        absl::StrCat("checkpoint ", manifest.id(), " is there: ", (*existing)->path()));
  }
  if (!absl::IsNotFound(existing.status())) return existing.status();
  for (int i = 0; i < manifest.files_size(); ++i) {
    KAON_ASSIGN_OR_RETURN(const std::unique_ptr<CheckedFile> file, Open(manifest.files(i)));
    KAON_RETURN_IF_ERROR(CheckHeader(manifest, i, *file));
  }
  const std::string uncommitted = absl::StrCat(manifest.id(), kUncommittedManifest);
  const absl::Status removed = directory_.Remove(uncommitted);
  if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<disk::File> file, directory_.Create(uncommitted));
  KAON_RETURN_IF_ERROR(file->Write(0, {bytes}));
  PassFailpoint(Failpoint::manifest_written);
  KAON_RETURN_IF_ERROR(file->Sync());
  PassFailpoint(Failpoint::manifest_synced);
  KAON_RETURN_IF_ERROR(directory_.Rename(uncommitted, name));
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
  // The line, the length and the digest around the message take less.
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
  // An option that was not there when the checkpoint was written is as if it was not set.
  v1::JobDefinition& job = *manifest.mutable_registration()->mutable_definition();
  KAON_ASSIGN_OR_RETURN(job, job::Effective(job));
  KAON_RETURN_IF_ERROR(CheckManifest(manifest));
  return manifest;
}

absl::StatusOr<v1::CheckpointManifest> CheckpointDirectory::Verify(absl::string_view id) {
  KAON_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, Load(id));
  for (int i = 0; i < manifest.files_size(); ++i) {
    const absl::StatusOr<std::unique_ptr<CheckedFile>> file = Open(manifest.files(i));
    if (absl::IsNotFound(file.status())) {
      return absl::DataLossError(absl::StrCat("file ", manifest.files(i).name(), " of ",
                                              manifest.files(i).size(),
                                              " bytes is missing: ", file.status().message()));
    }
    if (!file.ok()) return file.status();
    KAON_RETURN_IF_ERROR((*file)->Verify());
    KAON_RETURN_IF_ERROR(CheckHeader(manifest, i, **file));
  }
  return manifest;
}

absl::StatusOr<std::vector<CheckpointDirectory::Candidate>> CheckpointDirectory::NewestFirst(
    absl::string_view job, std::vector<SkippedCheckpoint>* skipped) {
  KAON_ASSIGN_OR_RETURN(const std::vector<std::string> names, directory_.List());
  std::set<std::string> ids;
  for (const std::string& name : names) {
    const absl::string_view id = absl::string_view(name).substr(0, name.find('.'));
    if (CheckId(id).ok() && id.size() < name.size()) ids.emplace(id);
  }
  std::vector<Candidate> candidates;
  for (const std::string& id : ids) {
    const absl::StatusOr<v1::CheckpointManifest> manifest = Load(id);
    if (absl::IsNotFound(manifest.status())) {
      skipped->push_back({id, "it has no manifest: it was never finished"});
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
    absl::StatusOr<v1::CheckpointManifest> manifest = Verify(candidate.id);
    if (manifest.ok()) {
      found.newest = std::move(manifest).value();
      break;
    }
    found.skipped.push_back({candidate.id, manifest.status().ToString()});
  }
  return found;
}

absl::StatusOr<RetainedCheckpoints> CheckpointDirectory::Retain(absl::string_view job,
                                                                size_t keep) {
  if (keep < kMinKept) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoints to keep: ", keep, ", expecting at least ", kMinKept));
  }
  RetainedCheckpoints retained;
  KAON_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates,
                        NewestFirst(job, &retained.skipped));
  for (const Candidate& candidate : candidates) {
    // Old ones too: a bad one is evidence, and its files may be what repairs another.
    const absl::StatusOr<v1::CheckpointManifest> manifest = Verify(candidate.id);
    if (!manifest.ok()) {
      retained.skipped.push_back({candidate.id, manifest.status().ToString()});
    } else if (retained.kept.size() < keep) {
      retained.kept.push_back(candidate.id);
    } else {
      PassFailpoint(Failpoint::checkpoint_retain_begin);
      KAON_RETURN_IF_ERROR(Remove(*manifest));
      retained.removed.push_back(candidate.id);
    }
  }
  return retained;
}

absl::Status CheckpointDirectory::Remove(const v1::CheckpointManifest& manifest) {
  // The manifest first, durably: no manifest is ever left without its files.
  KAON_RETURN_IF_ERROR(directory_.Remove(ManifestName(manifest.id())));
  PassFailpoint(Failpoint::checkpoint_manifest_removed);
  KAON_RETURN_IF_ERROR(directory_.Sync());
  PassFailpoint(Failpoint::checkpoint_removal_durable);
  KAON_RETURN_IF_ERROR(RemoveUncommitted(manifest.id()));
  PassFailpoint(Failpoint::checkpoint_files_removed);
  return absl::OkStatus();
}

absl::Status CheckpointDirectory::RemoveUncommitted(absl::string_view id) {
  KAON_RETURN_IF_ERROR(CheckId(id));
  KAON_ASSIGN_OR_RETURN(const std::vector<std::string> names, directory_.List());
  const std::string manifest = ManifestName(id);
  if (std::find(names.begin(), names.end(), manifest) != names.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint ", id, " is finished: ", directory_.path(), "/", manifest));
  }
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, absl::StrCat(id, "."))) continue;
    KAON_RETURN_IF_ERROR(directory_.Remove(name));
  }
  return directory_.Sync();
}

}  // namespace kaon::checkpoint
