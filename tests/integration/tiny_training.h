// Trains the simulator's tiny job by hand through the public client, and makes the serial run that
// must equal it. Used by tests against real servers; one thread.
#ifndef KAON_TESTS_INTEGRATION_TINY_TRAINING_H_
#define KAON_TESTS_INTEGRATION_TINY_TRAINING_H_

#include <cstdint>
#include <vector>

#include "client/kaon/client.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"
#include "tests/simulation/model.h"

namespace kaon::testing {

// The gradients here depend on the rank only, not on its process.
constexpr uint64_t kNonce = 0;

JobDefinition PublicJob(const v1::JobDefinition& job);

// Returns the record that the service must have made of a step, for the replay.
v1::StepRecord RecordOf(const v1::JobDefinition& job, const StepRecord& decided);

// Returns the serial run of a job whose weights are loaded.
simulation::SerialReplay LoadedReplay(const v1::JobDefinition& job);

// A step in progress, and the gradients to push.
struct OpenStep {
  // Gradients by parameter id; empty for a frozen one. They outlive the step, which reads them
  // until it ends.
  std::vector<std::vector<float>> gradients;
  uint32_t rank = 0;
  uint32_t micro_batches = 1;
  Step step;

  // Pushes every micro-batch of a parameter.
  std::vector<Future<Done>> Push(uint32_t parameter_id);
  // Pushes all parameters from there on and waits; returns false if a shard rejected one of them.
  bool PushAndWait(uint32_t first_parameter_id);
  // Pushes the parameters that are not frozen, the last one first.
  void PushAll();
  Future<StepRecord> Finish();
};

// Begins a step. Its gradients are those of another process of the rank, unless `nonce` is kNonce.
OpenStep BeginStep(const v1::JobDefinition& job, Worker& worker, uint64_t number,
                   uint64_t nonce = kNonce, double more_weight = 0);

// Trains a whole step of one rank.
StepRecord TrainStep(const v1::JobDefinition& job, Worker& worker, uint64_t number);

void LoadWeights(const v1::JobDefinition& job, Worker& worker);

std::vector<std::vector<float>> PullAll(const v1::JobDefinition& job, Job& from, uint64_t step);

}  // namespace kaon::testing

#endif  // KAON_TESTS_INTEGRATION_TINY_TRAINING_H_
