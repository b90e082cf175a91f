// Definition of a training job: parameters, groups and clipping, as the trainer declares them at
// registration. Plain values; any thread. C++17, standard library only. A field means the same as
// its namesake in proto kaon.v1. The coordinator checks the ranges; its errors name field, value
// and range. A comment of one value names the default.
#ifndef KAON_CLIENT_KAON_JOB_DEFINITION_H_
#define KAON_CLIENT_KAON_JOB_DEFINITION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kaon/optimizer_options.h"
#include "kaon/routing.h"
#include "kaon/tensor.h"

namespace kaon {

enum class ClipScope { kLive = 1, kAll = 2 };
enum class ReportNorms { kOn = 1, kOff = 2 };

// Action when a worker is lost.
enum class WorkerLoss {
  // Steps wait until a process has joined in its place.
  kWait = 1,
  // The step continues with the remaining workers. A worker that returns gets the record of its
  // step if that is the newest step. Otherwise it gets FAILED_PRECONDITION with the applied step;
  // it must pull that version before it begins the next step.
  kShrink = 2,
  // The job stops and names the rank, until it is restored. A new coordinator does not know of the
  // loss: the job continues if the worker returns, or stops after worker_loss_seconds more.
  kFail = 3,
};

// Parameters whose gradient norm is computed and clipped separately.
struct NormGroup {
  std::string name;
  // Unset: the job's; 0: no clipping.
  std::optional<double> max_grad_norm;
};

struct LossScaler {
  std::optional<double> initial_scale;  // 1; dynamic: 65536
  bool dynamic = false;
  // Only when dynamic.
  std::optional<double> min_scale;          // 1
  std::optional<uint32_t> growth_interval;  // 1000
  std::optional<uint32_t> hysteresis;       // 2
};

struct JobDefinition {
  // Pattern: [a-z0-9-]{1,63}.
  std::string name;
  // In canonical push order. The index of a parameter is its id.
  std::vector<ParameterSpec> parameters;
  // Without groups and without a preset the job has the preset "default".
  std::vector<ParameterGroup> groups;
  // Groups that the routing rules choose from. Empty: the preset's, or none.
  std::string matrix_group;
  std::string scalar_group;
  // Unset: the preset's, or none; 0: no clipping.
  std::optional<double> max_grad_norm;
  // Number of workers. `kaonctl job set` changes it and worker_loss while the job runs; a restore
  // from a checkpoint changes neither.
  uint32_t world_size = 1;
  // Source of every value that is unset: default, keller, moonlight, megatron, dion or adamw.
  std::string preset;
  std::vector<RoutingRule> routing_rules;
  // Norm groups in addition to main.
  std::vector<NormGroup> norm_groups;
  // kLive.
  std::optional<ClipScope> clip_scope;
  // Lower bound of every clip factor; 0: no bound.
  std::optional<double> clip_floor;
  // A step with a larger norm is skipped. Unset: no threshold.
  std::optional<double> grad_norm_skip_threshold;
  // kOn.
  std::optional<ReportNorms> report_norms;
  // Unset: the scale is 1.
  std::optional<LossScaler> loss_scaler;
  // kWait.
  std::optional<WorkerLoss> worker_loss;
  // A worker is lost when a step that another worker began waits this many seconds for it, with no
  // open stream of it. 1 .. 86400, default 60; leave it unset with kWait.
  // If a child of a dead worker keeps its sockets open, its stream ends 4 s later.
  std::optional<double> worker_loss_seconds;
  // A worker is also lost when a step that another worker began waits this many seconds for its
  // gradients, even with open streams of it. Longer than any honest step. 1 .. 86400; unset: no
  // such bound. Leave it unset with kWait.
  std::optional<double> step_seconds;
};

// A field that `kaonctl group set` or `kaonctl job set` changed after registration.
struct GroupSetting {
  // Empty for a field of the job itself.
  std::string group;
  // Path of the field, such as muon.momentum or world_size.
  std::string field;
  // The value as the operator typed it.
  std::string value;
  // Position of the log entry that changed it.
  uint64_t position = 0;
};

// A registered job.
struct JobDescription {
  // Has every default written out, and the groups as they are now.
  JobDefinition definition;
  // Indexed by parameter id.
  std::vector<ParameterRoute> routes;
  uint64_t timeline = 0;
  uint64_t applied_step = 0;
  bool weights_loaded = false;
  std::vector<std::string> shard_addresses;
  // The newest change of each field since registration.
  std::vector<GroupSetting> changed;
  // Position of the newest change of the job's configuration; its registration counts as one.
  uint64_t config_revision = 0;
};

}  // namespace kaon

#endif  // KAON_CLIENT_KAON_JOB_DEFINITION_H_
