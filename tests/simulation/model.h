// The tiny job that the simulator trains, and its expected result. Gradients are a function of
// (rank, process, step, parameter). The expected weights come from a replay of decided records in
// one plain loop over the kernels. One thread.
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

// Returns a job of five parameters of 1 to 24 elements, one of them frozen, with a Muon and an
// AdamW group. Clipping is active.
v1::JobDefinition TinyJob(uint32_t world_size);

// Returns the initial weights, which are the same for every process.
std::vector<float> InitialWeights(const v1::JobDefinition& job, uint32_t parameter_id);

// Returns a gradient that differs between processes of one rank. A restarted worker computes
// another one, so mixing two lives of a worker changes the weights. Step 7 of rank 0 holds a NaN.
std::vector<float> Gradient(const v1::JobDefinition& job, uint32_t parameter_id, uint32_t rank,
                            uint64_t process_nonce, uint64_t step);

// Returns a worker's share of a step; members have unequal weights and micro-batches.
client::StepShare Share(uint32_t rank, uint64_t step);

// Returns the optimizer's slots in the order of the digest; a frozen parameter has none.
std::vector<kernels::StateSlot> SlotsOf(const v1::RegisterBody& registration,
                                        uint32_t parameter_id);

// Computes the weights after decided records, from the members, nonces, rates, clip factors and
// changes of groups in the records alone.
class SerialReplay {
 public:
  // Everything that an entry may change.
  struct State {
    // The resolved registration with the present groups.
    v1::RegisterBody body;
    // Weights by parameter id.
    std::vector<std::vector<float>> weights;
    std::vector<std::vector<std::vector<std::byte>>> slots;
    std::vector<int64_t> updates;
    bool registered = false;
  };

  explicit SerialReplay(const v1::JobDefinition& job);

  // Applies records in the order of their positions. An entry that discards others needs Restore
  // instead, with the state that it names.
  void Apply(const v1::StepRecord& record);
  void Restore(const State& state) { state_ = state; }
  const State& state() const { return state_; }
  // Returns the weights by parameter id.
  const std::vector<std::vector<float>>& weights() const { return state_.weights; }
  // Returns the digest of weights, optimizer state and update counters, all read again; 0 before
  // registration.
  uint64_t StateDigest() const;
  // Returns the digest of the sum of that step's members for a parameter, applied or not.
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
