#include "server/coordinator/service/admin_service.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "job/job_settings.h"
#include "proto/grpc_status.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/auth/peer_identity.h"
#include "server/coordinator/machine_watch.h"
#include "server/coordinator/service/gather_phases.h"
#include "server/coordinator/service/parameter_lookup.h"
#include "server/coordinator/service/unary_call.h"

namespace kaon::coordinator {

namespace {

constexpr size_t kMaxActBytes = 400;

// Returns the answer to a retried change. If `record` has the change, repeats the first answer. If
// there is no such record, the refusal was right.
ReplySetGroup Repeated(const v1::SetGroupRequest& request,
                       const absl::StatusOr<v1::StepRecord>& record, ReplySetGroup refused) {
  if (absl::IsNotFound(record.status())) return refused;
  if (!record.ok()) {
    refused.response = record.status();
    return refused;
  }
  v1::SetGroupResponse response;
  response.set_config_revision(record->plan().position());
  for (const v1::ParameterGroup& group : record->plan().group_change().groups()) {
    if (group.name() == request.group()) *response.mutable_group() = group;
  }
  if (request.group().empty()) {
    // The entry has only the fields that it changed.
    job::ApplyJobSettings(record->plan().group_change().settings(), *response.mutable_workers());
  }
  refused.response = std::move(response);
  return refused;
}

// As Repeated for a change. An entry of another kind with this id is no deletion.
ReplyDelete Repeated(const absl::StatusOr<v1::StepRecord>& record, ReplyDelete refused) {
  if (!record.ok() && !absl::IsNotFound(record.status())) {
    refused.response = record.status();
  } else if (record.ok() && record->plan().has_job_deletion()) {
    v1::DeleteJobResponse response;
    response.set_position(record->plan().position());
    refused.response = std::move(response);
  }
  return refused;
}

}  // namespace

AdminService::AdminService(MachineLoop& loop, const ShardLinks& links,
                           const ClusterQueries& queries, CheckpointKeeper& checkpoints,
                           monitor::EventCounts& counts)
    : loop_(loop), links_(links), queries_(queries), checkpoints_(checkpoints), counts_(counts) {}

CallEnded AdminService::Act(const grpc::CallbackServerContext& context, std::string what) {
  // `what` comes from the caller: it may be long and contain any bytes.
  if (what.size() > kMaxActBytes) what.resize(kMaxActBytes);
  return [this, peer = auth::PeerName(auth::PeerIdentity(context)), act = absl::CHexEscape(what)](
             const absl::Status& status) { monitor::NoteAdminAct(counts_, peer, act, status); };
}

AdminService::Finish AdminService::Finishing(const grpc::CallbackServerContext* context,
                                             grpc::ServerUnaryReactor* reactor,
                                             absl::string_view method) {
  return [this, context, reactor, method](const absl::Status& status) {
    if (!status.ok()) {
      monitor::NoteEnd(counts_, auth::PeerName(auth::PeerIdentity(*context)), method, status);
    }
    reactor->Finish(proto::ToGrpc(status));
  };
}

void AdminService::Gather(std::function<void(ClusterView)> done) {
  queries_.Gather(std::move(done));
}

void AdminService::FindRequest(uint64_t request_id, uint64_t newest, uint64_t after,
                               RequestLookup::Done done) {
  RequestLookup::Query query;
  query.request_id = request_id;
  query.newest = newest;
  query.after = after;
  query.num_shards = static_cast<int>(links_.size());
  RequestLookup::Start(
      query,
      [this](int shard, uint64_t position, std::function<void(RequestLookup::History)> answer) {
        v1::ReadHistoryRequest read;
        read.set_from_position(position);
        read.set_limit(1);
        links_[shard]->ReadHistory(read, kShardTimeout, std::move(answer));
      },
      std::move(done));
}

grpc::ServerUnaryReactor* AdminService::GetStatus(grpc::CallbackServerContext* context,
                                                  const v1::GetStatusRequest*,
                                                  v1::GetStatusResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  queries_.Status(Answering(context, reactor, "GetStatus", response));
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::DescribeJob(grpc::CallbackServerContext* context,
                                                    const v1::DescribeJobRequest* request,
                                                    v1::JobDescription* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  queries_.Job(request->job(), Answering(context, reactor, "DescribeJob", response));
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::ListParameters(grpc::CallbackServerContext* context,
                                                       const v1::ListParametersRequest* request,
                                                       v1::ListParametersResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  queries_.Parameters(*request, Answering(context, reactor, "ListParameters", response));
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::StepHistory(grpc::CallbackServerContext* context,
                                                    const v1::StepHistoryRequest* request,
                                                    v1::StepHistoryResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  queries_.History(*request, Answering(context, reactor, "StepHistory", response));
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::SetGroup(grpc::CallbackServerContext* context,
                                                 const v1::SetGroupRequest* request,
                                                 v1::SetGroupResponse* response) {
  // The call may wait for a step to end.
  WaitingReactor* const reactor = WaitingReactor::Make(loop_);
  const std::string act =
      absl::StrCat(request->group().empty() ? "job set" : "group set ", request->group(), " ",
                   absl::StrJoin(request->settings(), " ",
                                 [](std::string* to, const v1::GroupSetting& setting) {
                                   absl::StrAppend(to, setting.field(), "=", setting.value());
                                 }),
                   " at revision ", request->expected_revision());
  const UnaryAnswer<ReplySetGroup, v1::SetGroupResponse> answer(context, reactor, response,
                                                                Act(*context, act));
  loop_.Submit(
      reactor->call(),
      [request](StepMachine& machine, CallId call) { machine.SetGroup(call, *request); },
      [this, answer, request](CoordinatorAction action) {
        const auto* reply = std::get_if<ReplySetGroup>(&action);
        const bool elsewhere = reply != nullptr && absl::IsAborted(reply->response.status()) &&
                               reply->config_revision > request->expected_revision();
        if (!elsewhere || request->request_id() == 0) return answer(std::move(action));
        // The job is past the revision that the request expects. This very request may have changed
        // it: a coordinator that failed could not send its answer.
        FindRequest(request->request_id(), reply->config_revision, request->expected_revision(),
                    [answer, request, refused = *reply](absl::StatusOr<v1::StepRecord> record) {
                      answer(Repeated(*request, record, refused));
                    });
      });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::DeleteJob(grpc::CallbackServerContext* context,
                                                  const v1::DeleteJobRequest* request,
                                                  v1::DeleteJobResponse* response) {
  // The call may wait for an entry that is being applied.
  WaitingReactor* const reactor = WaitingReactor::Make(loop_);
  const std::string act =
      absl::StrCat("job delete ", request->job(), " in timeline ", request->timeline());
  const UnaryAnswer<ReplyDelete, v1::DeleteJobResponse> answer(context, reactor, response,
                                                               Act(*context, act));
  loop_.Submit(
      reactor->call(),
      [request](StepMachine& machine, CallId call) { machine.DeleteJob(call, *request); },
      [this, answer, request](CoordinatorAction action) {
        const auto* reply = std::get_if<ReplyDelete>(&action);
        const bool may_be_done = reply != nullptr && reply->config_revision > 0 &&
                                 (absl::IsNotFound(reply->response.status()) ||
                                  absl::IsFailedPrecondition(reply->response.status()));
        if (!may_be_done || request->request_id() == 0) return answer(std::move(action));
        // This very request may have deleted the job, and another one may run since: a coordinator
        // that failed could not send its answer.
        FindRequest(request->request_id(), reply->config_revision, 0,
                    [answer, refused = *reply](const absl::StatusOr<v1::StepRecord>& record) {
                      answer(Repeated(record, refused));
                    });
      });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::ListJobs(grpc::CallbackServerContext* context,
                                                 const v1::ListJobsRequest*,
                                                 v1::ListJobsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const Finish finish = Finishing(context, reactor, "ListJobs");
  Gather([finish, response](const ClusterView& view) {
    const absl::StatusOr<v1::JobDescription> job = view.DescribeJob("");
    if (absl::IsNotFound(job.status())) return finish(absl::OkStatus());
    if (job.ok()) *response->add_jobs() = view.RowOf(*job);
    finish(job.status());
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::DrainShard(grpc::CallbackServerContext* context,
                                                   const v1::DrainShardRequest* request,
                                                   v1::DrainShardResponse* response) {
  // The call waits for a step to end and a snapshot to be written.
  WaitingReactor* const reactor = WaitingReactor::Make(loop_);
  const UnaryAnswer<ReplyDrain, v1::DrainShardResponse> answer(
      context, reactor, response, Act(*context, absl::StrCat("shard drain ", request->shard())));
  Gather([request, reactor, answer](const ClusterView& view) {
    const absl::Status votes = view.CheckVotes(request->shard());
    if (!votes.ok()) return answer.Finish(votes, "");
    reactor->Submit(
        [request](StepMachine& machine, CallId call) { machine.DrainShard(call, *request); },
        answer);
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::GetParameterStats(
    grpc::CallbackServerContext* context, const v1::GetParameterStatsRequest* request,
    v1::GetParameterStatsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  queries_.ParameterStats(*request, Answering(context, reactor, "GetParameterStats", response));
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::GetParameterDiagnostics(
    grpc::CallbackServerContext* context, const v1::GetParameterDiagnosticsRequest* request,
    v1::GetParameterDiagnosticsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  queries_.ParameterDiagnostics(*request,
                                Answering(context, reactor, "GetParameterDiagnostics", response));
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::GetParameterHistory(
    grpc::CallbackServerContext* context, const v1::GetParameterHistoryRequest* request,
    v1::GetParameterHistoryResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  queries_.ParameterHistory(*request, Answering(context, reactor, "GetParameterHistory", response));
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::ReadSlice(grpc::CallbackServerContext* context,
                                                  const v1::ReadSliceRequest* request,
                                                  v1::ReadSliceResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  // It shows values of a model, so it leaves a line.
  const CallEnded act = Act(
      *context, absl::StrCat("parameter read ", request->parameter(), " ", request->tensor(),
                             " from ", request->offset(), " on, ", request->count(), " elements"));
  queries_.Slice(*request, [reactor, response, act](absl::StatusOr<v1::ReadSliceResponse> answer) {
    if (answer.ok()) *response = *std::move(answer);
    act(answer.status());
    reactor->Finish(proto::ToGrpc(answer.status()));
  });
  return reactor;
}

}  // namespace kaon::coordinator
