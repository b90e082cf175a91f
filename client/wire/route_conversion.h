// Converts layouts and the routing table of a registered job between the public API and the wire.
// Pure functions; any thread.
#ifndef KAON_CLIENT_WIRE_ROUTE_CONVERSION_H_
#define KAON_CLIENT_WIRE_ROUTE_CONVERSION_H_

#include <vector>

#include "client/kaon/routing.h"
#include "kaon/v1/coordinator.pb.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::client {

v1::MatrixLayout LayoutToProto(const kaon::MatrixLayout& layout);

kaon::MatrixLayout LayoutFromProto(const v1::MatrixLayout& wire);

// Returns routes by parameter id; a missing placement gives an empty route. Derives exemption and
// matrices from the job on the wire, with the same functions as the service.
std::vector<kaon::ParameterRoute> RoutesFromProto(const v1::JobDescription& description);

}  // namespace kaon::client

#endif  // KAON_CLIENT_WIRE_ROUTE_CONVERSION_H_
