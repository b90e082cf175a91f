// Accepts the connections of one gRPC server, because gRPC 1.51 stops accepting forever once the
// process has run out of descriptors. Connections never get the last descriptors. They are limited
// in total, by address, and while their peer is unknown. If the port stops answering all the same,
// the listener ends the process with the reason. On request it also ends the connections that take
// the memory of the process. Owned by the server's composition root.
#ifndef KAON_SERVER_LISTENER_LISTENER_H_
#define KAON_SERVER_LISTENER_LISTENER_H_

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/mutex.h"
#include "proto/descriptor.h"
#include "server/auth/call_limits.h"
#include "server/auth/peer_policy.h"
#include "server/listener/call_observer.h"
#include "server/listener/connection_table.h"
#include "server/listener/guard_thread.h"
#include "server/listener/listener_watchdog.h"
#include "server/listener/policy_thread.h"
#include "server/monitor/event_counts.h"

namespace kaon::listener {

class Listener {
 public:
  // Returns the error that Bind would return, unless it is about the port.
  static absl::Status CheckAddress(const std::string& listen);
  // Binds host:port and listens; port 0 = any. `counts` must outlive the listener.
  //   FAILED_PRECONDITION  the host is unknown, or the port is in use or not permitted. The
  //                        error names the process that uses the port if /proc shows it
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(const std::string& listen,
                                                        monitor::EventCounts& counts);
  // Calls Stop. The listener must outlive the server that AddTo configured.
  ~Listener();

  int port() const { return port_; }
  // Returns the number of connections whose peer has made no authorized call yet.
  size_t num_unknown() const ABSL_LOCKS_EXCLUDED(mu_);

  // Makes the server get its connections here and report each authorized call. Connections whose
  // certificate `policy` no longer accepts are cut within a second; null without certificates.
  // Those that go on beyond `limits`, which the credentials count by, end at once; null = none.
  void AddTo(grpc::ServerBuilder& builder, std::shared_ptr<grpc::ServerCredentials> credentials,
             std::shared_ptr<auth::PeerPolicy> policy,
             std::shared_ptr<auth::CallLimits> limits = nullptr);

  // Registers a service of that full name, and counts the bytes that its handlers take. Those of
  // other services are not counted.
  void AddService(grpc::ServerBuilder& builder, grpc::Service& service, const char* full_name);

  // Begins to accept; call it once the server is started. Keeps `reserve` descriptors, in addition
  // to those open now, for files and outgoing connections. `tls` tells the watchdog whether the
  // port speaks TLS.
  //   FAILED_PRECONDITION  the limit of open files leaves room for too few connections
  absl::Status Start(size_t reserve, bool tls);

  // Ends connections while the process has much more resident than `budget_bytes`, those first that
  // sent most without a handler to take it. Bounds the calls of an identity as well. Call it after
  // Start, if nothing else in the process takes much memory. Ends nothing under a sanitizer, whose
  // memory says nothing.
  void GuardMemory(uint64_t budget_bytes);

  // Returns what the open connections have sent, and what handlers took of it. Any thread.
  std::vector<ConnectionUse> Uses() const ABSL_LOCKS_EXCLUDED(mu_);

  // Stops accepting and closes the port. Call it before the server shuts down. Idempotent.
  void Stop();

 private:
  class PeerObserver;
  Listener(std::vector<proto::Descriptor> sockets, int port, proto::Descriptor wake,
           monitor::EventCounts& counts);
  void Run();
  // Accepts a waiting connection. Returns false if the loop should accept nothing for a while.
  bool AcceptOne(int socket);
  // Returns false if the caller must close the connection.
  bool Admit(int fd, const sockaddr_storage& address);
  // Returns how many of them it has ended.
  size_t End(const std::vector<uint64_t>& connections) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the connection of that number of the limits.
  void EndExcess(uint64_t number, bool had_handler) ABSL_LOCKS_EXCLUDED(mu_);
  void CountCut() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::vector<proto::Descriptor> sockets_;
  const int port_;
  const proto::Descriptor wake_;
  monitor::EventCounts& counts_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::shared_ptr<auth::PeerPolicy> policy_;
  std::shared_ptr<auth::CallLimits> limits_;
  // The form of each method. Constant once the server has started.
  std::map<std::string, CallObserver::Messages> forms_;

  mutable Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  // Empty before Start.
  std::optional<ConnectionTable> table_ ABSL_GUARDED_BY(mu_);
  uint64_t counted_cuts_ ABSL_GUARDED_BY(mu_) = 0;

  // Set while the memory that connections took is being freed.
  std::atomic<bool> closed_ = false;

  std::thread thread_;
  std::optional<ListenerWatchdog> watchdog_;
  std::optional<GuardThread> guard_;
  // Absent without certificates.
  std::optional<PolicyThread> policy_thread_;
};

}  // namespace kaon::listener

#endif  // KAON_SERVER_LISTENER_LISTENER_H_
