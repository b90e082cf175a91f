#include "server/admin_cli/checkpoint_command.h"

#include <google/protobuf/util/json_util.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/dtype.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/admin_cli/table.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/export.h"
#include "server/checkpoint/import.h"
#include "server/checkpoint/listing.h"
#include "server/config/server_config.h"
#include "server/disk/posix_directory.h"
#include "server/monitor/units.h"

namespace kaon::admin_cli {

using monitor::Bytes;
using monitor::TimeText;

namespace {

// A file's directory and its name there.
struct Location {
  std::string directory;
  std::string name;
};

absl::StatusOr<Location> Locate(const std::string& path) {
  const size_t slash = path.rfind('/');
  Location location;
  location.directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  location.name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (!location.name.empty()) return location;
  return absl::InvalidArgumentError(absl::StrCat("'", proto::OneLine(path), "' names no file"));
}

}  // namespace

absl::StatusOr<v1::JobDefinition> ReadJobFile(const std::string& path) {
  v1::JobDefinition job;
  if (!absl::EndsWith(path, ".json")) {
    KAON_RETURN_IF_ERROR(config::LoadTextproto(path, &job));
    return job;
  }
  std::ifstream file(path);
  if (!file)
    return absl::NotFoundError(
        absl::StrCat("job file '", proto::OneLine(path), "' cannot be read"));
  std::stringstream text;
  text << file.rdbuf();
  const auto parsed = google::protobuf::util::JsonStringToMessage(text.str(), &job);
  if (parsed.ok()) return job;
  return absl::InvalidArgumentError(
      absl::StrCat("job file '", proto::OneLine(path),
                   "': ", proto::OneLine({parsed.message().data(), parsed.message().size()})));
}

absl::StatusOr<ExportedFile> ExportCheckpoint(const Options& options) {
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<disk::PosixDirectory> files,
                        disk::PosixDirectory::At(options.checkpoint_directory));
  checkpoint::CheckpointDirectory checkpoints(*files);
  KAON_ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest,
                        checkpoints.Load(options.checkpoint));
  KAON_ASSIGN_OR_RETURN(const Location to, Locate(options.file));
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<disk::PosixDirectory> directory,
                        disk::PosixDirectory::At(to.directory));
  const kernels::DType dtype =
      options.dtype == "bfloat16" ? kernels::DType::kBFloat16 : kernels::DType::kFloat32;
  KAON_ASSIGN_OR_RETURN(
      const checkpoint::FileSums sums,
      options.with_state
          ? checkpoint::ExportState(checkpoints, manifest, *directory, to.name)
          : checkpoint::ExportWeights(checkpoints, manifest, dtype, *directory, to.name));
  return ExportedFile{options.file, sums.num_bytes, absl::BytesToHexString(sums.sha256)};
}

absl::StatusOr<v1::CheckpointSummary> ImportCheckpoint(const Options& options) {
  KAON_ASSIGN_OR_RETURN(const v1::JobDefinition job, ReadJobFile(options.job_file));
  KAON_ASSIGN_OR_RETURN(const Location from, Locate(options.file));
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<disk::PosixDirectory> directory,
                        disk::PosixDirectory::At(from.directory));
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<disk::File> file, directory->Open(from.name));
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<disk::PosixDirectory> files,
                        disk::PosixDirectory::At(options.checkpoint_directory));
  checkpoint::CheckpointDirectory checkpoints(*files);
  KAON_ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest,
                        checkpoint::ImportWeights(*file, job, options.checkpoint, checkpoints));
  return checkpoint::SummaryOf(manifest);
}

absl::StatusOr<v1::RestoreCheckpointResponse> RestoreCheckpoint(const AdminCalls& calls,
                                                                const Options& options) {
  KAON_ASSIGN_OR_RETURN(const v1::GetStatusResponse status,
                        calls.GetStatus(AdminCalls::WhileAway::kAskAgain));
  v1::RestoreCheckpointRequest request;
  request.set_job(options.job.empty() ? status.job() : options.job);
  request.set_id(options.checkpoint);
  request.set_expected_step(options.expected_step.value_or(status.applied_step()));
  request.set_request_id(RandomRequestId());
  request.set_allow_other_build(options.allow_other_build);
  return calls.RestoreCheckpoint(request);
}

Json DeletedJson(const v1::CheckpointSummary& checkpoint) {
  return {{"deleted", CheckpointJson(checkpoint)}};
}

std::string DeletedText(const v1::CheckpointSummary& checkpoint) {
  return absl::StrCat("deleted checkpoint ", checkpoint.id(), " of step ", checkpoint.step(), ", ",
                      Bytes(checkpoint.bytes()), "\n");
}

Json RestoredJson(const v1::RestoreCheckpointResponse& response) {
  Json json = {{"checkpoint", CheckpointJson(response.checkpoint())},
               {"timeline", response.timeline()},
               {"position", response.position()},
               {"skipped", Json::array()}};
  for (const v1::CheckpointRow& row : response.skipped()) {
    json["skipped"].push_back({{"id", row.checkpoint().id()}, {"problem", row.problem()}});
  }
  return json;
}

std::string RestoredText(const v1::RestoreCheckpointResponse& response) {
  std::string text;
  for (const v1::CheckpointRow& row : response.skipped()) {
    absl::StrAppend(&text, "skipped ", row.checkpoint().id(), ": ", row.problem(), "\n");
  }
  return absl::StrCat(text, "restored step ", response.checkpoint().step(), " of checkpoint ",
                      response.checkpoint().id(), " as timeline ", response.timeline(),
                      ", at position ", response.position(), "\n");
}

Json CheckpointJson(const v1::CheckpointSummary& checkpoint) {
  return {{"id", checkpoint.id()},
          {"job", checkpoint.job()},
          {"timeline", checkpoint.timeline()},
          {"position", checkpoint.position()},
          {"step", checkpoint.step()},
          {"bytes", checkpoint.bytes()},
          {"shards", checkpoint.num_shards()},
          {"weights_digest", Hex(checkpoint.weights_digest())},
          {"state_digest", Hex(checkpoint.state_digest())},
          {"created", TimeJson(checkpoint.created_unix_millis())}};
}

std::string CheckpointText(const v1::CheckpointSummary& checkpoint) {
  return absl::StrCat("checkpoint      ", checkpoint.id(), "\njob             ", checkpoint.job(),
                      "\ntimeline        ", checkpoint.timeline(), "\nposition        ",
                      checkpoint.position(), "\nstep            ", checkpoint.step(),
                      "\nbytes           ", checkpoint.bytes(), " (", Bytes(checkpoint.bytes()),
                      ")", "\nshards          ", checkpoint.num_shards(), "\nweights digest  ",
                      Hex(checkpoint.weights_digest()), "\nstate digest    ",
                      Hex(checkpoint.state_digest()), "\n");
}

Json CheckpointsJson(const v1::ListCheckpointsResponse& response) {
  Json json = {{"checkpoints", Json::array()}};
  for (const v1::CheckpointRow& row : response.checkpoints()) {
    Json checkpoint = row.problem().empty() ? CheckpointJson(row.checkpoint())
                                            : Json{{"id", row.checkpoint().id()}};
    checkpoint["problem"] = row.problem();
    json["checkpoints"].push_back(std::move(checkpoint));
  }
  return json;
}

std::string CheckpointsText(const v1::ListCheckpointsResponse& response) {
  constexpr Align kRight = Align::kRight;
  Table table({{"ID"},
               {"JOB"},
               {"TIMELINE", kRight},
               {"POSITION", kRight},
               {"STEP", kRight},
               {"BYTES", kRight},
               {"SHARDS", kRight},
               {"CREATED"},
               {"WEIGHTS DIGEST"},
               {"PROBLEM"}});
  for (const v1::CheckpointRow& row : response.checkpoints()) {
    const v1::CheckpointSummary& one = row.checkpoint();
    if (!row.problem().empty()) {
      table.AddRow({one.id(), "-", "-", "-", "-", "-", "-", "-", "-", row.problem()});
      continue;
    }
    table.AddRow({one.id(), one.job(), absl::StrCat(one.timeline()), absl::StrCat(one.position()),
                  absl::StrCat(one.step()), Bytes(one.bytes()), absl::StrCat(one.num_shards()),
                  OrDash(TimeText(one.created_unix_millis())), Hex(one.weights_digest()), ""});
  }
  return table.ToString();
}

Json ExportedJson(const ExportedFile& file) {
  return {{"file", file.path}, {"bytes", file.bytes}, {"sha256", file.sha256}};
}

std::string ExportedText(const ExportedFile& file) {
  return absl::StrCat(file.path, ": ", file.bytes, " bytes, sha256 ", file.sha256, "\n");
}

}  // namespace kaon::admin_cli
