#include "server/coordinator/service/admin_service.h"

#include <re2/re2.h>

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

// A person waits for the answer, and one dead shard must not hide the others.
constexpr absl::Duration kShardTimeout = absl::Seconds(2);
constexpr uint32_t kMaxPageSize = 10000;
constexpr uint32_t kMaxHistory = 1000;
constexpr uint32_t kDefaultHistory = 20;
constexpr size_t kMaxActBytes = 400;
constexpr size_t kMaxRegexBytes = 1024;
constexpr int64_t kMaxRegexMemoryBytes = 1 << 20;

// Lists the workers whose gradients the open step waits for, according to the shards.
std::string PushesText(const ClusterView& view) {
  constexpr int kRanksShown = 8;
  std::string text;
  for (int i = 0; i < view.shards.size(); ++i) {
    if (!view.shards[i].ok() || view.shards[i]->awaited_ranks().empty()) continue;
    const auto& ranks = view.shards[i]->awaited_ranks();
    const int shown = std::min(ranks.size(), kRanksShown);
    absl::StrAppend(&text, "; shard ", i, " waits for the gradients of rank ",
                    absl::StrJoin(ranks.begin(), ranks.begin() + shown, ", "),
                    shown < ranks.size() ? ", ..." : "");
  }
  return text;
}

void Fill(const CoordinatorSnapshot& snapshot, const ClusterView& view,
          v1::GetStatusResponse& response) {
  response.set_holder(snapshot.holder);
  response.set_holder_address(snapshot.holder_address);
  *response.mutable_ballot() = snapshot.ballot;
  response.set_phase(absl::StrCat(snapshot.phase, PushesText(view)));
  for (int i = 0; i < view.shards.size(); ++i) {
    v1::ShardStatus& shard = *response.add_shards();
    shard.set_shard(i);
    shard.set_address(view.addresses[i]);
    shard.set_connected(view.shards[i].ok());
    if (!view.shards[i].ok()) {
      shard.set_problem(view.shards[i].status().ToString());
      continue;
    }
    shard.set_problem(snapshot.shard_problems[i]);
    *shard.mutable_description() = *view.shards[i];
    // Too large for GetStatus; DescribeJob returns it.
    shard.mutable_description()->mutable_state()->clear_registration();
    shard.mutable_description()->mutable_state()->clear_applied_record();
    shard.mutable_description()->mutable_state()->clear_prepared();
  }
  for (const WorkerSnapshot& worker : snapshot.workers) {
    v1::WorkerStatus& row = *response.add_workers();
    row.set_rank(worker.rank);
    *row.mutable_attempt() = worker.attempt;
    row.set_begun_step(worker.begun_step.value_or(0));
    if (worker.grad_norm) row.set_grad_norm(*worker.grad_norm);
    row.set_grad_norm_outliers(worker.grad_norm_outliers);
  }
  // A coordinator that does not hold the shards knows the job only from them.
  absl::StatusOr<v1::JobDescription> job = absl::NotFoundError("");
  if (snapshot.holder && snapshot.job) {
    job = *snapshot.job;
  } else {
    job = view.DescribeJob("");
  }
  if (!job.ok()) return;
  response.set_job(job->definition().name());
  response.set_applied_step(job->applied_step());
}

struct Listing {
  uint32_t first = 0;
  uint32_t limit = kMaxPageSize;
  // Shared with the callback that lists.
  std::shared_ptr<const RE2> name_regex;
};

absl::StatusOr<Listing> ParseListing(const v1::ListParametersRequest& request) {
  Listing listing;
  if (request.page_size() > kMaxPageSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_size is ", request.page_size(), ", must be 0 .. ", kMaxPageSize));
  }
  if (request.page_size() > 0) listing.limit = request.page_size();
  uint64_t first = 0;
  if (!request.page_token().empty() &&
      !proto::ParseDecimal(request.page_token(), &first, UINT32_MAX)) {
    return absl::InvalidArgumentError(absl::StrCat("page_token is \"",
                                                   proto::Excerpt(request.page_token()),
                                                   "\", must be a next_page_token or empty"));
  }
  listing.first = static_cast<uint32_t>(first);
  if (request.name_regex().size() > kMaxRegexBytes) {
    return absl::InvalidArgumentError(absl::StrCat("name_regex has ", request.name_regex().size(),
                                                   " bytes, must have at most ", kMaxRegexBytes));
  }
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kMaxRegexMemoryBytes);
  listing.name_regex = std::make_shared<const RE2>(request.name_regex(), options);
  if (!listing.name_regex->ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("name_regex is \"", proto::Excerpt(request.name_regex()),
                     "\": ", proto::Excerpt(listing.name_regex->error())));
  }
  return listing;
}

absl::Status List(const v1::ListParametersRequest& request, const Listing& listing,
                  const ClusterView& view, v1::ListParametersResponse& response) {
  KAON_ASSIGN_OR_RETURN(const v1::JobDescription job, view.DescribeJob(request.job()));
  const uint32_t end = job.definition().parameters_size();
  if (listing.first > end) {
    return absl::InvalidArgumentError(absl::StrCat("page_token is ", listing.first, ", job \"",
                                                   job.definition().name(), "\" has ", end,
                                                   " parameters"));
  }
  uint32_t next = 0;
  const auto wanted = [&listing](const std::string& name) {
    return RE2::PartialMatch(name, *listing.name_regex);
  };
  for (v1::ParameterRow& row : view.Rows(job, listing.first, listing.limit, wanted, &next)) {
    *response.add_parameters() = std::move(row);
  }
  if (next < end) response.set_next_page_token(absl::StrCat(next));
  return absl::OkStatus();
}

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

// Adds the records of the present job. A deletion ends the records of the job before it.
void AddSteps(v1::ReadHistoryResponse history, v1::StepHistoryResponse& response) {
  for (v1::StepRecord& record : *history.mutable_records()) {
    if (record.plan().has_job_deletion()) {
      response.clear_records();
    } else if (!record.plan().has_registration()) {
      *response.add_records() = std::move(record);
    }
  }
}

}  // namespace

AdminService::AdminService(MachineLoop& loop, const ShardLinks& links,
                           std::vector<std::string> addresses, CheckpointKeeper& checkpoints,
                           const monitor::ServiceHealth& health, monitor::EventCounts& counts,
                           const DecisionTimes& decision_times)
    : loop_(loop),
      links_(links),
      addresses_(std::move(addresses)),
      checkpoints_(checkpoints),
      health_(health),
      counts_(counts),
      decision_times_(decision_times) {}

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

void AdminService::AddTime(const v1::StepPlan& plan, v1::StepHistoryResponse& response) const {
  const int64_t time = decision_times_.Of(plan.timeline(), plan.position());
  if (time == 0) return;
  (*response.mutable_decided_unix_millis())[plan.position()] = time;
}

void AdminService::Gather(std::function<void(ClusterView)> done) {
  GatherCluster(links_, addresses_, kShardTimeout, std::move(done));
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
  const Finish finish = Finishing(context, reactor, "GetStatus");
  const absl::Status posted =
      loop_.Post([this, finish, response](StepMachine& machine, absl::Time) {
        Gather([this, finish, response, snapshot = machine.Snapshot()](const ClusterView& view) {
          Fill(snapshot, view, *response);
          response->set_time_unix_millis(monitor::UnixMillisNow());
          response->set_started_unix_millis(started_unix_millis_);
          const std::string problem = health_.reason(kCheckpointCause);
          if (!problem.empty()) absl::StrAppend(response->mutable_phase(), "; ", problem);
          for (v1::EventCount& count : counts_.Happened()) {
            *response->add_events() = std::move(count);
          }
          finish(absl::OkStatus());
        });
      });
  if (!posted.ok()) finish(posted);
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::DescribeJob(grpc::CallbackServerContext* context,
                                                    const v1::DescribeJobRequest* request,
                                                    v1::JobDescription* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const Finish finish = Finishing(context, reactor, "DescribeJob");
  Gather([finish, request, response](const ClusterView& view) {
    absl::StatusOr<v1::JobDescription> job = view.DescribeJob(request->job());
    if (job.ok()) *response = std::move(*job);
    finish(job.status());
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::ListParameters(grpc::CallbackServerContext* context,
                                                       const v1::ListParametersRequest* request,
                                                       v1::ListParametersResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const Finish finish = Finishing(context, reactor, "ListParameters");
  const absl::StatusOr<Listing> listing = ParseListing(*request);
  if (!listing.ok()) {
    finish(listing.status());
    return reactor;
  }
  Gather([finish, request, response, listing = *listing](const ClusterView& view) {
    finish(List(*request, listing, view, *response));
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::StepHistory(grpc::CallbackServerContext* context,
                                                    const v1::StepHistoryRequest* request,
                                                    v1::StepHistoryResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const Finish finish = Finishing(context, reactor, "StepHistory");
  if (request->limit() > kMaxHistory) {
    finish(absl::InvalidArgumentError(
        absl::StrCat("limit is ", request->limit(), ", must be 0 .. ", kMaxHistory)));
    return reactor;
  }
  const uint32_t limit = request->limit() == 0 ? kDefaultHistory : request->limit();
  Gather([this, finish, request, response, limit](const ClusterView& view) {
    const absl::StatusOr<v1::JobDescription> job = view.DescribeJob(request->job());
    if (!job.ok()) {
      finish(job.status());
      return;
    }
    // Records are byte-equal on all shards; the newest shard has the longest list.
    const int shard = view.Newest();
    const uint64_t applied = view.shards[shard]->state().applied_position();
    v1::ReadHistoryRequest read;
    read.set_job(job->definition().name());
    read.set_from_position(applied >= limit ? applied - limit + 1 : 1);
    read.set_limit(limit);
    links_[shard]->ReadHistory(
        read, kShardTimeout,
        [this, finish, request, response, read](absl::StatusOr<v1::ReadHistoryResponse> history) {
          if (history.ok()) AddSteps(*std::move(history), *response);
          for (const v1::StepRecord& record : response->records()) {
            AddTime(record.plan(), *response);
          }
          if (!history.ok() || !request->with_phases()) return finish(history.status());
          GatherPhases(links_, read, kShardTimeout,
                       [finish, response](std::vector<v1::ShardPhases> phases) {
                         for (v1::ShardPhases& one : phases) {
                           *response->add_phases() = std::move(one);
                         }
                         finish(absl::OkStatus());
                       });
        });
  });
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

template <typename Request, typename Response, typename Answer>
void AdminService::AskShard(const Finish& finish, const Request& request, Response* response,
                            void (ShardLink::*method)(const v1::ShardParameterRequest&,
                                                      absl::Duration, ShardLink::Callback<Answer>),
                            Answer* (Response::*mutable_answer)()) {
  Gather([=, this, &request](const ClusterView& view) {
    const absl::StatusOr<v1::JobDescription> job = view.DescribeJob(request.job());
    if (!job.ok()) return finish(job.status());
    const absl::StatusOr<v1::ParameterPlacement> found = FindParameter(*job, request.parameter());
    if (!found.ok()) return finish(found.status());
    *response->mutable_placement() = *found;
    const uint32_t shard = found->shard();
    v1::ShardParameterRequest ask;
    ask.set_job(job->definition().name());
    ask.set_parameter_id(found->parameter_id());
    ((*links_[shard]).*method)(ask, kShardTimeout, [=, this](absl::StatusOr<Answer> answer) {
      absl::Status status = answer.status();
      if (answer.ok()) {
        *(response->*mutable_answer)() = *std::move(answer);
      } else if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
        status = absl::UnavailableError(
            absl::StrCat("shard ", shard, " at ", addresses_[shard], ": ", status.ToString()));
      }
      finish(status);
    });
  });
}

grpc::ServerUnaryReactor* AdminService::GetParameterStats(
    grpc::CallbackServerContext* context, const v1::GetParameterStatsRequest* request,
    v1::GetParameterStatsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const Finish finish = Finishing(context, reactor, "GetParameterStats");
  AskShard(finish, *request, response, &ShardLink::GetParameterStats,
           &v1::GetParameterStatsResponse::mutable_stats);
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::GetParameterDiagnostics(
    grpc::CallbackServerContext* context, const v1::GetParameterDiagnosticsRequest* request,
    v1::GetParameterDiagnosticsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const Finish finish = Finishing(context, reactor, "GetParameterDiagnostics");
  AskShard(finish, *request, response, &ShardLink::GetParameterDiagnostics,
           &v1::GetParameterDiagnosticsResponse::mutable_diagnostics);
  return reactor;
}

}  // namespace kaon::coordinator
