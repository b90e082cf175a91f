#include "server/coordinator/coordinator_service.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
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

}  // namespace

grpc::ServerUnaryReactor* CoordinatorService::RegisterJob(grpc::CallbackServerContext* context,
                                                          const v1::RegisterJobRequest* request,
                                                          v1::JobDescription* response) {
  WaitingReactor* const reactor = WaitingReactor::Make(loop_);
  const UnaryAnswer<ReplyRegister, v1::JobDescription> answer(context, reactor, response);
  return Ask(loop_, reactor->call(), AuthorizeJob(*context, request->definition().name()),
             &StepMachine::Register, *request, answer);
}

grpc::ServerUnaryReactor* CoordinatorService::GetJob(grpc::CallbackServerContext* context,
                                                     const v1::GetJobRequest* request,
                                                     v1::JobDescription* response) {
  const UnaryAnswer<ReplyGetJob, v1::JobDescription> answer(context, response);
  return Ask(loop_, loop_.NewCall(), AuthorizeJob(*context, request->job()), &StepMachine::GetJob,
             *request, answer);
}

grpc::ServerUnaryReactor* CoordinatorService::JoinWorker(grpc::CallbackServerContext* context,
                                                         const v1::JoinWorkerRequest* request,
                                                         v1::JoinWorkerResponse* response) {
  const UnaryAnswer<ReplyJoin, v1::JoinWorkerResponse> answer(context, response);
  return Ask(loop_, loop_.NewCall(),
             auth::AuthorizeWorker(auth::PeerIdentity(*context), request->job(), request->rank()),
             &StepMachine::Join, *request, answer);
}

grpc::ServerUnaryReactor* CoordinatorService::BeginStep(grpc::CallbackServerContext* context,
                                                        const v1::BeginStepRequest* request,
                                                        v1::BeginStepResponse* response) {
  const UnaryAnswer<ReplyBegin, v1::BeginStepResponse> answer(context, response);
  return Ask(loop_, loop_.NewCall(),
             auth::AuthorizeWorker(auth::PeerIdentity(*context), request->job(), request->rank()),
             &StepMachine::Begin, *request, answer);
}

grpc::ServerWriteReactor<v1::StepEvent>* CoordinatorService::AwaitStep(
    grpc::CallbackServerContext* context, const v1::AwaitStepRequest* request) {
  const absl::Status authorized =
      auth::AuthorizeWorker(auth::PeerIdentity(*context), request->job(), request->rank());
  if (!authorized.ok()) return AwaitReactor::Refuse(loop_, *context, authorized);
  return AwaitReactor::Start(loop_, *context, *request);
}

}  // namespace kaon::coordinator
