#include "server/coordinator/service/cluster_queries.h"

#include <re2/re2.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/checkpoint/listing.h"
#include "server/coordinator/machine_watch.h"
#include "server/coordinator/service/gather_phases.h"
#include "server/coordinator/service/parameter_lookup.h"

namespace kaon::coordinator {

namespace {

constexpr uint32_t kMaxPageSize = 10000;
constexpr uint32_t kMaxHistory = 1000;
constexpr uint32_t kDefaultHistory = 20;
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

ClusterQueries::ClusterQueries(MachineLoop& loop, const ShardLinks& links,
                               std::vector<std::string> addresses, CheckpointKeeper& checkpoints,
                               const monitor::ServiceHealth& health,
                               const monitor::EventCounts& counts,
                               const DecisionTimes& decision_times)
    : loop_(loop),
      links_(links),
      addresses_(std::move(addresses)),
      checkpoints_(checkpoints),
      health_(health),
      counts_(counts),
      decision_times_(decision_times) {}

void ClusterQueries::Gather(std::function<void(ClusterView)> done) const {
  GatherCluster(links_, addresses_, kShardTimeout, std::move(done));
}

void ClusterQueries::Status(Done<v1::GetStatusResponse> done) const {
  const absl::Status posted = loop_.Post([this, done](StepMachine& machine, absl::Time) {
    Gather([this, done, snapshot = machine.Snapshot()](const ClusterView& view) {
      v1::GetStatusResponse response;
      Fill(snapshot, view, response);
      response.set_time_unix_millis(monitor::UnixMillisNow());
      response.set_started_unix_millis(started_unix_millis_);
      const std::string problem = health_.reason(kCheckpointCause);
      if (!problem.empty()) absl::StrAppend(response.mutable_phase(), "; ", problem);
      for (v1::EventCount& count : counts_.Happened()) {
        *response.add_events() = std::move(count);
      }
      done(std::move(response));
    });
  });
  if (!posted.ok()) done(posted);
}

void ClusterQueries::Parameters(const v1::ListParametersRequest& request,
                                Done<v1::ListParametersResponse> done) const {
  const absl::StatusOr<Listing> listing = ParseListing(request);
  if (!listing.ok()) return done(listing.status());
  Gather([request, done, listing = *listing](const ClusterView& view) {
    v1::ListParametersResponse response;
    const absl::Status listed = List(request, listing, view, response);
    if (!listed.ok()) return done(listed);
    done(std::move(response));
  });
}

void ClusterQueries::ReadRecords(int shard, const v1::ReadHistoryRequest& read, bool with_phases,
                                 const Done<v1::StepHistoryResponse>& done) const {
  links_[shard]->ReadHistory(
      read, kShardTimeout,
      [this, read, with_phases, done](absl::StatusOr<v1::ReadHistoryResponse> history) {
        if (!history.ok()) return done(history.status());
        v1::StepHistoryResponse response;
        AddSteps(*std::move(history), response);
        for (const v1::StepRecord& record : response.records()) {
          const v1::StepPlan& plan = record.plan();
          const int64_t time = decision_times_.Of(plan.timeline(), plan.position());
          if (time != 0) (*response.mutable_decided_unix_millis())[plan.position()] = time;
        }
        if (!with_phases) return done(std::move(response));
        GatherPhases(links_, read, kShardTimeout,
                     [done, response](std::vector<v1::ShardPhases> phases) mutable {
                       for (v1::ShardPhases& one : phases) {
                         *response.add_phases() = std::move(one);
                       }
                       done(std::move(response));
                     });
      });
}

void ClusterQueries::History(const v1::StepHistoryRequest& request,
                             Done<v1::StepHistoryResponse> done) const {
  if (request.limit() > kMaxHistory) {
    return done(absl::InvalidArgumentError(
        absl::StrCat("limit is ", request.limit(), ", must be 0 .. ", kMaxHistory)));
  }
  const uint32_t limit = request.limit() == 0 ? kDefaultHistory : request.limit();
  Gather([this, request, limit, done](const ClusterView& view) {
    const absl::StatusOr<v1::JobDescription> job = view.DescribeJob(request.job());
    if (!job.ok()) return done(job.status());
    // Records are byte-equal on all shards; the newest shard has the longest list.
    const int shard = view.Newest();
    const uint64_t applied = view.shards[shard]->state().applied_position();
    v1::ReadHistoryRequest read;
    read.set_job(job->definition().name());
    read.set_from_position(applied >= limit ? applied - limit + 1 : 1);
    read.set_limit(limit);
    ReadRecords(shard, read, request.with_phases(), done);
  });
}

void ClusterQueries::Records(uint64_t from_position, uint32_t limit,
                             Done<v1::StepHistoryResponse> done) const {
  Gather([this, from_position, limit, done](const ClusterView& view) {
    const absl::StatusOr<v1::JobDescription> job = view.DescribeJob("");
    if (!job.ok()) return done(job.status());
    v1::ReadHistoryRequest read;
    read.set_job(job->definition().name());
    read.set_from_position(from_position);
    read.set_limit(limit);
    ReadRecords(view.Newest(), read, false, done);
  });
}

void ClusterQueries::Job(const std::string& job, Done<v1::JobDescription> done) const {
  Gather([job, done](const ClusterView& view) { done(view.DescribeJob(job)); });
}

template <typename Request, typename Ask, typename Response, typename Answer>
void ClusterQueries::AskShard(const Request& request, Ask ask,
                              void (ShardLink::*method)(const Ask&, absl::Duration,
                                                        ShardLink::Callback<Answer>),
                              Answer* (Response::*mutable_answer)(), Done<Response> done) const {
  Gather([=, this](const ClusterView& view) mutable {
    const absl::StatusOr<v1::JobDescription> job = view.DescribeJob(request.job());
    if (!job.ok()) return done(job.status());
    const absl::StatusOr<v1::ParameterPlacement> found = FindParameter(*job, request.parameter());
    if (!found.ok()) return done(found.status());
    const uint32_t shard = found->shard();
    ask.set_job(job->definition().name());
    ask.set_parameter_id(found->parameter_id());
    ((*links_[shard]).*method)(
        ask, kShardTimeout, [=, this, placement = *found](absl::StatusOr<Answer> answer) {
          if (answer.ok()) {
            Response response;
            *response.mutable_placement() = placement;
            *(response.*mutable_answer)() = *std::move(answer);
            return done(std::move(response));
          }
          absl::Status status = answer.status();
          if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
            status = absl::UnavailableError(
                absl::StrCat("shard ", shard, " at ", addresses_[shard], ": ", status.ToString()));
          }
          done(status);
        });
  });
}

void ClusterQueries::ParameterStats(const v1::GetParameterStatsRequest& request,
                                    Done<v1::GetParameterStatsResponse> done) const {
  AskShard(request, v1::ShardParameterRequest(), &ShardLink::GetParameterStats,
           &v1::GetParameterStatsResponse::mutable_stats, std::move(done));
}

void ClusterQueries::ParameterDiagnostics(const v1::GetParameterDiagnosticsRequest& request,
                                          Done<v1::GetParameterDiagnosticsResponse> done) const {
  AskShard(request, v1::ShardParameterRequest(), &ShardLink::GetParameterDiagnostics,
           &v1::GetParameterDiagnosticsResponse::mutable_diagnostics, std::move(done));
}

void ClusterQueries::ParameterHistory(const v1::GetParameterHistoryRequest& request,
                                      Done<v1::GetParameterHistoryResponse> done) const {
  AskShard(request, v1::ShardParameterRequest(), &ShardLink::ReadParameterHistory,
           &v1::GetParameterHistoryResponse::mutable_history, std::move(done));
}

void ClusterQueries::Slice(const v1::ReadSliceRequest& request,
                           Done<v1::ReadSliceResponse> done) const {
  v1::ShardSliceRequest ask;
  ask.set_tensor(request.tensor());
  ask.set_offset(request.offset());
  ask.set_count(request.count());
  AskShard(request, ask, &ShardLink::ReadSlice, &v1::ReadSliceResponse::mutable_slice,
           std::move(done));
}

void ClusterQueries::Checkpoints(const std::string& job,
                                 Done<v1::ListCheckpointsResponse> done) const {
  checkpoints_.Run([job, done](const absl::StatusOr<checkpoint::CheckpointDirectory*>& directory) {
    if (!directory.ok()) return done(directory.status());
    done(checkpoint::ListCheckpoints(**directory, job));
  });
}

}  // namespace kaon::coordinator
