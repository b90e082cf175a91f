// Where the cluster is and how long a client waits for it. Plain values; C++17, standard library
// only.
#ifndef KAON_CLIENT_KAON_CLIENT_OPTIONS_H_
#define KAON_CLIENT_KAON_CLIENT_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace kaon {

// PEM files; all three, or none on loopback only.
struct TlsFiles {
  std::string ca;
  std::string certificate;
  std::string private_key;
};

// What gradients and weights pass through, to and from a shard. All else takes the network.
enum class Transport {
  // Shared memory where worker and shard are on one machine and the shard has a session left,
  // otherwise the network.
  kAuto,
  kGrpc,
  // A call for which there is no session fails with the reason.
  kShm,
};

struct ClientOptions {
  // host:port of every coordinator; any of them may hold the shards.
  std::vector<std::string> coordinators;
  TlsFiles tls;
  Transport transport = Transport::kAuto;
  // Deadline of each control call, retries included.
  std::chrono::milliseconds call_deadline{30000};
  // Deadline of a step from Begin to Finish, again from Finish to its decision, and of a pull;
  // reconnects and redone rounds included.
  std::chrono::milliseconds step_deadline{600000};
  // Payload bytes sent and not yet credited, over all shards of one worker. >= 1 MiB.
  uint64_t max_bytes_in_flight = 64 << 20;
  // Connections to each shard over the network, 1 .. 4, opened when they are used: pushes and pulls
  // of several parameters are divided among them, from 4 and 8 MiB on.
  uint32_t lanes = 2;
  // The job took the state of a checkpoint and goes on after `step`, in `timeline`: what was
  // computed since is void, the next step to begin is step + 1, after a Pull of `step`. Called
  // once for each Job object and timeline, before the FAILED_PRECONDITION that ends a step of an
  // older one, on any thread of the library or inside a call. A Worker that did not hear of it
  // itself, because a Refresh, a Pull or another rank's step did, ends one more step with
  // FAILED_PRECONDITION, unless its rank is joined again first. Must not block: it may neither
  // call the library, nor wait for its futures, nor destroy a Step or the Client. What would wait
  // for the library's own thread ends the process.
  std::function<void(uint64_t timeline, uint64_t step)> on_rewind = nullptr;
};

}  // namespace kaon

#endif  // KAON_CLIENT_KAON_CLIENT_OPTIONS_H_
