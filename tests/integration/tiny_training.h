// The simulator's tiny job trained by hand through the public client, and the serial run that it
// must equal. For tests against real servers; one thread.
#ifndef KAON_TESTS_INTEGRATION_TINY_TRAINING_H_
#define KAON_TESTS_INTEGRATION_TINY_TRAINING_H_

#include <cstdint>
#include <vector>

#include "client/kaon/client.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"
#include "tests/simulation/model.h"

namespace kaon::testing {

// Gradients here depend on the rank alone, not on its process.
constexpr uint64_t kNonce = 0;

JobDefinition PublicJob(const v1::JobDefinition& job);

// The record the service must have made of a step, for the replay.
v1::StepRecord RecordOf(const v1::JobDefinition& job, const StepRecord& decided);

// The serial run of a job whose weights are loaded.
simulation::SerialReplay LoadedReplay(const v1::JobDefinition& job);

// A step that is begun, and the gradients to push.
struct OpenStep {
  // By parameter id; empty for a frozen one. Goes after the step, which looks at it until its end.
  std::vector<std::vector<float>> gradients;
  uint32_t rank = 0;
  uint32_t micro_batches = 1;
  Step step;

  // Every micro-batch of a parameter.
  std::vector<Future<Done>> Push(uint32_t parameter_id);
  // All from there on; false if a shard did not accept one of them.
  bool PushAndWait(uint32_t first_parameter_id);
  // Those that are not frozen, the last one first.
  void PushAll();
  Future<StepRecord> Finish();
};

// With the gradients of another process of that rank unless `nonce` is kNonce.
OpenStep BeginStep(const v1::JobDefinition& job, Worker& worker, uint64_t number,
                   uint64_t nonce = kNonce, double more_weight = 0);

// A whole step of one rank.
StepRecord TrainStep(const v1::JobDefinition& job, Worker& worker, uint64_t number);

void LoadWeights(const v1::JobDefinition& job, Worker& worker);

std::vector<std::vector<float>> PullAll(const v1::JobDefinition& job, Job& from, uint64_t step);

}  // namespace kaon::testing

#endif  // KAON_TESTS_INTEGRATION_TINY_TRAINING_H_
