#include "server/listener/call_observer.h"

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include <utility>

namespace kaon::listener {

CallObserver::CallObserver(std::shared_ptr<CallCounts> counts, Messages messages, bool streams)
    : counts_(std::move(counts)), messages_(messages), streams_(streams) {
  counts_->open_calls.fetch_add(1, std::memory_order_relaxed);
}

CallObserver::~CallObserver() {
  counts_->taken_bytes.fetch_add(held_bytes_, std::memory_order_relaxed);
  counts_->taken_messages.fetch_add(1, std::memory_order_relaxed);
  counts_->open_calls.fetch_sub(1, std::memory_order_relaxed);
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
