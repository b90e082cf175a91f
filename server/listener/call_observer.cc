#include "server/listener/call_observer.h"

#include <glog/logging.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message_lite.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/support/byte_buffer.h>

#include <utility>

namespace kaon::listener {

namespace {

namespace internal = ::grpc::internal;
using ::grpc::ByteBuffer;

// gRPC shows the handlers of a service to derived classes only.
class AnyService : public grpc::Service {
 public:
  static const internal::MethodHandler* HandlerOf(grpc::Service& service, int method) {
    return (service.*&AnyService::GetHandler)(method);
  }
};

// A method has a raw handler by its generated type WithRawCallbackMethod_NAME.
bool IsRaw(const internal::MethodHandler* handler) {
  return dynamic_cast<const internal::CallbackUnaryHandler<ByteBuffer, ByteBuffer>*>(handler) ||
         dynamic_cast<const internal::CallbackClientStreamingHandler<ByteBuffer, ByteBuffer>*>(
             handler) ||
         dynamic_cast<const internal::CallbackServerStreamingHandler<ByteBuffer, ByteBuffer>*>(
             handler) ||
         dynamic_cast<const internal::CallbackBidiHandler<ByteBuffer, ByteBuffer>*>(handler);
}

}  // namespace

std::map<std::string, CallObserver::Messages> CallObserver::FormsOf(grpc::Service& service,
                                                                    const char* full_name) {
  const google::protobuf::ServiceDescriptor* const described =
      google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(full_name);
  CHECK(described != nullptr) << full_name;
  std::map<std::string, Messages> forms;
  for (int i = 0; i < described->method_count(); ++i) {
    const std::string name = "/" + described->full_name() + "/" + described->method(i)->name();
    const internal::MethodHandler* const handler = AnyService::HandlerOf(service, i);
    if (handler == nullptr) continue;
    forms[name] = IsRaw(handler) ? Messages::kByteBuffer : Messages::kProtobuf;
  }
  return forms;
}

CallObserver::CallObserver(std::shared_ptr<CallCounts> counts, Messages messages, bool streams)
    : counts_(std::move(counts)), messages_(messages), streams_(streams) {
  counts_->open_calls.fetch_add(1, std::memory_order_relaxed);
  if (counts_->number != 0) counts_->limits->Begin(counts_->number);
}

CallObserver::~CallObserver() {
  counts_->taken_bytes.fetch_add(held_bytes_, std::memory_order_relaxed);
  counts_->taken_messages.fetch_add(1, std::memory_order_relaxed);
  counts_->open_calls.fetch_sub(1, std::memory_order_relaxed);
  if (counts_->number != 0) counts_->limits->End(counts_->number);
}

void CallObserver::Intercept(grpc::experimental::InterceptorBatchMethods* batch) {
  if (batch->QueryInterceptionHookPoint(
          grpc::experimental::InterceptionHookPoints::POST_RECV_MESSAGE)) {
    // Null after the last message of a stream, and after one that cannot be parsed.
    const void* const message = batch->GetRecvMessage();
    uint64_t bytes = 0;
    if (message != nullptr && messages_ == Messages::kProtobuf) {
      bytes = static_cast<const google::protobuf::MessageLite*>(message)->ByteSizeLong();
    } else if (message != nullptr && messages_ == Messages::kByteBuffer) {
      bytes = static_cast<const grpc::ByteBuffer*>(message)->Length();
    }
    if (streams_ && message != nullptr) {
      counts_->taken_bytes.fetch_add(bytes, std::memory_order_relaxed);
      counts_->taken_messages.fetch_add(1, std::memory_order_relaxed);
    } else {
      held_bytes_ += bytes;
    }
  }
  batch->Proceed();
}

}  // namespace kaon::listener
