// The routing table of a registered job, and what of it a trainer may declare, between the public
// API and the wire. Pure functions; any thread.
#ifndef KAON_CLIENT_WIRE_ROUTE_CONVERSION_H_
#define KAON_CLIENT_WIRE_ROUTE_CONVERSION_H_

#include <vector>

#include "client/kaon/routing.h"
#include "kaon/v1/coordinator.pb.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::client {

v1::MatrixLayout LayoutToProto(const kaon::MatrixLayout& layout);

kaon::MatrixLayout LayoutFromProto(const v1::MatrixLayout& wire);

// By parameter id; a placement that is missing gives an empty route. Exemption and matrices follow
// from the job as the wire has it, by the functions that the service itself uses.
std::vector<kaon::ParameterRoute> RoutesFromProto(const v1::JobDescription& description);

}  // namespace kaon::client

#endif  // KAON_CLIENT_WIRE_ROUTE_CONVERSION_H_
