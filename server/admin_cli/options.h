// Options of kaonctl: command line and environment, checked and resolved to endpoints and
// certificate files. Plain values; called once from main, before any thread starts.
#ifndef KAON_SERVER_ADMIN_CLI_OPTIONS_H_
#define KAON_SERVER_ADMIN_CLI_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/kaon/client.h"

namespace kaon::admin_cli {

enum class Command {
  kStatus,
  kStatusEvents,
  kJobShow,
  kJobEffective,
  kParameters,
  kSteps,
  kStepPhases,
  kDigest,
  kBackend,
  kMeasureForms,
  kHealth,
  kVerifyNumerics,
  kParameterStats,
  kParameterDiagnostics,
  kGroupSet,
  kCheckpointList,
  kCheckpointVerify,
  kCheckpointExport,
  kCheckpointImport,
  kCheckpointRestore,
  kCheckpointCreate
};

struct Options {
  Command command = Command::kStatus;
  bool json = false;
  double timeout_seconds = 10;
  // Coordinators, host:port.
  std::vector<std::string> endpoints;
  kaon::TlsFiles tls;
  // Empty = the only job.
  std::string job;
  // parameters: an RE2 on the name.
  std::string filter;
  // parameter: its whole name.
  std::string parameter;
  // steps: how many of the newest.
  uint32_t limit = 20;
  // group set, and job set with an empty group: the group, FIELD=VALUE each, and the revision to
  // compare with; unset = read it first.
  std::string group;
  std::vector<std::string> settings;
  std::optional<uint64_t> expected_revision;
  // checkpoint: its id; the directory, for the commands that work on files.
  std::string checkpoint;
  std::string checkpoint_directory;
  // checkpoint restore: the step at which the job must be; unset = read it first.
  std::optional<uint64_t> expected_step;
  // checkpoint restore: accept a checkpoint of any build, backend and device class.
  bool allow_other_build = false;
  // checkpoint export: the file to write, float32 or bfloat16. checkpoint import: the file to read,
  // and the file with the job's definition.
  std::string file;
  std::string dtype = "float32";
  std::string job_file;
  // verify-numerics: fields of kernels::BackendOptions.
  std::string backend = "cpu";
  std::string gemm;
  std::string isa = "widest";
};

// The options; or the text to print and the exit status: 0 for --help, 2 for a bad command line.
struct ParsedCommandLine {
  std::optional<Options> options;
  std::string text;
  int exit_status = 0;
};

// Returns whether the command works on this machine alone, without endpoints.
bool IsOffline(Command command);

ParsedCommandLine ParseCommandLine(int argc, const char* const* argv);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_OPTIONS_H_
