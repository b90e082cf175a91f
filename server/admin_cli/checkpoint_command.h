// `kaonctl checkpoint`: what is printed of the answers about checkpoints, and the two commands that
// work on files, without a service. No state; one thread.
#ifndef KAON_SERVER_ADMIN_CLI_CHECKPOINT_COMMAND_H_
#define KAON_SERVER_ADMIN_CLI_CHECKPOINT_COMMAND_H_

#include <string>

#include "absl/status/statusor.h"
#include "kaon/v1/admin.pb.h"
#include "kaon/v1/parameters.pb.h"
#include "server/admin_cli/admin_calls.h"
#include "server/admin_cli/options.h"
#include "server/admin_cli/report.h"

namespace kaon::admin_cli {

struct ExportedFile {
  std::string path;
  uint64_t bytes = 0;
  // As sha256sum(1) prints it.
  std::string sha256;
};

// A definition in a file: protobuf's JSON if its name ends in .json, textproto otherwise.
// INVALID_ARGUMENT naming the file and what is wrong; NOT_FOUND.
absl::StatusOr<v1::JobDefinition> ReadJobFile(const std::string& path);

// Writes the weights of a checkpoint as one file. Codes: ExportWeights, CheckpointDirectory::Load.
absl::StatusOr<ExportedFile> ExportCheckpoint(const Options& options);
// Makes a checkpoint of a file with weights. Codes: ImportWeights, ReadJobFile.
absl::StatusOr<v1::CheckpointSummary> ImportCheckpoint(const Options& options);

// The whole command: with the step that was given, or read just before. Codes: those of the calls.
absl::StatusOr<v1::RestoreCheckpointResponse> RestoreCheckpoint(const AdminCalls& calls,
                                                                const Options& options);

Json CheckpointsJson(const v1::ListCheckpointsResponse& response);
std::string CheckpointsText(const v1::ListCheckpointsResponse& response);
Json CheckpointJson(const v1::CheckpointSummary& checkpoint);
std::string CheckpointText(const v1::CheckpointSummary& checkpoint);
Json RestoredJson(const v1::RestoreCheckpointResponse& response);
std::string RestoredText(const v1::RestoreCheckpointResponse& response);
Json ExportedJson(const ExportedFile& file);
std::string ExportedText(const ExportedFile& file);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_CHECKPOINT_COMMAND_H_
