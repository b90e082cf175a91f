#include "server/admin_cli/servers/ask_servers.h"

#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/transport/channel.h"
#include "proto/grpc_deadline.h"
#include "proto/grpc_status.h"
#include "proto/status_macros.h"
#include "server/admin_cli/table.h"

namespace kaon::admin_cli {

namespace {

// Makes one call and sets the fields of its answer.
using AskServer = std::function<absl::Status(v1::ServerProcess::Stub& stub, Json& fields)>;

absl::StatusOr<std::unique_ptr<v1::ServerProcess::Stub>> StubFor(const Options& options,
                                                                 const std::string& address,
                                                                 proto::Role role) {
  KAON_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                        client::CreateChannel(address, options.tls, role));
  return v1::ServerProcess::NewStub(channel);
}

// Calls `method` within the timeout.
template <typename Request, typename Response>
absl::Status Call(const Options& options, v1::ServerProcess::Stub& stub,
                  grpc::Status (v1::ServerProcess::Stub::*method)(grpc::ClientContext*,
                                                                  const Request&, Response*),
                  const Request& request, Response* response) {
  grpc::ClientContext context;
  context.set_deadline(proto::DeadlineAfter(absl::Seconds(options.timeout_seconds)));
  return proto::FromGrpc((stub.*method)(&context, request, response));
}

ServerRow AskOne(const Options& options, ServerRow row, proto::Role role, const AskServer& ask) {
  const absl::StatusOr<std::unique_ptr<v1::ServerProcess::Stub>> stub =
      StubFor(options, row.address, role);
  row.status = stub.ok() ? ask(**stub, row.fields) : stub.status();
  return row;
}

ServerReport AskAll(const Options& options, const absl::StatusOr<v1::GetStatusResponse>& status,
                    const AskServer& ask) {
  ServerReport report;
  const auto add = [&](const std::string& server, const std::string& address, proto::Role role) {
    report.rows.push_back(AskOne(options, {server, address, {}, {}}, role, ask));
  };
  if (!options.shard.empty()) {
    add("shard", options.shard, proto::Role::kShard);
    return report;
  }
  for (const std::string& endpoint : options.endpoints) {
    add("coordinator", endpoint, proto::Role::kCoordinator);
  }
  report.shards = status.status();
  if (!status.ok()) return report;
  for (const v1::ShardStatus& shard : status->shards()) {
    add(absl::StrCat("shard ", shard.shard()), shard.address(), proto::Role::kShard);
  }
  return report;
}

std::string Field(const ServerRow& row, const char* name) {
  return row.status.ok() ? row.fields[name].get<std::string>() : "-";
}

}  // namespace

absl::StatusOr<v1::GetProcessResponse> GetProcess(const Options& options,
                                                  const std::string& address, proto::Role role) {
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<v1::ServerProcess::Stub> stub,
                        StubFor(options, address, role));
  v1::GetProcessResponse response;
  const absl::Status status = Call(options, *stub, &v1::ServerProcess::Stub::GetProcess,
                                   v1::GetProcessRequest(), &response);
  if (status.ok()) return response;
  return absl::Status(status.code(), absl::StrCat(address, ": ", status.message()));
}

ServerReport SetLogLevels(const Options& options,
                          const absl::StatusOr<v1::GetStatusResponse>& status) {
  v1::SetLogLevelRequest request;
  request.set_level(options.log_level);
  return AskAll(options, status, [&](v1::ServerProcess::Stub& stub, Json& fields) {
    v1::SetLogLevelResponse response;
    KAON_RETURN_IF_ERROR(
        Call(options, stub, &v1::ServerProcess::Stub::SetLogLevel, request, &response));
    fields["log_level"] = options.log_level;
    fields["previous"] = response.previous();
    return absl::OkStatus();
  });
}

ServerReport GetConfigs(const Options& options,
                        const absl::StatusOr<v1::GetStatusResponse>& status) {
  return AskAll(options, status, [&](v1::ServerProcess::Stub& stub, Json& fields) {
    v1::GetConfigResponse response;
    KAON_RETURN_IF_ERROR(Call(options, stub, &v1::ServerProcess::Stub::GetConfig,
                              v1::GetConfigRequest(), &response));
    fields["config"] = response.config();
    return absl::OkStatus();
  });
}

absl::Status AllAnswered(const ServerReport& report) {
  absl::Status first;
  std::string all;
  for (const ServerRow& row : report.rows) {
    if (row.status.ok()) continue;
    if (first.ok()) first = row.status;
    absl::StrAppend(&all, all.empty() ? "" : "; ", row.server, " ", row.address, ": ",
                    row.status.message());
  }
  if (!first.ok()) return absl::Status(first.code(), all);
  if (report.shards.ok()) return absl::OkStatus();
  return absl::Status(report.shards.code(),
                      absl::StrCat("shards cannot be listed: ", report.shards.message()));
}

Json ServersJson(const ServerReport& report) {
  Json servers = Json::array();
  for (const ServerRow& row : report.rows) {
    Json server = {{"server", row.server},
                   {"address", row.address},
                   {"problem", std::string(row.status.message())}};
    for (const auto& [name, value] : row.fields.items()) server[name] = value;
    servers.push_back(std::move(server));
  }
  return {{"servers", std::move(servers)}};
}

std::string LogLevelsText(const ServerReport& report) {
  Table table({{"SERVER"}, {"ADDRESS"}, {"LEVEL"}, {"BEFORE"}, {"PROBLEM"}});
  for (const ServerRow& row : report.rows) {
    table.AddRow({row.server, row.address, Field(row, "log_level"), Field(row, "previous"),
                  OrDash(std::string(row.status.message()))});
  }
  return table.ToString();
}

std::string ConfigsText(const ServerReport& report) {
  std::string text;
  for (const ServerRow& row : report.rows) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", "# ", row.server, " ", row.address, "\n",
                    row.status.ok() ? row.fields["config"].get<std::string>() : "-\n");
  }
  return text;
}

}  // namespace kaon::admin_cli
