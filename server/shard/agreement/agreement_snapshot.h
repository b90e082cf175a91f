// The agreement state of a shard right after one log entry. Together with the tensors of that entry
// it restores the shard completely. A plain value; any thread.
#ifndef KAON_SERVER_SHARD_AGREEMENT_AGREEMENT_SNAPSHOT_H_
#define KAON_SERVER_SHARD_AGREEMENT_AGREEMENT_SNAPSHOT_H_

#include <cstdint>

#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"

namespace kaon::shard {

struct AgreementSnapshot {
  // Includes the registration and the record of the entry. Excludes any vote on the next entry.
  v1::ShardState state;
  v1::Ballot promised;
  uint32_t shard = 0;
  uint32_t num_shards = 0;
  uint64_t newest_generation = 0;
};

// Returns true if the newest applied entry deleted the job: the shard holds none.
inline bool IsOfNoJob(const v1::ShardState& state) {
  return !state.has_registration() && state.applied_record().plan().has_job_deletion();
}

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_AGREEMENT_AGREEMENT_SNAPSHOT_H_
