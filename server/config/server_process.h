// The life of every server's process. It reads the configuration from file, environment and flags,
// serves until SIGTERM or SIGINT, and shuts down in order. SIGHUP reads the log level and the
// certificates again. Called once from main, before any thread
// starts.
#ifndef KAON_SERVER_CONFIG_SERVER_PROCESS_H_
#define KAON_SERVER_CONFIG_SERVER_PROCESS_H_

#include <glog/logging.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/failpoint.h"
#include "server/config/reload.h"
#include "server/config/server_config.h"

namespace kaon::config {

// Returns the maximum number of files that this process may open.
inline uint64_t MaxOpenFiles() {
  rlimit limit;
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_max : 0;
}

// Raises the limit of open files to the maximum that the system allows.
inline void RaiseOpenFileLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  LOG_IF(WARNING, setrlimit(RLIMIT_NOFILE, &limit) != 0)
      << "the limit of open files stays below " << limit.rlim_max;
}

// Leaves SIGHUP pending until RunServer takes it. Call it first in main, since the signal would end
// the process.
inline void HoldHangup() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

// Server has `static StatusOr<unique_ptr<Server>> Prepare(Config)`, which checks all that it can
// before it opens anything that only one process may use. It has `Status Serve()`, `Shutdown()`,
// and `GuardMemory()`, which bounds the memory of a process that has one server only. So
// --check-config and a start run the same checks. Returns the exit status:
//   0  after a shutdown
//   1  Serve failed: the machine refuses what Prepare cannot see, such as a port in use
//   2  a configuration that Prepare refuses
// or that of ParseCommandLine. The reason is one line on stderr.
template <typename Server, typename Config>
int RunServer(CommandLine command_line, int argc, const char* const* argv) {
  Config config;
  command_line.check = [](const google::protobuf::Message& message) {
    return Server::Prepare(static_cast<const Config&>(message)).status();
  };
  if (const std::optional<int> exit_status = ParseCommandLine(command_line, argc, argv, &config)) {
    return *exit_status;
  }
  if (const absl::Status armed = ArmFailpointOfEnvironment(); !armed.ok()) {
    std::cerr << command_line.program << ": " << armed.message() << std::endl;
    return 2;
  }
  // Block the signals before the first thread starts, so that every thread leaves them to sigwait.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  // Treat a file that reached its size limit like a full disk: the server waits and does not end.
  signal(SIGXFSZ, SIG_IGN);

  // Connections and files share one table. The usual limit of 1024 is meant for select().
  RaiseOpenFileLimit();

  const Config effective = config;
  ApplyLogFormat(effective, command_line.program);
  ApplyLogLevel(effective);
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Prepare(std::move(config));
  if (!server.ok()) {
    std::cerr << command_line.program << ": " << server.status().message() << std::endl;
    return 2;
  }
  if (const absl::Status serving = (*server)->Serve(); !serving.ok()) {
    std::cerr << command_line.program << ": " << serving << std::endl;
    return 1;
  }
  (*server)->GuardMemory();
  int signal = 0;
  while (sigwait(&signals, &signal) == 0 && signal == SIGHUP) {
    Config reread;
    // Parse errors are on stderr.
    const bool parsed = !ParseCommandLine(command_line, argc, argv, &reread).has_value();
    Reload(command_line, effective, parsed ? &reread : nullptr);
  }
  LOG(INFO) << "signal " << signal << ": shutting down";
  (*server)->Shutdown();
  return 0;
}

}  // namespace kaon::config

#endif  // KAON_SERVER_CONFIG_SERVER_PROCESS_H_
