// Rank 0 of the tiny job's two workers. Trains the first step through the library correctly while a
// malicious peer attacks. One thread.
#ifndef KAON_TESTS_INTEGRATION_HONEST_WORKER_H_
#define KAON_TESTS_INTEGRATION_HONEST_WORKER_H_

#include <optional>
#include <vector>

#include "client/kaon/client.h"
#include "kaon/v1/parameters.pb.h"
#include "tests/testing/in_process_cluster.h"

namespace kaon {

class HonestWorker {
 public:
  // Registers the job, joins it and loads its initial weights.
  HonestWorker(const testing::InProcessCluster& cluster, const v1::JobDefinition& job);

  // Begins step 1 and pushes its share.
  Future<StepRecord> PushStep();
  // Returns the weights of step 1, by parameter.
  std::vector<std::vector<float>> PullStep();

 private:
  const v1::JobDefinition job_;
  Client client_;
  std::optional<Job> registered_;
  std::optional<Worker> worker_;
  std::optional<Step> step_;
  std::vector<std::vector<float>> tensors_;
};

// Returns the expected weights of both ranks' first step, replayed from their gradients.
std::vector<std::vector<float>> WeightsOfStepOne(const v1::JobDefinition& job,
                                                 const StepRecord& decided);

}  // namespace kaon

#endif  // KAON_TESTS_INTEGRATION_HONEST_WORKER_H_
