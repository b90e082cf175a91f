// `kaonctl checkpoint`: output of the answers about checkpoints, and the two commands that work on
// files, without a service. Stateless; not thread-safe.
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
  // Printed like the output of sha256sum(1).
  std::string sha256;
};

// Reads a definition: protobuf's JSON if the file's name ends in .json, textproto otherwise.
// INVALID_ARGUMENT names the file and the problem; NOT_FOUND.
absl::StatusOr<v1::JobDefinition> ReadJobFile(const std::string& path);

// Writes the weights of a checkpoint as one file. Returns the errors of ExportWeights and
// CheckpointDirectory::Load.
absl::StatusOr<ExportedFile> ExportCheckpoint(const Options& options);
// Creates a checkpoint from a file with weights. Returns the errors of ImportWeights and
// ReadJobFile.
absl::StatusOr<v1::CheckpointSummary> ImportCheckpoint(const Options& options);

// Runs the whole command. Compares with the given step, or reads the present step first. Returns
// the errors of the calls.
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
