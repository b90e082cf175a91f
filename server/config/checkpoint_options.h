// Where checkpoints lie, and when a coordinator takes one. Plain values; set before any thread
// starts.
#ifndef KAON_SERVER_CONFIG_CHECKPOINT_OPTIONS_H_
#define KAON_SERVER_CONFIG_CHECKPOINT_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/config/server_config.h"

namespace kaon::config {

struct CheckpointOptions {
  // A directory that the coordinators and all shards see; empty = none.
  std::string directory;
  // A checkpoint each time so many train steps are applied since the last one; 0 = only when asked.
  uint64_t every_steps = 0;
  // Good ones of the job that are kept after each one taken by itself; >= 2.
  uint64_t keep = 3;
};

// As typed; they outlive the command line.
struct CheckpointFlags {
  std::string directory;
  std::string every_steps;
  std::string keep;
};

// --checkpoint-dir, for shards and coordinators; --checkpoint-every-steps and --checkpoint-keep.
LooseFlag CheckpointDirectoryFlag(CheckpointFlags& flags);
std::vector<LooseFlag> CheckpointPolicyFlags(CheckpointFlags& flags);

// INVALID_ARGUMENT naming flag, value and range.
absl::Status ReadCheckpointFlags(const CheckpointFlags& flags, CheckpointOptions* options);

}  // namespace kaon::config

#endif  // KAON_SERVER_CONFIG_CHECKPOINT_OPTIONS_H_
