// Calls the coordinators of a cluster. Each call goes to one address; the caller decides about
// retries. Owned by the client's Runtime; any thread. Callbacks run on gRPC's threads, or on the
// calling thread if no call could be made. They must not block.
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
#include "client/kaon/client_options.h"
#include "client/transport/call_tracker.h"
#include "kaon/v1/coordinator.pb.h"
#include "kernels/mutex.h"

namespace kaon::client {

// An open call. After Cancel its callback follows soon.
class OutgoingCall {
 public:
  virtual ~OutgoingCall() = default;
  virtual void Cancel() = 0;
};

class CoordinatorClient {
 public:
  // Takes the result and the address in the trailing metadata kaon-holder (empty if none).
  template <typename Response>
  using Callback =
      std::function<void(const absl::StatusOr<Response>& response, const std::string& holder)>;

  CoordinatorClient(TlsFiles tls, std::shared_ptr<CallTracker> tracker);
  ~CoordinatorClient();

  // Prepares the connection to `address`. Errors as in CreateChannel.
  absl::Status Open(const std::string& address) ABSL_LOCKS_EXCLUDED(mu_);

  // These four end with DEADLINE_EXCEEDED after `timeout`. The returned pointer is null if no call
  // was made.
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

  // Asks whether a coordinator answers, serving or not. NOT_FOUND or UNIMPLEMENTED: `address` is
  // another server's.
  std::shared_ptr<OutgoingCall> CheckAnswers(const std::string& address, absl::Duration timeout,
                                             Callback<bool> done);

  // Reports events in order, then the end. There is no deadline: the connection's keepalive detects
  // a dead peer.
  std::shared_ptr<OutgoingCall> Await(
      const std::string& address, const v1::AwaitStepRequest& request,
      std::function<void(const v1::StepEvent&)> on_event,
      std::function<void(const absl::Status&, const std::string& holder)> on_end);

 private:
  struct Peer;

  // `method` starts the RPC on the given connection.
  template <typename Request, typename Response, typename Method>
  std::shared_ptr<OutgoingCall> Call(const std::string& address, const Request& request,
                                     absl::Duration timeout, Callback<Response> done,
                                     Method method);
  // Returns the connection to `address`, and creates it if necessary. Shared with its calls.
  absl::StatusOr<std::shared_ptr<Peer>> PeerOf(const std::string& address) ABSL_LOCKS_EXCLUDED(mu_);

  const TlsFiles tls_;
  // Shared with the calls.
  const std::shared_ptr<CallTracker> tracker_;

  Mutex mu_;
  std::map<std::string, std::shared_ptr<Peer>> peers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_COORDINATOR_CLIENT_H_
