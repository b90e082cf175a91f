// Checkpoints of a small job with every kind of state: int8 and bf16 momentum, amsgrad, a frozen
// parameter. The position determines every byte, so a reader can check the content whichever writer
// made it. Pure functions over a directory; one thread.
#ifndef KAON_TESTS_SERVER_CHECKPOINT_TINY_CHECKPOINT_H_
#define KAON_TESTS_SERVER_CHECKPOINT_TINY_CHECKPOINT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kaon/v1/checkpoint.pb.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/manifest.h"

namespace kaon::checkpoint {

// h.w (8x12, muon, int8), h.b (70, adamw with amsgrad), o.w (4x6, sgd, bf16), table (5, frozen).
v1::RegisterBody TinyRegistration();

// Returns the facts that every shard has after the train step position - 2.
CheckpointFacts TinyFacts(const std::string& id, uint64_t position);

// Returns the bytes of elements first .. first + count of a tensor at a position. They are finite,
// unless `mask` keeps all bits of an exponent.
std::string TinyBytes(uint64_t position, uint32_t parameter_id, const std::string& role,
                      v1::StateDType dtype, uint64_t first, uint64_t count,
                      unsigned char mask = 0xbf);

// Returns the tensors that a shard writes. Every tensor is cut into runs of at most `run` elements
// (a multiple of 32), dealt out to the shards in turn.
std::vector<v1::CheckpointTensor> TinyTensors(uint32_t shard, uint32_t num_shards, uint64_t run);

struct TinyShards {
  uint32_t num_shards = 2;
  uint64_t run = 1 << 20;
  uint64_t max_tensors_per_file = 1000;
  std::optional<uint64_t> attempt = std::nullopt;
  uint64_t timeline = 1;
  // Tensors of this role begin with the bytes of `begin`.
  std::string role = "";
  std::string begin = "";
};

// Writes the part of one shard and returns its report.
absl::StatusOr<v1::CheckpointPart> WritePart(CheckpointDirectory& directory, const std::string& id,
                                             uint64_t position, uint32_t shard,
                                             const TinyShards& shards);

// Writes a whole checkpoint with its manifest.
absl::StatusOr<v1::CheckpointManifest> WriteCheckpoint(CheckpointDirectory& directory,
                                                       const std::string& id, uint64_t position,
                                                       const TinyShards& shards = TinyShards());

}  // namespace kaon::checkpoint

#endif  // KAON_TESTS_SERVER_CHECKPOINT_TINY_CHECKPOINT_H_
