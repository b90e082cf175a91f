// Reads the content of a checkpoint by parameter and element, as a restore does, without the
// shards' code. A free function; one thread.
#ifndef KAON_TESTS_SIMULATION_CHECKPOINT_CONTENT_H_
#define KAON_TESTS_SIMULATION_CHECKPOINT_CONTENT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/checkpoint/checkpoint_directory.h"

namespace kaon::simulation {

// Returns the digest of weights, optimizer state and update counters, as SerialReplay::StateDigest
// does. Errors are those of CheckpointReader::Read.
absl::StatusOr<uint64_t> ContentDigest(checkpoint::CheckpointDirectory& directory,
                                       const v1::CheckpointManifest& manifest);

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_CHECKPOINT_CONTENT_H_
