#include "server/process/standard_services.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

namespace kaon::process {

void EnableStandardServices() {
  grpc::EnableDefaultHealthCheckService(true);
  // gRPC keeps a list of plugins for the process, to which each call would add another one.
  static const bool once = [] {
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  static_cast<void>(once);
}

void ShowServing(grpc::Server& server, const std::vector<std::string>& services) {
  for (const std::string& service : services) {
    server.GetHealthCheckService()->SetServingStatus(service, true);
  }
}

}  // namespace kaon::process
