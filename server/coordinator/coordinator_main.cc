// kaon-coordinator: the process. Reads its configuration from file, environment and flags. Shuts
// down cleanly on SIGTERM and SIGINT.
#include "absl/status/status.h"
#include "kaon/v1/config.pb.h"
#include "proto/chunk_memory.h"
#include "proto/identity.h"
#include "proto/program_log.h"
#include "proto/status_macros.h"
#include "server/auth/server_credentials.h"
#include "server/config/server_config.h"
#include "server/config/server_process.h"
#include "server/coordinator/coordinator_server.h"

namespace {

kaon::config::CommandLine Describe() {
  kaon::config::CommandLine line;
  line.program = "kaon-coordinator";
  line.description = "Coordinates the steps of one training job over Kaon shards.";
  line.features = "no backend: shards compute";
  line.flags = {
      {"listen", "host:port to serve on; port 0 = any (127.0.0.1:0)"},
      {"tls.ca_file", "PEM file of the cluster's CA"},
      {"tls.certificate_file", "PEM file of this coordinator's certificate"},
      {"tls.private_key_file", "PEM file of its private key"},
      {"tls.deny_file", "identities and serial:HEX to refuse, one a line; read again (none)"},
      {"tls.crl_dir", "directory of revocation lists of the CA in PEM; read again (none)"},
      {"shards", "host:port of every shard, comma-separated; the order must never change"},
      {"advertise", "host:port at which workers reach this coordinator, if not listen"},
      {"heartbeat_ms", "interval of heartbeats to the shards, milliseconds (100)"},
      {"takeover_ms", "a holder silent for this long may be replaced, milliseconds (500)"},
      {"port_file", "write the bound port here once calls are accepted"},
      {"checkpoint_dir", "directory of checkpoints, which coordinators and all shards see"},
      {"checkpoint_every_steps",
       "take a checkpoint each time so many steps are applied (0: never)"},
      {"checkpoint_keep", "so many of the newest are kept after each (3)"},
      {"memory_bytes",
       "memory of the process; connections that take more, by a tenth at most, are ended "
       "(1073741824)"},
      {"metrics_address",
       "host:port for metrics by HTTP; not on loopback: needs tls and metrics_token_file (none)"},
      {"metrics_token_file", "file with the bearer token of that address"},
      {"metrics_port_file", "write the bound port of that address here"},
      {"log_level", "debug, info, warning or error; SIGHUP reads it again (info)"},
      {"audit_file", "append admin acts and refused calls to this file, as JSON lines (none)"},
      {"traces_address",
       "host:port on loopback of a collector of OpenTelemetry, for a trace of each step (none)"},
      {"log_format", "text, or json: one object a line (text)"},
  };
  line.complete = [](google::protobuf::Message* message) -> absl::Status {
    auto& config = static_cast<kaon::v1::CoordinatorConfig&>(*message);
    KAON_ASSIGN_OR_RETURN(config, kaon::coordinator::CompleteConfig(config));
    return absl::OkStatus();
  };
  line.check_certificates = [](const google::protobuf::Message& message) {
    const auto& config = static_cast<const kaon::v1::CoordinatorConfig&>(message);
    return kaon::auth::CheckServerTls(config.tls(), config.listen(),
                                      kaon::proto::Role::kCoordinator);
  };
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  kaon::config::HoldHangup();
  kaon::proto::BoundArenas();
  kaon::proto::StartLog(argv[0]);
  return kaon::config::RunServer<kaon::coordinator::CoordinatorServer, kaon::v1::CoordinatorConfig>(
      Describe(), argc, argv);
}
