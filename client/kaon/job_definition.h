// What a training job is: its parameters, groups and clipping, as the trainer declares them at
// registration. Plain values; any thread. C++17, standard library only. Fields mean what the same
// fields of proto kaon.v1 mean; ranges are checked by the coordinator, which names field, value and
// range.
#ifndef KAON_CLIENT_KAON_JOB_DEFINITION_H_
#define KAON_CLIENT_KAON_JOB_DEFINITION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/kaon/optimizer_options.h"
#include "client/kaon/routing.h"
#include "client/kaon/tensor.h"

namespace kaon {

enum class ClipScope { kLive = 1, kAll = 2 };
enum class ReportNorms { kOn = 1, kOff = 2 };

// What happens when a worker is lost.
enum class WorkerLoss {
  // Steps wait until a process has joined in its place.
  kWait = 1,
  // The step goes on with those that are left. A worker that comes back gets the record of the step
  // it was in, if that is the newest; one that is further behind gets FAILED_PRECONDITION naming
  // the applied step, and must pull that before it begins the one after.
  kShrink = 2,
  // The job stops, naming the rank, until it is restored. A coordinator that takes over knows
  // nothing of it: the job goes on if the worker is back, or stops after as long again.
  kFail = 3,
};

// Parameters whose gradient norm is taken and clipped by itself.
struct NormGroup {
  std::string name;
  // Unset = the job's; 0 = off.
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
  // [a-z0-9-]{1,63}.
  std::string name;
  // In canonical push order; a parameter's index is its id.
  std::vector<ParameterSpec> parameters;
  // None, with no preset either, is the preset "default".
  std::vector<ParameterGroup> groups;
  // Groups the routing rules choose from; empty = the preset's, or none.
  std::string matrix_group;
  std::string scalar_group;
  // 0 = no clipping; unset = the preset's, or none.
  std::optional<double> max_grad_norm;
  // `kaonctl job set` changes it and worker_loss while the job runs; a checkpoint brings neither.
  uint32_t world_size = 1;
  // default, keller, moonlight, megatron, dion or adamw: values of everything unset.
  std::string preset;
  std::vector<RoutingRule> routing_rules;
  // Besides main.
  std::vector<NormGroup> norm_groups;
  // kLive.
  std::optional<ClipScope> clip_scope;
  // No clip factor goes below this; 0: off.
  std::optional<double> clip_floor;
  // Steps of a larger norm are skipped; unset = off.
  std::optional<double> grad_norm_skip_threshold;
  // kOn.
  std::optional<ReportNorms> report_norms;
  // Unset = the scale is 1.
  std::optional<LossScaler> loss_scaler;
  // kWait.
  std::optional<WorkerLoss> worker_loss;
  // How long a step that another worker has begun waits for one of which no stream is open; 1 ..
  // 86400, unset under kWait. 60. A stream of a dead worker whose sockets a child of it keeps open
  // ends 4 s later.
  std::optional<double> worker_loss_seconds;
};

// One field that `kaonctl group set` or `kaonctl job set` changed after registration.
struct GroupSetting {
  // Empty for a field of the job itself.
  std::string group;
  // muon.momentum or world_size, for instance.
  std::string field;
  // As it was given.
  std::string value;
  // Of the log entry that changed it.
  uint64_t position = 0;
};

// A registered job.
struct JobDescription {
  // Every default written out; groups as they are now.
  JobDefinition definition;
  // By parameter id.
  std::vector<ParameterRoute> routes;
  uint64_t timeline = 0;
  uint64_t applied_step = 0;
  bool weights_loaded = false;
  std::vector<std::string> shard_addresses;
  // Since registration, the newest of each field.
  std::vector<GroupSetting> changed;
  // Position of the newest change of the job's configuration, its registration included.
  uint64_t config_revision = 0;
};

}  // namespace kaon

#endif  // KAON_CLIENT_KAON_JOB_DEFINITION_H_
