// `kaonctl checkpoint`: prints the answers about checkpoints, and runs the two commands that work
// on files without a service. No state; one thread.
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
  // Has the format of sha256sum(1).
  std::string sha256;
};

// Reads a job definition from a file: JSON of protobuf if the name ends in .json, otherwise
// textproto. NOT_FOUND if there is no such file; INVALID_ARGUMENT names the file and the error.
absl::StatusOr<v1::JobDefinition> ReadJobFile(const std::string& path);

// Writes the weights of a checkpoint, or also its state, to one file. Codes: ExportWeights,
// CheckpointDirectory::Load.
absl::StatusOr<ExportedFile> ExportCheckpoint(const Options& options);
// Makes a checkpoint from a file of weights and perhaps state. Codes: ImportWeights, ReadJobFile.
absl::StatusOr<v1::CheckpointSummary> ImportCheckpoint(const Options& options);

// Runs the whole command. Uses the expected step of the options, or reads the present step first.
// Codes: those of the calls.
absl::StatusOr<v1::RestoreCheckpointResponse> RestoreCheckpoint(const AdminCalls& calls,
                                                                const Options& options);

Json CheckpointsJson(const v1::ListCheckpointsResponse& response);
std::string CheckpointsText(const v1::ListCheckpointsResponse& response);
Json CheckpointJson(const v1::CheckpointSummary& checkpoint);
std::string CheckpointText(const v1::CheckpointSummary& checkpoint);
Json DeletedJson(const v1::CheckpointSummary& checkpoint);
std::string DeletedText(const v1::CheckpointSummary& checkpoint);
Json RestoredJson(const v1::RestoreCheckpointResponse& response);
std::string RestoredText(const v1::RestoreCheckpointResponse& response);
Json ExportedJson(const ExportedFile& file);
std::string ExportedText(const ExportedFile& file);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_CHECKPOINT_COMMAND_H_
