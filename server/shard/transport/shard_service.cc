#include "server/shard/transport/shard_service.h"

#include <utility>

#include "absl/status/statusor.h"
#include "proto/grpc_status.h"
#include "server/auth/peer_identity.h"
#include "server/monitor/event_counts.h"
#include "server/shard/transport/control_stream.h"
#include "server/shard/transport/grpc_pull_stream.h"
#include "server/shard/transport/grpc_push_stream.h"
#include "server/shard/transport/nccl_pull_stream.h"

namespace kaon::shard {

namespace {

// A unary call to `method`, a literal. Finish it once, with the loop's answer. A refusal is
// counted, and logged with its caller.
struct UnaryCall {
  template <typename Response>
  auto Answer(Response* response) const {
    return [call = *this, response](absl::StatusOr<Response> answer) {
      if (answer.ok()) {
        *response = *std::move(answer);
      } else {
        monitor::NoteEnd(call.counts, auth::PeerName(auth::PeerIdentity(*call.context)),
                         call.method, answer.status());
      }
      call.reactor->Finish(proto::ToGrpc(answer.status()));
    };
  }

  monitor::EventCounts& counts;
  grpc::CallbackServerContext* context;
  const char* method;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
};

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ShardDataService::Push(
    grpc::CallbackServerContext* context) {
  return PushStream::Start(loop_.accumulator(), loop_.counts(), nccl_,
                           auth::PeerIdentity(*context));
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* ShardDataService::Pull(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return PullStream::Start({loop_.publisher(), pulls_, loop_.counts()}, *context, *request);
}

grpc::ServerUnaryReactor* ShardNcclService::OpenSession(grpc::CallbackServerContext* context,
                                                        const v1::OpenNcclSessionRequest* request,
                                                        v1::OpenNcclSessionResponse* response) {
  const UnaryCall call{loop_.counts(), context, "OpenSession"};
  absl::StatusOr<v1::OpenNcclSessionResponse> answer =
      absl::FailedPreconditionError("this shard has no NCCL");
  if (endpoint_ != nullptr) answer = endpoint_->Open(auth::PeerIdentity(*context), *request);
  call.Answer(response)(std::move(answer));
  return call.reactor;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* ShardNcclService::Pull(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return NcclPullStream::Start({loop_.publisher(), data_.pulls(), loop_.counts(), endpoint_},
                               *context, *request);
}

grpc::ServerUnaryReactor* ShardLocalService::OpenSession(grpc::CallbackServerContext* context,
                                                         const v1::OpenSessionRequest* request,
                                                         v1::OpenSessionResponse* response) {
  const UnaryCall call{counts_, context, "OpenSession"};
  absl::StatusOr<v1::OpenSessionResponse> answer =
      absl::FailedPreconditionError("this shard has no sessions over shared memory");
  if (endpoint_ != nullptr) {
    answer = endpoint_->Open(auth::PeerIdentity(*context), request->boot_id());
  }
  call.Answer(response)(std::move(answer));
  return call.reactor;
}

grpc::ServerBidiReactor<v1::CoordinatorToShard, v1::ShardToCoordinator>*
ShardControlService::Control(grpc::CallbackServerContext* context) {
  return ControlStream::Start(loop_, auth::PeerName(auth::PeerIdentity(*context)));
}

grpc::ServerUnaryReactor* ShardControlService::ReadHistory(grpc::CallbackServerContext* context,
                                                           const v1::ReadHistoryRequest* request,
                                                           v1::ReadHistoryResponse* response) {
  const UnaryCall call{loop_.counts(), context, "ReadHistory"};
  loop_.ReadHistory(*request, call.Answer(response));
  return call.reactor;
}

grpc::ServerUnaryReactor* ShardControlService::DescribeShard(
    grpc::CallbackServerContext* context, const v1::DescribeShardRequest* request,
    v1::DescribeShardResponse* response) {
  const UnaryCall call{loop_.counts(), context, "DescribeShard"};
  const auto answer = call.Answer(response);
  loop_.Describe(request->job(), [this, answer](absl::StatusOr<v1::DescribeShardResponse> facts) {
    if (facts.ok() && nccl_ != nullptr) {
      const std::string& job = facts->state().registration().definition().name();
      for (v1::NcclPair& pair : nccl_->Pairs(job)) *facts->add_nccl_pairs() = std::move(pair);
    }
    answer(std::move(facts));
  });
  return call.reactor;
}

grpc::ServerUnaryReactor* ShardControlService::GetParameterStats(
    grpc::CallbackServerContext* context, const v1::ShardParameterRequest* request,
    v1::ParameterStats* response) {
  const UnaryCall call{loop_.counts(), context, "GetParameterStats"};
  loop_.Stats(*request, call.Answer(response));
  return call.reactor;
}

grpc::ServerUnaryReactor* ShardControlService::GetParameterDiagnostics(
    grpc::CallbackServerContext* context, const v1::ShardParameterRequest* request,
    v1::ParameterDiagnostics* response) {
  const UnaryCall call{loop_.counts(), context, "GetParameterDiagnostics"};
  loop_.Diagnostics(*request, call.Answer(response));
  return call.reactor;
}

grpc::ServerUnaryReactor* ShardControlService::ReadParameterHistory(
    grpc::CallbackServerContext* context, const v1::ShardParameterRequest* request,
    v1::ParameterHistory* response) {
  const UnaryCall call{loop_.counts(), context, "ReadParameterHistory"};
  loop_.ParameterHistory(*request, call.Answer(response));
  return call.reactor;
}

grpc::ServerUnaryReactor* ShardControlService::ReadSlice(grpc::CallbackServerContext* context,
                                                         const v1::ShardSliceRequest* request,
                                                         v1::TensorSlice* response) {
  const UnaryCall call{loop_.counts(), context, "ReadSlice"};
  loop_.Slice(*request, call.Answer(response));
  return call.reactor;
}

}  // namespace kaon::shard
