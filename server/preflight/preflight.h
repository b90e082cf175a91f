// Computes what a job needs of a cluster before anything is started. It runs the registration, the
// placement and the admission of the servers, and changes nothing. One thread.
#ifndef KAON_SERVER_PREFLIGHT_PREFLIGHT_H_
#define KAON_SERVER_PREFLIGHT_PREFLIGHT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/admin.pb.h"
#include "kaon/v1/config.pb.h"
#include "kaon/v1/parameters.pb.h"
#include "server/shard/admission.h"

namespace kaon::preflight {

// A shard that the job would be placed on.
struct ShardOffer {
  // Empty if it is not there yet.
  std::string address;
  shard::ShardMemory memory;
  // Backend as in --backend, matrix products and compute threads of it; they decide the workspace.
  std::string backend;
  std::string gemm;
  uint32_t threads = 1;
  // Mode, as in --durability.
  std::string durability;
};

// Bytes of a group's parameters, or of the frozen ones, on all shards.
struct GroupNeeds {
  std::string group;
  std::string rule;
  uint64_t parameters = 0;
  uint64_t elements = 0;
  uint64_t weight_bytes = 0;
  uint64_t next_weight_bytes = 0;
  uint64_t state_bytes = 0;
  uint64_t sum_bytes = 0;
};

struct ShardVerdict {
  ShardOffer offer;
  shard::ShardNeeds needs;
  uint64_t elements = 0;
  // Upper bound on journal and snapshots.
  uint64_t disk_bytes = 0;
  // Why the shard would refuse the job, or OK.
  absl::Status refusal;
};

struct LargestMatrix {
  std::string parameter;
  uint64_t rows = 0;
  uint64_t cols = 0;
};

struct Report {
  std::string job;
  uint32_t world_size = 0;
  // Job that the cluster runs now; a cluster has room for one.
  std::string running_job;
  std::vector<GroupNeeds> groups;
  GroupNeeds total;
  std::vector<ShardVerdict> shards;
  // Empty if no matrix is orthogonalized.
  LargestMatrix largest_matrix;
  // Bytes that one worker sends and receives in a step, as fp32.
  uint64_t push_bytes = 0;
  uint64_t pull_bytes = 0;
};

// Returns `count` equal shards of this configuration, as kaon-shard completes it. INVALID_ARGUMENT
// as kaon-shard refuses its values.
absl::StatusOr<std::vector<ShardOffer>> OffersOf(v1::ShardConfig config, uint32_t count);

// Returns the shards of a cluster. UNAVAILABLE if one did not answer.
absl::StatusOr<std::vector<ShardOffer>> OffersOf(const v1::GetStatusResponse& cluster);

// Returns what `job` needs on `offers`. Errors are those of a registration that no memory can help,
// and of a backend that this machine does not have. A job that does not fit is no error.
absl::StatusOr<Report> Run(const v1::JobDefinition& job, const std::vector<ShardOffer>& offers);

// RESOURCE_EXHAUSTED with the arithmetic of the first shard that refuses the job.
absl::Status JobFits(const Report& report);

}  // namespace kaon::preflight

#endif  // KAON_SERVER_PREFLIGHT_PREFLIGHT_H_
