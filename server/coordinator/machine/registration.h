// From a job's definition to the entry that registers it: validation, routes, placement; and the
// comparison of two definitions. Pure functions; any thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_REGISTRATION_H_
#define KAON_SERVER_COORDINATOR_MACHINE_REGISTRATION_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"
#include "server/coordinator/machine/placement.h"

namespace kaon::coordinator {

// Errors are those of job::Resolve; RESOURCE_EXHAUSTED has the arithmetic of what does not fit.
absl::StatusOr<v1::RegisterBody> MakeRegistration(const v1::JobDefinition& definition,
                                                  const PlacementLimits& limits);

// Gives every parameter of `body`, which is whole but for that, one of the shards.
// RESOURCE_EXHAUSTED as above.
absl::Status PlaceOnShards(const PlacementLimits& limits, v1::RegisterBody& body);

// The first difference of `requested` to the job as it was registered, whatever was changed since,
// the defaults of both written out, for people: "groups[0].lr: 0.01 registered, 0.02 requested".
// Workers are equal if they are those that were registered, or the present ones. Empty if equal.
std::string FirstDifference(const v1::RegisterBody& registered, const v1::JobDefinition& requested);

// Whether the two differ at most in workers (job/workers.h).
bool DifferInWorkersAlone(const v1::RegisterBody& registered, const v1::JobDefinition& requested);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_REGISTRATION_H_
