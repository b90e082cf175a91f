// Trains one job to the end, through real servers in this process or without any. The gradients are
// a function of parameter, rank and step, so both runs must end alike. Used by tests only; one
// thread.
#ifndef KAON_TESTS_INTEGRATION_TRAINED_JOB_H_
#define KAON_TESTS_INTEGRATION_TRAINED_JOB_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "client/kaon/client.h"
#include "kaon/v1/admin.pb.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::testing {

struct TrainedJob {
  std::vector<std::vector<float>> weights;
  // One record per step.
  std::vector<StepRecord> records;
  // State digests of the shards after each step, without the position. Only a run through servers
  // has them.
  std::vector<uint64_t> state_digests;
  // Status and history of the coordinator at the end, with phases. Only a run through servers has
  // them.
  v1::GetStatusResponse status;
  v1::StepHistoryResponse history;
};

struct TrainingPlan {
  v1::JobDefinition job;
  uint64_t steps = 1;
  // Returns an empty gradient if the rank has none.
  std::function<std::vector<float>(uint32_t parameter_id, uint32_t rank, uint64_t step)> gradient;
  // Each micro-batch has an equal share of the gradient; only powers of two give the same bits.
  uint32_t micro_batches = 1;
};

// Returns values of at most 11 bits, the same for the same arguments. A copy has the values of its
// original.
std::vector<float> DrawTensor(const v1::JobDefinition& job, uint32_t parameter_id, uint64_t seed);

TrainedJob TrainOnShards(const TrainingPlan& plan, int num_shards);
TrainedJob TrainWithoutServers(const TrainingPlan& plan);

}  // namespace kaon::testing

#endif  // KAON_TESTS_INTEGRATION_TRAINED_JOB_H_
