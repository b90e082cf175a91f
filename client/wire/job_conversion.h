// Converts a job between the public API and the wire. Pure functions; any thread.
#ifndef KAON_CLIENT_WIRE_JOB_CONVERSION_H_
#define KAON_CLIENT_WIRE_JOB_CONVERSION_H_

#include "client/kaon/job_definition.h"
#include "kaon/v1/coordinator.pb.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::client {

// Leaves unset what the caller left unset.
v1::JobDefinition ToProto(const kaon::JobDefinition& definition);

// Leaves unset what the message leaves unset.
kaon::JobDefinition FromProto(const v1::JobDefinition& definition);

// Routes are indexed by parameter id; a missing placement gives empty routes.
kaon::JobDescription FromProto(const v1::JobDescription& description);

}  // namespace kaon::client

#endif  // KAON_CLIENT_WIRE_JOB_CONVERSION_H_
