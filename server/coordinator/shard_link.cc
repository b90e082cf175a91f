#include "server/coordinator/shard_link.h"

#include <glog/logging.h>
#include <grpcpp/support/client_callback.h>

#include <random>
#include <utility>

#include "proto/grpc_deadline.h"
#include "proto/grpc_status.h"

namespace kaon::coordinator {

namespace {

// Messages that may wait for a slow shard. Each tick adds at most one, so this is a few seconds of
// messages.
constexpr size_t kMaxOutgoing = 32;
// Bytes that may wait behind the message being written. Plans and records may hold a registration
// of megabytes, and each shard gets its own.
constexpr size_t kMaxOutgoingBytes = size_t{1} << 20;
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(50);
constexpr absl::Duration kMaxBackoff = absl::Seconds(1);
constexpr char kControlMethod[] = "/kaon.v1.ShardControl/Control";

grpc::ByteBuffer Encode(const v1::CoordinatorToShard& message, absl::string_view more) {
  const grpc::Slice slices[] = {grpc::Slice(message.SerializeAsString()),
                                grpc::Slice(more.data(), more.size())};
  return grpc::ByteBuffer(slices, 2);
}

}  // namespace

// One life of the control stream. The link owns it until OnDone.
class ShardLink::Stream : public grpc::ClientBidiReactor<grpc::ByteBuffer, v1::ShardToCoordinator> {
 public:
  explicit Stream(ShardLink& link) : token_(link.calls_), link_(link) {}

  void Start(ControlStub& stub, grpc::ByteBuffer probe) {
    // Wait for a shard that is not up yet; otherwise stream after stream would fail.
    context_.set_wait_for_ready(true);
    stub.PrepareBidiStreamingCall(&context_, kControlMethod, grpc::StubOptions(), this);
    // Writes start outside of reactions, so the stream must not end while reads continue.
    AddHold();
    StartRead(&incoming_);
    StartCall();
    Send(std::move(probe));
  }

  void Send(grpc::ByteBuffer message) {
    {
      MutexLock lock(mu_);
      if (broken_ || outgoing_.size() >= kMaxOutgoing) return;
      if (!outgoing_.empty()) {
        const size_t bytes = message.Length();
        // A larger message waits alone.
        if (waiting_bytes_ > 0 && waiting_bytes_ + bytes > kMaxOutgoingBytes) return;
        waiting_bytes_ += bytes;
      }
      outgoing_.push_back(std::move(message));
      if (outgoing_.size() > 1) return;
      // Keeps the stream from ending before StartWrite.
      AddHold();
    }
    WriteFront();
    RemoveHold();
  }

  void Cancel() { context_.TryCancel(); }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mu_);
      outgoing_.pop_front();
      if (!ok) broken_ = true;
      if (broken_ || outgoing_.empty()) return;
      waiting_bytes_ -= outgoing_.front().Length();
    }
    WriteFront();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        MutexLock lock(mu_);
        broken_ = true;
      }
      RemoveHold();
      return;
    }
    link_.OnMessage(std::exchange(incoming_, {}));
    StartRead(&incoming_);
  }

  void OnDone(const grpc::Status& status) override { link_.OnStreamDone(status); }

 private:
  // Called by the Send that queued the front, or at the end of the previous write: never twice
  // concurrently.
  void WriteFront() {
    const grpc::ByteBuffer* front = nullptr;
    {
      MutexLock lock(mu_);
      front = &outgoing_.front();
    }
    StartWrite(front);
  }

  const client::CallTracker::Token token_;
  ShardLink& link_;
  grpc::ClientContext context_;
  // Owned by the current read.
  v1::ShardToCoordinator incoming_;

  Mutex mu_;
  // The front is being written.
  std::deque<grpc::ByteBuffer> outgoing_ ABSL_GUARDED_BY(mu_);
  // Bytes of the messages behind the front.
  size_t waiting_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
};

ShardLink::ShardLink(ShardLinkOptions options, ShardLinkEvents events)
    : options_(std::move(options)),
      events_(std::move(events)),
      stub_(v1::ShardControl::NewStub(options_.channel)),
      control_stub_(options_.channel),
      backoff_(kFirstBackoff, kMaxBackoff, std::random_device()()) {}

ShardLink::~ShardLink() { Shutdown(); }

void ShardLink::Start(v1::CoordinatorToShard probe) {
  probe_ = std::move(probe);
  OpenStream();
}

void ShardLink::OpenStream() {
  auto stream = std::make_shared<Stream>(*this);
  {
    MutexLock lock(mu_);
    if (shutting_down_) return;
    stream_ = stream;
  }
  stream->Start(control_stub_, Encode(probe_, ""));
}

void ShardLink::Send(const v1::CoordinatorToShard& message, absl::string_view more) {
  std::shared_ptr<Stream> stream;
  {
    MutexLock lock(mu_);
    if (!connected_) return;
    stream = stream_;
  }
  if (stream) stream->Send(Encode(message, more));
}

void ShardLink::OnMessage(v1::ShardToCoordinator message) {
  bool first = false;
  {
    MutexLock lock(mu_);
    first = !std::exchange(connected_, true);
    failures_ = 0;
  }
  if (first) {
    LOG(INFO) << "shard " << options_.shard << ": connected";
    events_.connected();
  }
  events_.message(std::move(message));
}

void ShardLink::OnStreamDone(const grpc::Status& status) {
  std::shared_ptr<Stream> ended;
  const absl::Status why = proto::FromGrpc(status);
  bool is_news = false;
  {
    MutexLock lock(mu_);
    // A shard that rejects this coordinator ends every stream with the same status. Log it once.
    is_news = !shutting_down_ && (connected_ || why != last_end_);
    last_end_ = why;
  }
  LOG_IF(WARNING, is_news) << "shard " << options_.shard << ": control stream ended: " << why;
  events_.disconnected(why);
  MutexLock lock(mu_);
  ended = std::move(stream_);
  connected_ = false;
  if (!shutting_down_) {
    ++alarms_pending_;
    alarm_ = std::make_unique<grpc::Alarm>();
    alarm_->Set(proto::DeadlineAfter(backoff_.Delay(failures_++)), [this](bool fired) {
      if (fired) OpenStream();
      MutexLock lock(mu_);
      --alarms_pending_;
      idle_.NotifyAll();
    });
  }
  idle_.NotifyAll();
}

void ShardLink::Shutdown() {
  std::shared_ptr<Stream> stream;
  {
    MutexLock lock(mu_);
    shutting_down_ = true;
    stream = stream_;
    if (alarm_) alarm_->Cancel();
    for (const auto& call : unary_) call->context.TryCancel();
  }
  if (stream) stream->Cancel();
  stream.reset();
  {
    MutexLock lock(mu_);
    while (stream_ || alarms_pending_ > 0 || !unary_.empty()) idle_.Wait(mu_);
  }
  // A thread of gRPC must not be the one that destroys the channel.
  calls_->AwaitNone();
}

std::shared_ptr<ShardLink::UnaryContext> ShardLink::BeginUnary(absl::Duration timeout) {
  auto call = std::make_shared<UnaryContext>(calls_);
  call->context.set_deadline(proto::DeadlineAfter(timeout));
  MutexLock lock(mu_);
  if (shutting_down_) return nullptr;
  unary_.insert(call);
  return call;
}

void ShardLink::EndUnary(const std::shared_ptr<UnaryContext>& call) {
  MutexLock lock(mu_);
  unary_.erase(call);
  idle_.NotifyAll();
}

template <typename Request, typename Response, typename Method>
void ShardLink::Call(const Request& request, absl::Duration timeout, Callback<Response> callback,
                     Method method) {
  const std::shared_ptr<UnaryContext> call = BeginUnary(timeout);
  if (!call) {
    callback(absl::UnavailableError("coordinator is shutting down"));
    return;
  }
  auto sent = std::make_shared<Request>(request);
  auto response = std::make_shared<Response>();
  method(stub_->async(), &call->context, sent.get(), response.get(),
         [this, call, sent, response, callback = std::move(callback)](grpc::Status status) {
           if (status.ok()) {
             callback(std::move(*response));
           } else {
             callback(proto::FromGrpc(status));
           }
           EndUnary(call);
         });
}

void ShardLink::DescribeShard(const v1::DescribeShardRequest& request, absl::Duration timeout,
                              Callback<v1::DescribeShardResponse> callback) {
  Call(request, timeout, std::move(callback),
       [](auto* stub, auto... call) { stub->DescribeShard(call...); });
}

void ShardLink::ReadHistory(const v1::ReadHistoryRequest& request, absl::Duration timeout,
                            Callback<v1::ReadHistoryResponse> callback) {
  Call(request, timeout, std::move(callback),
       [](auto* stub, auto... call) { stub->ReadHistory(call...); });
}

void ShardLink::GetParameterStats(const v1::ShardParameterRequest& request, absl::Duration timeout,
                                  Callback<v1::ParameterStats> callback) {
  Call(request, timeout, std::move(callback),
       [](auto* stub, auto... call) { stub->GetParameterStats(call...); });
}

void ShardLink::GetParameterDiagnostics(const v1::ShardParameterRequest& request,
                                        absl::Duration timeout,
                                        Callback<v1::ParameterDiagnostics> callback) {
  Call(request, timeout, std::move(callback),
       [](auto* stub, auto... call) { stub->GetParameterDiagnostics(call...); });
}

void ShardLink::ReadParameterHistory(const v1::ShardParameterRequest& request,
                                     absl::Duration timeout,
                                     Callback<v1::ParameterHistory> callback) {
  Call(request, timeout, std::move(callback),
       [](auto* stub, auto... call) { stub->ReadParameterHistory(call...); });
}

void ShardLink::ReadSlice(const v1::ShardSliceRequest& request, absl::Duration timeout,
                          Callback<v1::TensorSlice> callback) {
  Call(request, timeout, std::move(callback),
       [](auto* stub, auto... call) { stub->ReadSlice(call...); });
}

}  // namespace kaon::coordinator
