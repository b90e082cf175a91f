#include "server/coordinator/service/coordinator_service.h"

#include <glog/logging.h>
#include <grpcpp/alarm.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/steady_clock.h"
#include "proto/ballot.h"
#include "proto/grpc_deadline.h"
#include "proto/grpc_status.h"
#include "proto/text.h"
#include "server/auth/peer_identity.h"
#include "server/config/log_facts.h"
#include "server/coordinator/service/await_reactor.h"
#include "server/coordinator/service/unary_call.h"
#include "server/monitor/trace_context.h"

namespace kaon::coordinator {

namespace {

// A refused caller that tries again at once would cost nearly as much as an answered one. Each call
// that is held back keeps its request.
constexpr absl::Duration kMostHeldBack = absl::Seconds(1);
constexpr int kMostCallsHeldBack = 32;

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

absl::Status TookTooMuch(const std::string& caller, absl::Duration wait) {
  return absl::UnavailableError(absl::StrCat(
      "requests about jobs of ", caller, " took too much of the coordinator's time: try again in ",
      absl::FormatDuration(wait)));
}

std::string TraceIdOf(const v1::BeginStepRequest& request) {
  const std::optional<monitor::TraceContext> context =
      monitor::ParseTraceparent(request.traceparent());
  return context.has_value() ? absl::BytesToHexString(context->trace_id) : "";
}

}  // namespace

CallEnded CoordinatorService::Noting(const grpc::CallbackServerContext* context,
                                     absl::string_view method) {
  return [this, context, method](const absl::Status& status) {
    if (status.ok()) return;
    monitor::NoteEnd(counts_, auth::PeerName(auth::PeerIdentity(*context)), method, status);
  };
}

void CoordinatorService::HoldBack(absl::Duration wait, std::function<void()> then) {
  if (held_back_ >= kMostCallsHeldBack) return then();
  ++held_back_;
  auto alarm = std::make_shared<grpc::Alarm>();
  grpc::Alarm& set = *alarm;
  set.Set(proto::DeadlineAfter(wait),
          [this, alarm = std::move(alarm), then = std::move(then)](bool) mutable {
            // The callback is the only owner of the alarm, and owns it no longer.
            const std::shared_ptr<grpc::Alarm> last = std::move(alarm);
            --held_back_;
            // The service lives until the call has ended.
            then();
          });
}

template <typename Request, typename Answer>
grpc::ServerUnaryReactor* CoordinatorService::AskCostly(
    const grpc::CallbackServerContext& context, CallId call, absl::Status authorized,
    void (StepMachine::*question)(CallId, const Request&), const Request& request,
    const Answer& answer) {
  const std::string caller = auth::CallerName(context);
  if (!authorized.ok()) {
    answer.Finish(authorized, "");
    return answer.reactor();
  }
  const absl::Duration wait = costly_->Wait(caller, SteadyNow());
  if (wait > absl::ZeroDuration()) {
    const absl::Status refusal = TookTooMuch(caller, wait);
    HoldBack(std::min(wait, kMostHeldBack), [answer, refusal] { answer.Finish(refusal, ""); });
    return answer.reactor();
  }
  loop_.Submit(
      call,
      [question, &request, &loop = loop_, costly = costly_, caller](StepMachine& machine,
                                                                    CallId call) {
        const absl::Time start = SteadyNow();
        // Others of the caller may have run since.
        if (const absl::Duration wait = costly->Wait(caller, start); wait > absl::ZeroDuration()) {
          return loop.End(call, TookTooMuch(caller, wait));
        }
        (machine.*question)(call, request);
        const absl::Time end = SteadyNow();
        costly->Charge(caller, end - start, end);
      },
      answer);
  return answer.reactor();
}

grpc::ServerUnaryReactor* CoordinatorService::RegisterJob(grpc::CallbackServerContext* context,
                                                          const v1::RegisterJobRequest* request,
                                                          v1::JobDescription* response) {
  WaitingReactor* const reactor = WaitingReactor::Make(loop_);
  const UnaryAnswer<ReplyRegister, v1::JobDescription> answer(context, reactor, response,
                                                              Noting(context, "RegisterJob"));
  return AskCostly(*context, reactor->call(), AuthorizeJob(*context, request->definition().name()),
                   &StepMachine::Register, *request, answer);
}

grpc::ServerUnaryReactor* CoordinatorService::GetJob(grpc::CallbackServerContext* context,
                                                     const v1::GetJobRequest* request,
                                                     v1::JobDescription* response) {
  const UnaryAnswer<ReplyGetJob, v1::JobDescription> answer(context, response,
                                                            Noting(context, "GetJob"));
  return AskCostly(*context, loop_.NewCall(), AuthorizeJob(*context, request->job()),
                   &StepMachine::GetJob, *request, answer);
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
  const UnaryAnswer<ReplyBegin, v1::BeginStepResponse> answer(
      context, response,
      [this, request, response, noting = Noting(context, "BeginStep")](const absl::Status& status) {
        const std::string trace_id = TraceIdOf(*request);
        const config::LogTrace of_call(trace_id);
        noting(status);
        // A refused request may have any job, and any step.
        // A step that was decided already is not open.
        if (!status.ok() || response->has_record()) return;
        if (on_begin_) on_begin_(*request);
        config::SetLogTrace(request->step(), request->rank(), trace_id);
      });
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
