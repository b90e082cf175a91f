// Serves kaon.v1.ServerProcess: one server process as an operator sees it. Owned by the server's
// composition root; called by gRPC's threads.
#ifndef KAON_SERVER_PROCESS_PROCESS_SERVICE_H_
#define KAON_SERVER_PROCESS_PROCESS_SERVICE_H_

#include <google/protobuf/message.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <string>
#include <utility>

#include "kaon/v1/server_process.grpc.pb.h"
#include "server/monitor/event_counts.h"

namespace kaon::process {

// Returns the configuration as textproto. A set field whose name says that it is about a secret has
// the value "(redacted)".
std::string RedactedText(const google::protobuf::Message& config);

class ProcessService : public v1::ServerProcess::CallbackService {
 public:
  // `config` and `counts` outlive the service.
  ProcessService(std::string program, const google::protobuf::Message& config,
                 monitor::EventCounts& counts)
      : program_(std::move(program)), config_(config), counts_(counts) {}

  // Codes: server_process.proto.
  grpc::ServerUnaryReactor* GetProcess(grpc::CallbackServerContext* context,
                                       const v1::GetProcessRequest* request,
                                       v1::GetProcessResponse* response) override;
  grpc::ServerUnaryReactor* GetConfig(grpc::CallbackServerContext* context,
                                      const v1::GetConfigRequest* request,
                                      v1::GetConfigResponse* response) override;
  // Logs the caller and the level, whatever the level is.
  grpc::ServerUnaryReactor* SetLogLevel(grpc::CallbackServerContext* context,
                                        const v1::SetLogLevelRequest* request,
                                        v1::SetLogLevelResponse* response) override;

 private:
  const std::string program_;
  const google::protobuf::Message& config_;
  monitor::EventCounts& counts_;
};

}  // namespace kaon::process

#endif  // KAON_SERVER_PROCESS_PROCESS_SERVICE_H_
