#include "client/transport/grpc_shard_channel.h"

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/client_callback.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/transport/chunk_message.h"
#include "client/transport/pull_assembler.h"
#include "kernels/mutex.h"
#include "proto/failpoint.h"
#include "proto/grpc_deadline.h"
#include "proto/grpc_status.h"

namespace kaon::client {
namespace {

constexpr char kPushMethod[] = "/kaon.v1.ShardData/Push";
constexpr char kPullMethod[] = "/kaon.v1.ShardData/Pull";

using Reactor = grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

grpc::ByteBuffer Serialize(const google::protobuf::Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

// One push stream. It keeps itself alive from Start to OnDone; its owner shares it to resume and
// cancel.
class GrpcPushStream : public PushStream, public Reactor {
 public:
  GrpcPushStream(std::shared_ptr<CallTracker> tracker, std::shared_ptr<grpc::Channel> channel,
                 const v1::PushOpen& open, std::shared_ptr<PushSource> source)
      : token_(std::move(tracker)), stub_(std::move(channel)), source_(std::move(source)) {
    v1::PushRequest request;
    *request.mutable_open() = open;
    out_ = Serialize(request);
  }

  void Start(std::shared_ptr<GrpcPushStream> self) {
    self_ = std::move(self);
    stub_.PrepareBidiStreamingCall(&context_, kPushMethod, grpc::StubOptions(), this);
    // Resume writes outside reactions, so gRPC must not end the call meanwhile.
    AddHold();
    StartWrite(&out_);
    StartRead(&in_);
    StartCall();
  }

  void Resume() override {
    {
      MutexLock lock(mu_);
      if (closed_) return;
      if (writing_) {
        resumed_ = true;
        return;
      }
      writing_ = true;
    }
    WriteNext();
  }

  void Cancel() override { context_.TryCancel(); }

  void OnWriteDone(bool ok) override {
    // gRPC now has its own references to the payload; the caller's memory is free when gRPC drops
    // them.
    out_.Clear();
    if (ok) return WriteNext();
    StopWriting();
  }

  void OnReadDone(bool ok) override {
    if (ok && OnResponse()) return StartRead(&in_);
    bool idle = false;
    {
      MutexLock lock(mu_);
      closed_ = true;
      idle = !writing_ && !std::exchange(hold_removed_, true);
    }
    if (ok) context_.TryCancel();
    if (idle) RemoveHold();
  }

  void OnDone(const grpc::Status& status) override {
    absl::Status result = proto::FromGrpc(status);
    if (!failure_.ok()) {
      result = failure_;
    } else if (confirmed_) {
      result = absl::OkStatus();
    } else if (result.ok()) {
      result = absl::UnavailableError("the shard ended the push without confirming it");
    }
    source_->OnDone(result);
    // Release the source before this stream, because the source may own the stream.
    source_.reset();
    const std::shared_ptr<GrpcPushStream> self = std::move(self_);
  }

 private:
  // Returns false if no more is to be read.
  bool OnResponse() {
    v1::PushResponse response;
    if (!grpc::GenericDeserialize<grpc::ProtoBufferReader, v1::PushResponse>(&in_, &response)
             .ok()) {
      failure_ = absl::InternalError("the shard answered a push with bytes that are no answer");
      return false;
    }
    switch (response.body_case()) {
      case v1::PushResponse::kOpened:
        PassFailpoint(Failpoint::worker_push_opened);
        failure_ = source_->OnOpened(response.opened());
        // The shard has received everything on an earlier stream.
        confirmed_ = failure_.ok() && response.opened().finished();
        if (failure_.ok() && !confirmed_) Resume();
        return failure_.ok() && !confirmed_;
      case v1::PushResponse::kCreditBytes:
        source_->OnCredit(response.credit_bytes());
        return true;
      case v1::PushResponse::kFinished:
        confirmed_ = true;
        return true;
      case v1::PushResponse::BODY_NOT_SET:
        return true;
    }
    return true;
  }

  // Call it after setting writing_, or after a write.
  void WriteNext() {
    while (true) {
      PushMessage message = source_->Next();
      if (const auto* chunks = std::get_if<LeasedChunks>(&message)) {
        out_ = BuildChunkMessage(*chunks);
        StartWrite(&out_);
        return PassFailpoint(Failpoint::worker_chunk_sent);
      }
      if (const auto* finish = std::get_if<v1::PushFinish>(&message)) {
        v1::PushRequest request;
        *request.mutable_finish() = *finish;
        out_ = Serialize(request);
        StartWrite(&out_);
        return PassFailpoint(Failpoint::worker_finish_push);
      }
      {
        MutexLock lock(mu_);
        if (!closed_ && std::exchange(resumed_, false)) continue;
        if (!closed_) {
          writing_ = false;
          return;
        }
      }
      return StopWriting();
    }
  }

  void StopWriting() {
    bool remove = false;
    {
      MutexLock lock(mu_);
      // No write can follow a failed one; OnReadDone(false) comes soon.
      closed_ = true;
      writing_ = false;
      remove = !std::exchange(hold_removed_, true);
    }
    if (remove) RemoveHold();
  }

  const CallTracker::Token token_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  std::shared_ptr<PushSource> source_;

  Mutex mu_;
  // True from the first write on, except while the source has nothing.
  bool writing_ ABSL_GUARDED_BY(mu_) = true;
  // Resume was called during a write.
  bool resumed_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  bool hold_removed_ ABSL_GUARDED_BY(mu_) = false;

  // Used by the current writer.
  grpc::ByteBuffer out_;

  // Used by reactions that read, then by OnDone.
  grpc::ByteBuffer in_;
  absl::Status failure_;
  bool confirmed_ = false;

  // The call itself shares this stream until OnDone.
  std::shared_ptr<GrpcPushStream> self_;
};

// One pull. It keeps itself alive from Start to OnDone.
class GrpcPullStream : public PullStream, public Reactor {
 public:
  GrpcPullStream(std::shared_ptr<CallTracker> tracker, std::shared_ptr<grpc::Channel> channel,
                 PullOptions options)
      : token_(std::move(tracker)),
        stub_(std::move(channel)),
        options_(std::move(options)),
        assembler_(options_.request, options_.targets, options_.on_infinite),
        out_(Serialize(options_.request)) {}

  void Start(std::shared_ptr<GrpcPullStream> self) {
    self_ = std::move(self);
    if (options_.timeout != absl::InfiniteDuration()) {
      context_.set_deadline(proto::DeadlineAfter(options_.timeout));
    }
    stub_.PrepareBidiStreamingCall(&context_, kPullMethod, grpc::StubOptions(), this);
    StartWriteLast(&out_, grpc::WriteOptions());
    StartRead(&in_);
    StartCall();
  }

  void Cancel() override { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    failure_ = OnChunk();
    if (failure_.ok()) return StartRead(&in_);
    context_.TryCancel();
  }

  void OnDone(const grpc::Status& status) override {
    absl::Status result = failure_;
    if (result.ok()) result = proto::FromGrpc(status);
    if (result.ok()) result = assembler_.CheckComplete();
    options_.done(result);
    const std::shared_ptr<GrpcPullStream> self = std::move(self_);
  }

 private:
  absl::Status OnChunk() {
    PassFailpoint(Failpoint::worker_pull_chunk);
    const absl::StatusOr<ReceivedChunks> received = ReadChunkMessage(in_);
    absl::Status status = received.status();
    absl::StatusOr<proto::ChunkViews> views;
    if (status.ok()) {
      views = proto::SplitPayload(received->decoded);
      status = views.status();
    }
    if (!status.ok()) return absl::InternalError(absl::StrCat("pull: ", status.message()));
    if (options_.on_bytes) options_.on_bytes(received->decoded.payload_bytes());
    return assembler_.Accept(views->chunks);
  }

  const CallTracker::Token token_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  const PullOptions options_;

  // Used by the reactions.
  PullAssembler assembler_;
  grpc::ByteBuffer out_;
  grpc::ByteBuffer in_;
  absl::Status failure_;

  // The call itself shares this stream until OnDone.
  std::shared_ptr<GrpcPullStream> self_;
};

class GrpcShardChannel : public ShardChannel {
 public:
  GrpcShardChannel(std::shared_ptr<CallTracker> tracker, std::shared_ptr<grpc::Channel> channel)
      : tracker_(std::move(tracker)), channel_(std::move(channel)) {}

  std::shared_ptr<PushStream> Push(const v1::PushOpen& open,
                                   std::shared_ptr<PushSource> source) override {
    auto stream = std::make_shared<GrpcPushStream>(tracker_, channel_, open, std::move(source));
    stream->Start(stream);
    return stream;
  }

  std::shared_ptr<PullStream> Pull(PullOptions options) override {
    auto stream = std::make_shared<GrpcPullStream>(tracker_, channel_, std::move(options));
    stream->Start(stream);
    return stream;
  }

 private:
  // Both are shared with the streams.
  const std::shared_ptr<CallTracker> tracker_;
  const std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace

std::shared_ptr<ShardChannel> CreateGrpcShardChannel(std::shared_ptr<grpc::Channel> channel,
                                                     std::shared_ptr<CallTracker> tracker) {
  return std::make_shared<GrpcShardChannel>(std::move(tracker), std::move(channel));
}

}  // namespace kaon::client
