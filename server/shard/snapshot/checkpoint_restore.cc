#include "server/shard/snapshot/checkpoint_restore.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "job/settings.h"
#include "job/workers.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/checkpoint/state_tensors.h"
#include "server/shard/parameters/tensor_load.h"
#include "server/tier/host_view.h"

namespace kaon::shard {

namespace {

using google::protobuf::util::MessageDifferencer;

// Elements held at once; a multiple of the elements of an int8 group.
constexpr uint64_t kPiece = uint64_t{1} << 18;
static_assert(kPiece * sizeof(float) <= tier::kFilledBytes, "a piece is filled at once");

// Clears shards, workers and tiers, which are those of the job that loads the checkpoint.
v1::RegisterBody WithoutCluster(v1::RegisterBody registration) {
  job::KeepWorkers({}, registration);
  job::KeepTiers({}, registration);
  registration.mutable_placement()->clear_num_shards();
  for (v1::ParameterPlacement& parameter :
       *registration.mutable_placement()->mutable_parameters()) {
    parameter.clear_shard();
  }
  return registration;
}

absl::Status CheckSame(const v1::RestoreBody& restore, const v1::CheckpointManifest& manifest) {
  const char* differs = nullptr;
  if (!MessageDifferencer::Equals(WithoutCluster(restore.registration()),
                                  WithoutCluster(manifest.registration()))) {
    differs = "registration";
  } else if (restore.step() != manifest.step()) {
    differs = "step";
  } else if (!MessageDifferencer::Equals(restore.last_decision(),
                                         manifest.last_record().decision())) {
    differs = "last decision";
  }
  if (differs == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the restore of checkpoint ", manifest.id(),
                                                 " has another ", differs, " than its manifest"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointRestore>> CheckpointRestore::Open(
    disk::Directory& files, const v1::RestoreBody& restore) {
  checkpoint::CheckpointDirectory directory(files);
  KAON_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, directory.Load(restore.checkpoint()));
  KAON_ASSIGN_OR_RETURN(const std::string sha256, directory.ManifestDigest(restore.checkpoint()));
  if (sha256 != restore.manifest_sha256()) {
    return absl::DataLossError(absl::StrCat("manifest of checkpoint ", restore.checkpoint(),
                                            " has SHA-256 ", absl::BytesToHexString(sha256),
                                            ", the restore is of the one with ",
                                            absl::BytesToHexString(restore.manifest_sha256())));
  }
  KAON_RETURN_IF_ERROR(CheckSame(restore, manifest));
  return std::unique_ptr<CheckpointRestore>(
      new CheckpointRestore(files, restore, std::move(manifest)));
}

CheckpointRestore::CheckpointRestore(disk::Directory& files, const v1::RestoreBody& restore,
                                     v1::CheckpointManifest manifest)
    : directory_(files), restore_(restore), reader_(directory_, std::move(manifest)) {
  for (const v1::CheckpointTensor& run : reader_.manifest().tensors()) runs_.push_back(&run);
  std::sort(runs_.begin(), runs_.end(), [](const auto* a, const auto* b) {
    return std::make_tuple(a->file(), a->offset()) < std::make_tuple(b->file(), b->offset());
  });
}

absl::Status CheckpointRestore::Check(uint32_t shard) {
  const auto& placement = restore_.registration().placement().parameters();
  std::string bytes;
  for (const v1::CheckpointTensor* run : runs_) {
    if (placement[static_cast<int>(run->parameter_id())].shard() != shard) continue;
    const uint64_t end = run->first_element() + run->num_elements();
    for (uint64_t first = run->first_element(); first < end; first += kPiece) {
      const uint64_t count = std::min(kPiece, end - first);
      bytes.resize(checkpoint::StateBytes(run->dtype(), first + count) -
                   checkpoint::StateBytes(run->dtype(), first));
      KAON_RETURN_IF_ERROR(
          reader_.Read(run->parameter_id(), run->role(), first, count, absl::MakeSpan(bytes)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointRestore::LoadRun(const v1::CheckpointTensor& run, kernels::Backend& backend,
                                        kernels::Region tensor) {
  const uint64_t end = run.first_element() + run.num_elements();
  // Host memory is read in one piece.
  const uint64_t most = tensor.space() == kernels::Space::kHost ? run.num_elements() : kPiece;
  for (uint64_t first = run.first_element(); first < end; first += most) {
    const uint64_t count = std::min(most, end - first);
    const uint64_t offset = checkpoint::StateBytes(run.dtype(), first);
    const uint64_t size = checkpoint::StateBytes(run.dtype(), first + count) - offset;
    KAON_RETURN_IF_ERROR(
        tier::FillRegion(backend, tensor.Sub(offset, size), [&](uint64_t, absl::Span<char> piece) {
          return reader_.Read(run.parameter_id(), run.role(), first, count, piece);
        }));
  }
  return absl::OkStatus();
}

absl::Status CheckpointRestore::Load(
    ParameterStore& store, ParameterPublisher& publisher,
    const std::function<void(uint32_t parameter_id, int version)>& before_write) {
  for (StoredParameter& parameter : store.parameters()) {
    const v1::CheckpointParameter& counted =
        reader_.manifest().parameters(static_cast<int>(parameter.id));
    parameter.updates_applied = counted.updates_applied();
    parameter.newton_schulz_updates = counted.newton_schulz_updates();
  }
  return LoadTensors(runs_, restore_.step(), store, publisher, before_write,
                     [&](const v1::CheckpointTensor& run, kernels::Region to) -> absl::Status {
                       if (to.empty()) return absl::OkStatus();
                       KAON_RETURN_IF_ERROR(LoadRun(run, store.backend(), to));
                       PassFailpoint(Failpoint::restore_run_loaded);
                       return absl::OkStatus();
                     });
}

}  // namespace kaon::shard
