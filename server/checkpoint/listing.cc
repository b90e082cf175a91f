#include "server/checkpoint/listing.h"

#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/status_macros.h"
#include "server/checkpoint/state_place.h"

namespace kaon::checkpoint {

namespace {

absl::Status CheckSizes(CheckpointDirectory& directory, const v1::CheckpointManifest& manifest) {
  for (const v1::CheckpointFile& file : manifest.files()) {
    KAON_RETURN_IF_ERROR(
        OfState(directory.Open(file).status(), manifest.step(), manifest.position()));
  }
  return absl::OkStatus();
}

// Returns when the manifest was written, or 0 if the directory is none of the file system.
int64_t CreatedMillis(const CheckpointDirectory& directory, const std::string& id) {
  const std::string path =
      absl::StrCat(directory.path(), "/", CheckpointDirectory::ManifestName(id));
  struct stat facts;
  if (stat(path.c_str(), &facts) != 0) return 0;
  return absl::ToUnixMillis(absl::TimeFromTimespec(facts.st_mtim));
}

auto AgeOf(const v1::CheckpointSummary& summary) {
  return std::make_tuple(summary.timeline(), summary.position(), absl::string_view(summary.id()));
}

}  // namespace

v1::CheckpointSummary SummaryOf(const v1::CheckpointManifest& manifest) {
  v1::CheckpointSummary summary;
  summary.set_id(manifest.id());
  summary.set_job(manifest.job());
  summary.set_timeline(manifest.timeline());
  summary.set_position(manifest.position());
  summary.set_step(manifest.step());
  std::set<uint32_t> shards;
  for (const v1::CheckpointFile& file : manifest.files()) {
    summary.set_bytes(summary.bytes() + file.size());
    shards.insert(file.shard());
  }
  summary.set_num_shards(static_cast<uint32_t>(shards.size()));
  summary.set_weights_digest(manifest.weights_digest());
  summary.set_state_digest(manifest.state_digest());
  return summary;
}

v1::CheckpointRow RowOf(const SkippedCheckpoint& skipped) {
  v1::CheckpointRow row;
  row.mutable_checkpoint()->set_id(skipped.id);
  row.set_problem(skipped.reason);
  return row;
}

absl::StatusOr<v1::ListCheckpointsResponse> ListCheckpoints(CheckpointDirectory& directory,
                                                            absl::string_view job) {
  KAON_ASSIGN_OR_RETURN(const std::vector<std::string> ids, directory.List());
  std::vector<v1::CheckpointSummary> good;
  std::vector<v1::CheckpointRow> bad;
  for (const std::string& id : ids) {
    const absl::StatusOr<v1::CheckpointManifest> manifest = directory.Load(id);
    absl::Status status = manifest.status();
    // Nobody knows the job of a manifest that cannot be read, so it is shown for every job.
    if (status.ok() && !job.empty() && manifest->job() != job) continue;
    if (status.ok()) status = CheckSizes(directory, *manifest);
    if (status.ok()) status = directory.CheckNotRemoved(id);
    if (status.ok()) {
      good.push_back(SummaryOf(*manifest));
      good.back().set_created_unix_millis(CreatedMillis(directory, id));
    } else {
      bad.push_back(RowOf({id, status.ToString()}));
    }
  }
  KAON_ASSIGN_OR_RETURN(const auto imports, directory.UnfinishedImports());
  for (const auto& [id, file] : imports) {
    bad.push_back(RowOf({id, absl::StrCat("it has no manifest: an import is writing ", file,
                                          ", or was killed and has left it")}));
  }
  std::sort(good.begin(), good.end(),
            [](const auto& a, const auto& b) { return AgeOf(a) > AgeOf(b); });
  v1::ListCheckpointsResponse response;
  for (v1::CheckpointSummary& summary : good) {
    *response.add_checkpoints()->mutable_checkpoint() = std::move(summary);
  }
  for (v1::CheckpointRow& row : bad) *response.add_checkpoints() = std::move(row);
  return response;
}

}  // namespace kaon::checkpoint
