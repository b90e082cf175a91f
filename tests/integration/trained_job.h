// Trains one job to the end, through real servers in this process or without any, on gradients that
// are a function of parameter, rank and step: what both must end in alike. For tests; one thread.
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
  // One per step.
  std::vector<StepRecord> records;
  // Of everything the shards hold but the position, after each step; of a run through servers.
  std::vector<uint64_t> state_digests;
  // What the coordinator shows in the end, of a run through servers; with phases.
  v1::GetStatusResponse status;
  v1::StepHistoryResponse history;
};

struct TrainingPlan {
  v1::JobDefinition job;
  uint64_t steps = 1;
  // Empty: this rank has none.
  std::function<std::vector<float>(uint32_t parameter_id, uint32_t rank, uint64_t step)> gradient;
  // Each pushes its share of the gradient; only powers of two give the same bits.
  uint32_t micro_batches = 1;
};

// Values of at most 11 bits, the same for the same arguments; a copy has those of its original.
std::vector<float> DrawTensor(const v1::JobDefinition& job, uint32_t parameter_id, uint64_t seed);

TrainedJob TrainOnShards(const TrainingPlan& plan, int num_shards);
TrainedJob TrainWithoutServers(const TrainingPlan& plan);

}  // namespace kaon::testing

#endif  // KAON_TESTS_INTEGRATION_TRAINED_JOB_H_
