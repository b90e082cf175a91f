// Which attempt of its rank each chunk came from that a shard has in its sums, by what the shard
// itself said: of each stream that it opened what it had of the rank, and of each chunk that it
// takes it (protocol.md 2.1, "attempts folded = the plan's"). Owned by Invariants; one thread.
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
  // A stream is open. What the shard has no more of the rank was cleared.
  void OnOpened(int shard, uint32_t rank, const v1::PushOpened& opened);
  // It took this of that attempt. A repetition changes nothing.
  void OnTaken(int shard, uint32_t rank, const v1::Attempt& attempt, const v1::TensorChunk& chunk);

  // Empty, or what of that parameter is not, once and whole, of the member's attempt.
  std::string Check(int shard, const v1::Member& member, uint32_t parameter_id,
                    uint64_t num_elements) const;

 private:
  struct Chunk {
    // Behind its last element.
    uint64_t end = 0;
    // None if the shard has it from before a restart.
    v1::Attempt attempt;
  };
  // Shard, rank, parameter, micro-batch.
  using Key = std::tuple<int, uint32_t, uint32_t, uint32_t>;

  // In order.
  std::map<Key, std::vector<Chunk>> chunks_;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_TAKEN_CHUNKS_H_
