// Numbers of attempts to write checkpoints: a checksum of the job's name, and 32 random bits.
// Clusters of different jobs may share a directory. Each abandons and removes only attempts of its
// own job (docs/adr/0021-checkpoint-attempts.md). Pure functions; thread-safe.
#ifndef KAON_SERVER_CHECKPOINT_ATTEMPT_NUMBER_H_
#define KAON_SERVER_CHECKPOINT_ATTEMPT_NUMBER_H_

#include <cstdint>
#include <string>

#include "proto/crc32c.h"

namespace kaon::checkpoint {

inline uint64_t AttemptNumber(const std::string& job, uint64_t random) {
  return uint64_t{proto::Crc32c(job.data(), job.size())} << 32 | (random & 0xffffffff);
}

// Returns whether the attempt belongs to `job`. Also true for a job whose name has the same
// checksum.
inline bool IsAttemptOf(const std::string& job, uint64_t number) {
  return number >> 32 == AttemptNumber(job, 0) >> 32;
}

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_ATTEMPT_NUMBER_H_
