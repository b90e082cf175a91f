#include "server/coordinator/coordinator_service.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/grpc_status.h"
#include "server/auth/peer_identity.h"
#include "server/coordinator/await_reactor.h"
#include "server/coordinator/unary_call.h"

namespace kaon::coordinator {

namespace {

absl::Status AuthorizeJob(const grpc::CallbackServerContext& context, absl::string_view job) {
  const proto::Identity identity = auth::PeerIdentity(context);
  if (!identity.job || *identity.job == job) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("certificate is for job \"", *identity.job,
                                                  "\", the request is for \"", job, "\""));
}

template <typename Request>
absl::Status AuthorizeRank(const grpc::CallbackServerContext& context, const Request& request) {
  return auth::AuthorizeWorker(auth::PeerIdentity(context), request.job(), request.rank());
}

}  // namespace

absl::Status CoordinatorService::Noted(const grpc::CallbackServerContext& context,
                                       const absl::Status& authorized) {
  if (!authorized.ok()) {
    monitor::NoteUnauthorized(counts_, auth::PeerName(auth::PeerIdentity(context)), authorized);
  }
  return authorized;
}

grpc::ServerUnaryReactor* CoordinatorService::RegisterJob(grpc::CallbackServerContext* context,
                                                          const v1::RegisterJobRequest* request,
                                                          v1::JobDescription* response) {
  WaitingReactor* const reactor = WaitingReactor::Make(loop_);
  const UnaryAnswer<ReplyRegister, v1::JobDescription> answer(context, reactor, response);
  return Ask(loop_, reactor->call(),
             Noted(*context, AuthorizeJob(*context, request->definition().name())),
             &StepMachine::Register, *request, answer);
}

grpc::ServerUnaryReactor* CoordinatorService::GetJob(grpc::CallbackServerContext* context,
                                                     const v1::GetJobRequest* request,
                                                     v1::JobDescription* response) {
  const UnaryAnswer<ReplyGetJob, v1::JobDescription> answer(context, response);
  return Ask(loop_, loop_.NewCall(), Noted(*context, AuthorizeJob(*context, request->job())),
             &StepMachine::GetJob, *request, answer);
}

grpc::ServerUnaryReactor* CoordinatorService::JoinWorker(grpc::CallbackServerContext* context,
                                                         const v1::JoinWorkerRequest* request,
                                                         v1::JoinWorkerResponse* response) {
  const UnaryAnswer<ReplyJoin, v1::JoinWorkerResponse> answer(
      context, response, [this](const absl::Status& status) {
        if (status.ok()) counts_.Add(monitor::Event::kWorkerJoined);
      });
  return Ask(loop_, loop_.NewCall(), Noted(*context, AuthorizeRank(*context, *request)),
             &StepMachine::Join, *request, answer);
}

grpc::ServerUnaryReactor* CoordinatorService::BeginStep(grpc::CallbackServerContext* context,
                                                        const v1::BeginStepRequest* request,
                                                        v1::BeginStepResponse* response) {
  const UnaryAnswer<ReplyBegin, v1::BeginStepResponse> answer(context, response);
  return Ask(loop_, loop_.NewCall(), Noted(*context, AuthorizeRank(*context, *request)),
             &StepMachine::Begin, *request, answer);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* CoordinatorService::AwaitStep(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  grpc::ByteBuffer bytes = *request;
  v1::AwaitStepRequest parsed;
  const grpc::Status read =
      grpc::SerializationTraits<v1::AwaitStepRequest>::Deserialize(&bytes, &parsed);
  if (!read.ok()) return AwaitReactor::Refuse(loop_, *context, proto::FromGrpc(read));
  const absl::Status authorized = Noted(*context, AuthorizeRank(*context, parsed));
  if (!authorized.ok()) return AwaitReactor::Refuse(loop_, *context, authorized);
  return AwaitReactor::Start(loop_, *context, parsed);
}

}  // namespace kaon::coordinator
