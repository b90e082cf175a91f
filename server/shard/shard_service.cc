#include "server/shard/shard_service.h"

#include <utility>

#include "absl/status/statusor.h"
#include "proto/grpc_status.h"
#include "server/auth/peer_identity.h"
#include "server/shard/control_stream.h"
#include "server/shard/pull_stream.h"
#include "server/shard/push_stream.h"

namespace kaon::shard {

namespace {

// Ends a unary call with what the loop answers.
template <typename Response>
auto Answer(grpc::ServerUnaryReactor* reactor, Response* response) {
  return [reactor, response](absl::StatusOr<Response> answer) {
    if (answer.ok()) *response = *std::move(answer);
    reactor->Finish(proto::ToGrpc(answer.status()));
  };
}

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ShardDataService::Push(
    grpc::CallbackServerContext* context) {
  return PushStream::Start(loop_.accumulator(), loop_.counts(), auth::PeerIdentity(*context));
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* ShardDataService::Pull(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return PullStream::Start(loop_.publisher(), loop_.counts(), auth::PeerIdentity(*context),
                           *request);
}

grpc::ServerUnaryReactor* ShardLocalService::OpenSession(grpc::CallbackServerContext* context,
                                                         const v1::OpenSessionRequest* request,
                                                         v1::OpenSessionResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::StatusOr<v1::OpenSessionResponse> answer =
      absl::FailedPreconditionError("this shard has no sessions over shared memory");
  if (endpoint_ != nullptr) {
    answer = endpoint_->Open(auth::PeerIdentity(*context), request->boot_id());
  }
  Answer(reactor, response)(std::move(answer));
  return reactor;
}

grpc::ServerBidiReactor<v1::CoordinatorToShard, v1::ShardToCoordinator>*
ShardControlService::Control(grpc::CallbackServerContext* context) {
  return ControlStream::Start(loop_, auth::PeerName(auth::PeerIdentity(*context)));
}

grpc::ServerUnaryReactor* ShardControlService::ReadHistory(grpc::CallbackServerContext* context,
                                                           const v1::ReadHistoryRequest* request,
                                                           v1::ReadHistoryResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_.ReadHistory(*request, Answer(reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* ShardControlService::DescribeShard(
    grpc::CallbackServerContext* context, const v1::DescribeShardRequest* request,
    v1::DescribeShardResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_.Describe(request->job(), Answer(reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* ShardControlService::GetParameterStats(
    grpc::CallbackServerContext* context, const v1::ShardParameterRequest* request,
    v1::ParameterStats* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_.Stats(*request, Answer(reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* ShardControlService::GetParameterDiagnostics(
    grpc::CallbackServerContext* context, const v1::ShardParameterRequest* request,
    v1::ParameterDiagnostics* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_.Diagnostics(*request, Answer(reactor, response));
  return reactor;
}

}  // namespace kaon::shard
