// The attempt of its rank that each chunk in a shard's sums came from (protocol.md 2.1, "attempts
// folded = the plan's"). The data are what the shard itself reported: the received ranges of each
// stream that it opened, and each chunk that it accepted. Owned by Invariants; one thread.
#ifndef KAON_TESTS_SIMULATION_TAKEN_CHUNKS_H_
#define KAON_TESTS_SIMULATION_TAKEN_CHUNKS_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_data.pb.h"

namespace kaon::simulation {

class TakenChunks {
 public:
  // Called when a stream opens. Removes the chunks of the rank that the shard no longer has.
  void OnOpened(int shard, uint32_t rank, const v1::PushOpened& opened);
  // Called when the shard accepted a chunk of that attempt. A repetition changes nothing.
  void OnTaken(int shard, uint32_t rank, const v1::Attempt& attempt, const v1::TensorChunk& chunk);

  // Returns an error unless the shard has all of the parameter exactly once, of the member's
  // attempt.
  std::string Check(int shard, const v1::Member& member, uint32_t parameter_id,
                    uint64_t num_elements) const;

 private:
  struct Chunk {
    // One past its last element.
    uint64_t end = 0;
    // Empty if the shard has the chunk from before a restart.
    v1::Attempt attempt;
  };
  // Shard, rank, parameter, micro-batch.
  using Key = std::tuple<int, uint32_t, uint32_t, uint32_t>;

  // Chunks in order of their elements.
  std::map<Key, std::vector<Chunk>> chunks_;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_TAKEN_CHUNKS_H_
