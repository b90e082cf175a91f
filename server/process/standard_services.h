// The services that every gRPC tool knows: health and reflection. Free functions.
#ifndef KAON_SERVER_PROCESS_STANDARD_SERVICES_H_
#define KAON_SERVER_PROCESS_STANDARD_SERVICES_H_

#include <grpcpp/server.h>

#include <string>
#include <vector>

namespace kaon::process {

// Makes every server that this process builds later serve grpc.health.v1 and gRPC's reflection. The
// authorization matrix says who may call them. Any thread; call it before making a ServerBuilder.
void EnableStandardServices();

// Reports these services as SERVING: they take calls as long as the process lives.
void ShowServing(grpc::Server& server, const std::vector<std::string>& services);

}  // namespace kaon::process

#endif  // KAON_SERVER_PROCESS_STANDARD_SERVICES_H_
