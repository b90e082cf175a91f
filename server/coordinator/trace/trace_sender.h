// Sends spans to a collector of OpenTelemetry over gRPC. Spans that it does not take in time are
// lost: traces never hold up a server. Owned by CoordinatorServer; any thread.
#ifndef KAON_SERVER_COORDINATOR_TRACE_TRACE_SENDER_H_
#define KAON_SERVER_COORDINATOR_TRACE_TRACE_SENDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/mutex.h"
#include "server/coordinator/trace/step_spans.h"

namespace kaon::coordinator {

class TraceSender {
 public:
  // INVALID_ARGUMENT if traces_address is set, and not host:port on loopback: there is no TLS.
  static absl::Status CheckAddress(const std::string& address);

  // Sends to host:port in the name of the service `name`.
  TraceSender(const std::string& address, std::string name);
  // Cancels what is being sent, and waits for that.
  ~TraceSender();

  // Sends, without waiting. Drops the spans while a few requests are unanswered.
  void Send(std::vector<TraceSpan> spans);

  // Return numbers of spans so far.
  uint64_t num_sent() const;
  uint64_t num_lost() const;

 private:
  struct Calls;

  const std::string name_;
  const std::shared_ptr<Calls> calls_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_TRACE_TRACE_SENDER_H_
