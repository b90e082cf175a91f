// Converts a parameter group between the public API and the wire. Pure functions; any thread.
#ifndef KAON_CLIENT_WIRE_GROUP_CONVERSION_H_
#define KAON_CLIENT_WIRE_GROUP_CONVERSION_H_

#include "client/kaon/optimizer_options.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::client {

// Leaves unset what the caller left unset. A rule's options without any value are absent.
v1::ParameterGroup GroupToProto(const kaon::ParameterGroup& group);

kaon::ParameterGroup GroupFromProto(const v1::ParameterGroup& group);

}  // namespace kaon::client

#endif  // KAON_CLIENT_WIRE_GROUP_CONVERSION_H_
