// Calls to the coordinators of a cluster, each to one address: who retries, and where, is the
// caller's business. Owned by the client's Runtime; any thread. Callbacks come from gRPC's threads,
// or from the calling thread when no call could be made; they must not block.
#ifndef KAON_CLIENT_TRANSPORT_COORDINATOR_CLIENT_H_
#define KAON_CLIENT_TRANSPORT_COORDINATOR_CLIENT_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/kaon/client.h"
#include "client/transport/call_tracker.h"
#include "kaon/v1/coordinator.pb.h"
#include "kernels/mutex.h"

namespace kaon::client {

// A call under way. After Cancel its callback follows soon.
class OutgoingCall {
 public:
  virtual ~OutgoingCall() = default;
  virtual void Cancel() = 0;
};

class CoordinatorClient {
 public:
  // The result, and the address in the trailing metadata kaon-holder (empty if none).
  template <typename Response>
  using Callback =
      std::function<void(const absl::StatusOr<Response>& response, const std::string& holder)>;

  CoordinatorClient(TlsFiles tls, std::shared_ptr<CallTracker> tracker);
  ~CoordinatorClient();

  // Prepares the connection to `address`. Errors as CreateChannel.
  absl::Status Open(const std::string& address) ABSL_LOCKS_EXCLUDED(mu_);

  // Each ends with DEADLINE_EXCEEDED after `timeout`. The result is null when no call was made.
  std::shared_ptr<OutgoingCall> Register(const std::string& address,
                                         const v1::RegisterJobRequest& request,
                                         absl::Duration timeout, Callback<v1::JobDescription> done);
  std::shared_ptr<OutgoingCall> GetJob(const std::string& address, const v1::GetJobRequest& request,
                                       absl::Duration timeout, Callback<v1::JobDescription> done);
  std::shared_ptr<OutgoingCall> Join(const std::string& address,
                                     const v1::JoinWorkerRequest& request, absl::Duration timeout,
                                     Callback<v1::JoinWorkerResponse> done);
  std::shared_ptr<OutgoingCall> Begin(const std::string& address,
                                      const v1::BeginStepRequest& request, absl::Duration timeout,
                                      Callback<v1::BeginStepResponse> done);

  // Events in order, then the end. No deadline: the connection's keepalive finds a dead peer.
  std::shared_ptr<OutgoingCall> Await(
      const std::string& address, const v1::AwaitStepRequest& request,
      std::function<void(const v1::StepEvent&)> on_event,
      std::function<void(const absl::Status&, const std::string& holder)> on_end);

 private:
  struct Peer;

  // `method` starts the RPC on the stub it is given.
  template <typename Request, typename Response, typename Method>
  std::shared_ptr<OutgoingCall> Call(const std::string& address, const Request& request,
                                     absl::Duration timeout, Callback<Response> done,
                                     Method method);
  // The connection to `address`, made if there is none yet. Shared with the calls on it.
  absl::StatusOr<std::shared_ptr<Peer>> PeerOf(const std::string& address) ABSL_LOCKS_EXCLUDED(mu_);

  const TlsFiles tls_;
  // Shared with the calls.
  const std::shared_ptr<CallTracker> tracker_;

  Mutex mu_;
  std::map<std::string, std::shared_ptr<Peer>> peers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_COORDINATOR_CLIENT_H_
