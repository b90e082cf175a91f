// Says what a job takes of a shard, by the shard's own code on memory that is counted and never
// allocated. `kaonctl preflight` shows it before anything is started. Any thread.
#ifndef KAON_SERVER_SHARD_ADMISSION_H_
#define KAON_SERVER_SHARD_ADMISSION_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "kernels/backend.h"

namespace kaon::shard {

// Memory that a shard has for a job.
struct ShardMemory {
  // Bytes of the memory that the backend computes on, and those of it that hold no tensor.
  uint64_t capacity_bytes = 0;
  uint64_t reserved_bytes = 0;
  // Bytes of gradients that may wait, over all workers.
  uint64_t staging_bytes = 0;
  // Bytes of all files of parameters, their number, and bytes of the memory for parameters on their
  // way; 0: no disk.
  uint64_t nvme_bytes = 0;
  uint64_t nvme_files = 1;
  uint64_t nvme_staging_bytes = 0;
};

// Bytes that a job takes of a shard's memory.
struct ShardNeeds {
  uint64_t reserved_bytes = 0;
  // Both versions of the weights, and optimizer state.
  uint64_t tensor_bytes = 0;
  // Largest concurrent updates.
  uint64_t workspace_bytes = 0;
  // Sums of gradients.
  uint64_t sum_bytes = 0;
  // Both versions of the parameters on the disk, and their sums; no memory.
  uint64_t nvme_bytes = 0;
  // Ordered by parameter_id, as a shard that holds the job describes them.
  std::vector<v1::ParameterState> parameters;

  // Equal to DescribeShardResponse.used_bytes once the job is registered.
  uint64_t used_bytes() const {
    return reserved_bytes + tensor_bytes + workspace_bytes + sum_bytes;
  }
};

// Returns the needs of the parameters that `registration` places on `shard`. Errors are those with
// which a shard of `memory` and such a backend refuses the registration.
absl::StatusOr<ShardNeeds> Admit(const v1::RegisterBody& registration, uint32_t shard,
                                 kernels::Backend& backend, const ShardMemory& memory);

// Returns the bytes to which the journal grows before a snapshot, if the configuration does not
// say. `memory_bytes`: sum of ParameterState.state_bytes.
uint64_t SnapshotJournalBytes(uint64_t memory_bytes);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_ADMISSION_H_
