// The command that the user of kaonctl gives, and its options. A plain value.
#ifndef KAON_SERVER_ADMIN_CLI_ARGUMENTS_OPTION_VALUES_H_
#define KAON_SERVER_ADMIN_CLI_ARGUMENTS_OPTION_VALUES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/kaon/client_options.h"
#include "server/admin_cli/command.h"

namespace kaon::admin_cli {

struct Options {
  Command command = Command::kStatus;
  bool json = false;
  bool yaml = false;
  // parameter history alone.
  bool csv = false;
  // Table with more columns.
  bool wide = false;
  // Repeats a command that only reads; absent = once.
  std::optional<double> watch_seconds;
  // top, events --watch: seconds between two answers, and how many answers; 0 = until Ctrl-C.
  double interval_seconds = 2;
  uint64_t frames = 0;
  // The user has confirmed a command that destroys something.
  bool confirmed = false;
  double timeout_seconds = 10;
  // Coordinators as host:port.
  std::vector<std::string> endpoints;
  // health, status, log set, config: ask this one shard, host:port, instead of a coordinator.
  std::string shard;
  kaon::TlsFiles tls;
  // Empty = the only job.
  std::string job;
  // job delete: the whole name.
  std::string deleted_job;
  // parameters: an RE2 on the name.
  std::string filter;
  // parameter: its whole name.
  std::string parameter;
  // parameter read: the tensor, and the first element and the number of elements to show.
  std::string tensor = "weight";
  uint64_t offset = 0;
  uint32_t count = 16;
  // shard drain: its index, and whether to wait until it is back.
  uint32_t shard_index = 0;
  bool wait = false;
  // log set: debug, info, warning or error.
  std::string log_level;
  // steps: how many of the newest steps to show.
  uint32_t limit = 20;
  // group set: the group, its FIELD=VALUE settings, and the expected revision of the job; unset =
  // read it first. job set, pause and resume are the same with an empty group.
  std::string group;
  std::vector<std::string> settings;
  std::optional<uint64_t> expected_revision;
  // checkpoint: its id. Commands that work on files also need the checkpoint directory.
  std::string checkpoint;
  std::string checkpoint_directory;
  // checkpoint restore: the step that the job must be at; unset = read it first.
  std::optional<uint64_t> expected_step;
  // checkpoint restore: accept a checkpoint of any build.
  bool allow_other_build = false;
  // checkpoint export: the output file, float32 or bfloat16, and whether to write optimizer state.
  // checkpoint import: the input file, and the file of the job's definition.
  std::string file;
  std::string dtype = "float32";
  bool with_state = false;
  std::string job_file;
  // preflight: so many equal shards; 0 = those of the cluster. Their size as flags of kaon-shard; 0
  // and empty = its defaults.
  uint32_t shards = 0;
  uint64_t host_memory_bytes = 0;
  uint64_t device_memory_bytes = 0;
  uint64_t staging_bytes = 0;
  uint64_t nvme_bytes = 0;
  uint32_t threads = 0;
  std::string durability;
  // verify-numerics: the fields of kernels::BackendOptions. preflight uses the first.
  std::string backend = "cpu";
  std::string gemm;
  std::string isa = "widest";
};

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_ARGUMENTS_OPTION_VALUES_H_
