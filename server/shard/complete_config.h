// Completes and checks a shard's configuration. Pure but for the number of CPUs and the
// environment; any thread.
#ifndef KAON_SERVER_SHARD_COMPLETE_CONFIG_H_
#define KAON_SERVER_SHARD_COMPLETE_CONFIG_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/config.pb.h"

namespace kaon::shard {

// Descriptors of a session over shared memory: socket, memory and wake-up.
inline constexpr uint64_t kDescriptorsOfSession = 3;

// Fills in the defaults of config.proto. INVALID_ARGUMENT naming field, value and range.
absl::StatusOr<v1::ShardConfig> CompleteConfig(v1::ShardConfig config);

// Sets the bytes of a journal segment to KAON_JOURNAL_SEGMENT_BYTES, if the environment has it.
// INVALID_ARGUMENT.
absl::Status SetSegmentBytes(uint64_t& segment_bytes);

// Returns the ordinal of the device that a complete configuration names.
int DeviceOrdinal(const v1::ShardConfig& config);

// Returns the part of host_memory_bytes that holds no tensor.
uint64_t ReservedBytes(const v1::ShardConfig& config);

// Returns the memory that the process may have resident, which is the budget of its memory guard.
// `backend_bytes` were resident once the backend was there: without a device they are the program's
// own, which the guard allows for.
uint64_t GuardedBytes(const v1::ShardConfig& config, uint64_t backend_bytes);

// Returns the default number of shared-memory sessions of kaon-shard: enough for a push and a pull
// of four workers. They take at most a sixteenth of `host_memory_bytes`, and at most an eighth of
// `open_files`, the descriptors that the process may open.
uint32_t DefaultShmSessions(uint64_t host_memory_bytes, uint64_t open_files);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_COMPLETE_CONFIG_H_
