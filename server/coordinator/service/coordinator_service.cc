#include "server/coordinator/service/coordinator_service.h"

#include <glog/logging.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/ballot.h"
#include "proto/grpc_status.h"
#include "proto/text.h"
#include "server/auth/peer_identity.h"
#include "server/config/log_facts.h"
#include "server/coordinator/service/await_reactor.h"
#include "server/coordinator/service/unary_call.h"

namespace kaon::coordinator {

namespace {

absl::Status AuthorizeJob(const grpc::CallbackServerContext& context, absl::string_view job) {
  const proto::Identity identity = auth::PeerIdentity(context);
  if (!identity.job || *identity.job == job) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("certificate is for job \"", proto::Excerpt(*identity.job),
                   "\", the request is for \"", proto::Excerpt(job), "\""));
}

template <typename Request>
absl::Status AuthorizeRank(const grpc::CallbackServerContext& context, const Request& request) {
  return auth::AuthorizeWorker(auth::PeerIdentity(context), request.job(), request.rank());
}

}  // namespace

CallEnded CoordinatorService::Noting(const grpc::CallbackServerContext* context,
                                     absl::string_view method) {
  return [this, context, method](const absl::Status& status) {
    if (status.ok()) return;
    monitor::NoteEnd(counts_, auth::PeerName(auth::PeerIdentity(*context)), method, status);
  };
}

grpc::ServerUnaryReactor* CoordinatorService::RegisterJob(grpc::CallbackServerContext* context,
                                                          const v1::RegisterJobRequest* request,
                                                          v1::JobDescription* response) {
  WaitingReactor* const reactor = WaitingReactor::Make(loop_);
  const UnaryAnswer<ReplyRegister, v1::JobDescription> answer(context, reactor, response,
                                                              Noting(context, "RegisterJob"));
  return Ask(loop_, reactor->call(), AuthorizeJob(*context, request->definition().name()),
             &StepMachine::Register, *request, answer);
}

grpc::ServerUnaryReactor* CoordinatorService::GetJob(grpc::CallbackServerContext* context,
                                                     const v1::GetJobRequest* request,
                                                     v1::JobDescription* response) {
  const UnaryAnswer<ReplyGetJob, v1::JobDescription> answer(context, response,
                                                            Noting(context, "GetJob"));
  return Ask(loop_, loop_.NewCall(), AuthorizeJob(*context, request->job()), &StepMachine::GetJob,
             *request, answer);
}

grpc::ServerUnaryReactor* CoordinatorService::JoinWorker(grpc::CallbackServerContext* context,
                                                         const v1::JoinWorkerRequest* request,
                                                         v1::JoinWorkerResponse* response) {
  const UnaryAnswer<ReplyJoin, v1::JoinWorkerResponse> answer(
      context, response,
      [this, context, request, response,
       noting = Noting(context, "JoinWorker")](const absl::Status& status) {
        if (!status.ok()) return noting(status);
        counts_.Add(monitor::Event::kWorkerJoined);
        const std::string peer = auth::PeerName(auth::PeerIdentity(*context));
        const config::LogPeer from(peer);
        LOG(INFO) << peer << " joins as rank " << request->rank() << ", attempt "
                  << proto::ToString(response->attempt());
      });
  return Ask(loop_, loop_.NewCall(), AuthorizeRank(*context, *request), &StepMachine::Join,
             *request, answer);
}

grpc::ServerUnaryReactor* CoordinatorService::BeginStep(grpc::CallbackServerContext* context,
                                                        const v1::BeginStepRequest* request,
                                                        v1::BeginStepResponse* response) {
  const UnaryAnswer<ReplyBegin, v1::BeginStepResponse> answer(context, response,
                                                              Noting(context, "BeginStep"));
  return Ask(loop_, loop_.NewCall(), AuthorizeRank(*context, *request), &StepMachine::Begin,
             *request, answer);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* CoordinatorService::AwaitStep(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  const CallEnded ended = Noting(context, "AwaitStep");
  grpc::ByteBuffer bytes = *request;
  v1::AwaitStepRequest parsed;
  const grpc::Status read =
      grpc::SerializationTraits<v1::AwaitStepRequest>::Deserialize(&bytes, &parsed);
  if (!read.ok()) return AwaitReactor::Refuse(loop_, *context, ended, proto::FromGrpc(read));
  const absl::Status authorized = AuthorizeRank(*context, parsed);
  if (!authorized.ok()) return AwaitReactor::Refuse(loop_, *context, ended, authorized);
  return AwaitReactor::Start(loop_, *context, ended, parsed);
}

}  // namespace kaon::coordinator
