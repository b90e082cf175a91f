// kaon-coordinator: the process. Configuration by file, environment and flags; ends cleanly on
// SIGTERM and SIGINT.
#include <glog/logging.h>

#include <utility>

#include "absl/status/status.h"
#include "kaon/v1/config.pb.h"
#include "proto/status_macros.h"
#include "server/config/checkpoint_options.h"
#include "server/config/server_config.h"
#include "server/config/server_process.h"
#include "server/coordinator/coordinator_server.h"

namespace {

// What is typed, and what it says once the command line is complete.
struct Checkpoints {
  kaon::config::CheckpointFlags flags;
  kaon::config::CheckpointOptions options;
};

kaon::config::CommandLine Describe(Checkpoints& checkpoints) {
  kaon::config::CommandLine line;
  line.program = "kaon-coordinator";
  line.description = "Coordinates the steps of one training job over Kaon shards.";
  line.flags = {
      {"listen", "host:port to serve on; port 0 = any (127.0.0.1:0)"},
      {"tls.ca_file", "PEM file of the cluster's CA"},
      {"tls.certificate_file", "PEM file of this coordinator's certificate"},
      {"tls.private_key_file", "PEM file of its private key"},
      {"shards", "host:port of every shard, comma-separated; the order must never change"},
      {"advertise", "host:port at which workers reach this coordinator, if not listen"},
      {"heartbeat_ms", "interval of heartbeats to the shards, milliseconds (100)"},
      {"takeover_ms", "a holder silent for this long may be replaced, milliseconds (500)"},
      {"port_file", "write the bound port here once calls are accepted"},
  };
  line.loose_flags = kaon::config::CheckpointPolicyFlags(checkpoints.flags);
  line.loose_flags.push_back(kaon::config::CheckpointDirectoryFlag(checkpoints.flags));
  line.complete = [&checkpoints](google::protobuf::Message* message) -> absl::Status {
    auto& config = static_cast<kaon::v1::CoordinatorConfig&>(*message);
    KAON_ASSIGN_OR_RETURN(config, kaon::coordinator::CompleteConfig(config));
    return kaon::config::ReadCheckpointFlags(checkpoints.flags, &checkpoints.options);
  };
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  Checkpoints checkpoints;
  return kaon::config::RunServer<kaon::coordinator::CoordinatorServer, kaon::v1::CoordinatorConfig>(
      Describe(checkpoints), argc, argv, [&checkpoints](kaon::v1::CoordinatorConfig config) {
        return kaon::coordinator::CoordinatorServer::Start(std::move(config), checkpoints.options);
      });
}
