// Turns a job's definition into the entry that registers it: validation, routes, placement.
// Compares two definitions. Pure functions; any thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_REGISTRATION_H_
#define KAON_SERVER_COORDINATOR_MACHINE_REGISTRATION_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"
#include "server/coordinator/machine/placement.h"

namespace kaon::coordinator {

// Returns the entry. Errors are those of job::Resolve; RESOURCE_EXHAUSTED has the arithmetic of a
// parameter that does not fit.
absl::StatusOr<v1::RegisterBody> MakeRegistration(const v1::JobDefinition& definition,
                                                  const PlacementLimits& limits);

// Sets the shard of every parameter of `body`, which has all other fields. RESOURCE_EXHAUSTED as
// above.
absl::Status PlaceOnShards(const PlacementLimits& limits, v1::RegisterBody& body);

// Returns the first difference between `requested` and the job as it was registered, for people:
// "groups[0].lr: 0.01 registered, 0.02 requested"; empty if equal. Both have their defaults written
// out, and later changes of the job do not matter. Workers are equal if they are those that were
// registered, or the present ones.
std::string FirstDifference(const v1::RegisterBody& registered, const v1::JobDefinition& requested);

// Remembers the last two that were equal: each worker of a job but the first gives the same
// definition, and a comparison takes long.
class RepeatedComparison {
 public:
  // Returns what the function of that name returns.
  std::string FirstDifference(const v1::RegisterBody& registered,
                              const v1::JobDefinition& requested);

 private:
  // Both are serialized.
  std::pair<std::string, std::string> equal_;
};

// Returns whether the two differ at most in workers (job/workers.h).
bool DifferInWorkersAlone(const v1::RegisterBody& registered, const v1::JobDefinition& requested);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_REGISTRATION_H_
