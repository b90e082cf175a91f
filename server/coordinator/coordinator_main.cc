// kaon-coordinator: the process. Configuration by file, environment and flags; ends cleanly on
// SIGTERM and SIGINT.
#include <glog/logging.h>
#include <pthread.h>
#include <signal.h>

#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/config.pb.h"
#include "proto/status_macros.h"
#include "server/config/server_config.h"
#include "server/coordinator/coordinator_server.h"

namespace {

kaon::config::CommandLine Describe() {
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
  line.complete = [](google::protobuf::Message* message) -> absl::Status {
    auto& config = static_cast<kaon::v1::CoordinatorConfig&>(*message);
    KAON_ASSIGN_OR_RETURN(config, kaon::coordinator::CompleteConfig(config));
    return absl::OkStatus();
  };
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  kaon::v1::CoordinatorConfig config;
  if (const std::optional<int> exit_status =
          kaon::config::ParseCommandLine(Describe(), argc, argv, &config)) {
    return *exit_status;
  }
  // Before the first thread, so that every thread leaves these signals to sigwait.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  absl::StatusOr<std::unique_ptr<kaon::coordinator::CoordinatorServer>> server =
      kaon::coordinator::CoordinatorServer::Start(std::move(config));
  if (!server.ok()) {
    std::cerr << "kaon-coordinator: " << server.status() << std::endl;
    return 1;
  }
  int signal = 0;
  sigwait(&signals, &signal);
  LOG(INFO) << "signal " << signal << ": shutting down";
  (*server)->Shutdown();
  return 0;
}
