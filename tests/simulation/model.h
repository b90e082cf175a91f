// The tiny job the simulator trains, and what it must end in: gradients as a function of (rank,
// process, step, parameter), and a replay of decided records in one plain loop over the kernels.
// One thread.
#ifndef KAON_TESTS_SIMULATION_MODEL_H_
#define KAON_TESTS_SIMULATION_MODEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "client/worker_session.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"
#include "kernels/backend.h"

namespace kaon::simulation {

// Five parameters of 1 to 24 elements, one of them frozen; a Muon and an AdamW group; clipping
// active.
v1::JobDefinition TinyJob(uint32_t world_size);

// The same for every process.
std::vector<float> InitialWeights(const v1::JobDefinition& job, uint32_t parameter_id);

// Differs between processes of one rank: a restarted worker computes another gradient, so that
// mixing two lives of a worker changes the weights. Step 7 of rank 0 holds a NaN.
std::vector<float> Gradient(const v1::JobDefinition& job, uint32_t parameter_id, uint32_t rank,
                            uint64_t process_nonce, uint64_t step);

// What a worker declares for a step; members have unequal weights and micro-batches.
client::StepShare Share(uint32_t rank, uint64_t step);

// Of the optimizer, in the order of the digest; none of a frozen parameter.
std::vector<kernels::StateSlot> SlotsOf(const v1::RegisterBody& registration,
                                        uint32_t parameter_id);

// The weights after decided records, from members, nonces, rates, clip factors and changes of
// groups in the records alone.
class SerialReplay {
 public:
  // Everything that an entry may change.
  struct State {
    // As resolved, with the groups as they are now.
    v1::RegisterBody body;
    // By parameter id.
    std::vector<std::vector<float>> weights;
    std::vector<std::vector<std::vector<std::byte>>> slots;
    std::vector<int64_t> updates;
    bool registered = false;
  };

  explicit SerialReplay(const v1::JobDefinition& job);

  // In order of position; not of an entry that takes the job back: Restore, with the state it
  // names.
  void Apply(const v1::StepRecord& record);
  void Restore(const State& state) { state_ = state; }
  const State& state() const { return state_; }
  // By parameter id.
  const std::vector<std::vector<float>>& weights() const { return state_.weights; }
  // Of weights, optimizer state and update counters, all read again; 0 before registration.
  uint64_t StateDigest() const;
  // Of what the members of that step give for a parameter that it sums, whatever was applied.
  uint64_t GradientDigest(const v1::StepBody& step, uint32_t parameter_id);

 private:
  std::vector<float> ReducedGradient(const v1::StepBody& step, uint32_t parameter_id);
  void Update(const v1::StepRecord& record, uint32_t parameter_id);

  const v1::JobDefinition job_;
  std::unique_ptr<kernels::Backend> backend_;
  State state_;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_MODEL_H_
