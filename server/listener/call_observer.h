// Counts one call and the messages that its handler takes. gRPC owns it until the call has ended,
// and calls it on any thread. Reads of one call are not concurrent.
#ifndef KAON_SERVER_LISTENER_CALL_OBSERVER_H_
#define KAON_SERVER_LISTENER_CALL_OBSERVER_H_

#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/server_interceptor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "server/listener/call_counts.h"

namespace kaon::listener {

class CallObserver : public grpc::experimental::Interceptor {
 public:
  // Form in which the handler gets its messages.
  enum class Messages : uint8_t {
    // Their bytes are not counted.
    kUnknown,
    kProtobuf,
    kByteBuffer,
  };

  // Returns the form of each method of the service, by its name /package.Service/Method.
  // `full_name` is that of the service, as generated code has it.
  static std::map<std::string, Messages> FormsOf(grpc::Service& service, const char* full_name);

  // With `streams`, the handler takes messages one after the other, and each counts at once. Other
  // handlers may keep their message until the call ends, so it counts then.
  CallObserver(std::shared_ptr<CallCounts> counts, Messages messages, bool streams);
  ~CallObserver() override;

  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override;

 private:
  const std::shared_ptr<CallCounts> counts_;
  const Messages messages_;
  const bool streams_;
  // Taken when the call ends.
  uint64_t held_bytes_ = 0;
};

}  // namespace kaon::listener

#endif  // KAON_SERVER_LISTENER_CALL_OBSERVER_H_
