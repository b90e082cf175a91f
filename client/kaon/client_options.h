// Options of a client: addresses, certificates, deadlines and transport. Plain values; C++17,
// standard library only.
#ifndef KAON_CLIENT_KAON_CLIENT_OPTIONS_H_
#define KAON_CLIENT_KAON_CLIENT_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kaon/status.h"

namespace kaon {

// Paths of PEM files. Set all three; without them the client connects to loopback addresses only.
struct TlsFiles {
  std::string ca;
  std::string certificate;
  std::string private_key;
};

// Carrier of gradients and weights between worker and shard. All other calls use the network.
enum class Transport {
  // Shared memory if worker and shard run on one machine and the shard has a free session;
  // otherwise the network.
  kAuto,
  kGrpc,
  // Shared memory only: a call that gets no session fails and says why.
  kShm,
};

struct ClientOptions {
  // Returns options from the environment, with the variables of kaonctl:
  // - KAON_ENDPOINTS: host:port of every coordinator, separated by commas. Without it,
  //   coordinator.port in the directory KAON_DIR names one on this machine.
  // - KAON_TLS_DIR, or else tls in KAON_DIR: directory of ca.crt, and of worker-R.crt and
  //   worker-R.key, where R is KAON_RANK. Without these it uses worker.crt and worker.key.
  // - KAON_CA, KAON_CERT and KAON_KEY: single files; each beats the directory.
  // - KAON_NCCL: nccl below.
  // INVALID_ARGUMENT if no coordinator is named; NOT_FOUND if coordinator.port cannot be read.
  // Reads no other file: Connect does. Do not change the environment on another thread meanwhile.
  static Result<ClientOptions> FromEnvironment();

  // host:port of every coordinator. Any of them may be the one that leads.
  std::vector<std::string> coordinators;
  TlsFiles tls;
  Transport transport = Transport::kAuto;
  // Deadline of Connect and of each control call, retries included.
  std::chrono::milliseconds call_deadline{30000};
  // Deadline of a step from Begin to Finish, and again from Finish to its decision; also of a pull.
  // Reconnects and repeated rounds are included.
  std::chrono::milliseconds step_deadline{600000};
  // Interval at which the log says what a call, a push or a pull waits for. The calls are Connect,
  // Register, Attach, Refresh, Join, WaitForWeights, LoadWeights and Finish. > 0.
  std::chrono::milliseconds wait_log_interval{10000};
  // Payload bytes sent and not yet acknowledged, over all shards of one worker. >= 1 MiB.
  uint64_t max_bytes_in_flight = 64 << 20;
  // Network interface or subnet for NCCL, such as eth1 or 10.1.0.0/16. It carries gradients on a
  // device to the shards, and weights back. A shard without NCCL gets and sends them over the
  // network, through host memory.
  // NCCL neither encrypts nor authenticates. Empty: no tensor may be on a device.
  std::string nccl;
  // Number of the CUDA device that the tensors are on.
  int nccl_device = 0;
  // Connections to each shard over the network, 1 .. 4, opened on first use. The client divides the
  // parameters among them: of a push from 4 MiB on, of a pull from 8 MiB on.
  uint32_t lanes = 2;
  // Called when the job went back to a checkpoint or snapshot and continues after `step`, in
  // `timeline`. Discard later results, Pull `step`, and begin step + 1.
  // Called once for each Job object and timeline, on any library thread or inside a call of yours.
  // The call precedes the FAILED_PRECONDITION that ends a step of an older timeline.
  // If a Refresh, a Pull or another rank's step detected it, a Worker that did not ends one more
  // step with FAILED_PRECONDITION. Join its rank again first to avoid that.
  // Must not block: do not call the library, wait for its futures, or destroy a Step or the Client.
  // A callback that would deadlock the library aborts the process.
  std::function<void(uint64_t timeline, uint64_t step)> on_rewind = nullptr;
};

}  // namespace kaon

#endif  // KAON_CLIENT_KAON_CLIENT_OPTIONS_H_
