// A job between the public API and the wire. Pure functions; any thread.
#ifndef KAON_CLIENT_WIRE_JOB_CONVERSION_H_
#define KAON_CLIENT_WIRE_JOB_CONVERSION_H_

#include "client/kaon/job_definition.h"
#include "kaon/v1/coordinator.pb.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::client {

// What the caller left unset stays unset.
v1::JobDefinition ToProto(const kaon::JobDefinition& definition);

// Routes are by parameter id; a placement that is missing gives empty routes.
kaon::JobDescription FromProto(const v1::JobDescription& description);

}  // namespace kaon::client

#endif  // KAON_CLIENT_WIRE_JOB_CONVERSION_H_
