// Small jobs, plans and records for the shard's tests. Pure functions; any thread.
#ifndef KAON_TESTS_SERVER_SHARD_AGREEMENT_PLANS_H_
#define KAON_TESTS_SERVER_SHARD_AGREEMENT_PLANS_H_

#include <cstdint>

#include "kaon/v1/agreement.pb.h"

namespace kaon::shard {

v1::Ballot MakeBallot(uint64_t counter);

// Returns a job of two ranks with parameters w (2x3, muon), b (4, adamw) and f (5, frozen), all on
// shard 0 of 1. With KAON_TEST_MEMORY=nvme, w and b ask for a disk.
v1::RegisterBody MakeRegistration();

// Returns the plan of position 1.
v1::StepPlan RegistrationPlan(uint64_t counter, uint64_t round);
// Returns the plan of position 2.
v1::StepPlan LoadPlan(uint64_t counter, uint64_t round);
// Returns the plan of position step + 2.
v1::StepPlan TrainPlan(uint64_t step, uint64_t counter, uint64_t round);
// Returns a plan that sets the learning rate of group scalars, the first change of the job.
v1::StepPlan GroupChangePlan(uint64_t position, double lr, uint64_t counter, uint64_t round);
// Returns a plan that deletes the job, which no group change came before.
v1::StepPlan DeletionPlan(uint64_t position, uint64_t counter, uint64_t round);

v1::StepRecord Applying(const v1::StepPlan& plan);
v1::StepRecord Skipping(const v1::StepPlan& plan);

}  // namespace kaon::shard

#endif  // KAON_TESTS_SERVER_SHARD_AGREEMENT_PLANS_H_
