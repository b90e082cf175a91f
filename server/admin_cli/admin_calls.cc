#include "server/admin_cli/admin_calls.h"

#include <grpcpp/client_context.h>

#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "client/backoff.h"
#include "client/transport/channel.h"
#include "kaon/v1/admin.grpc.pb.h"
#include "kaon/v1/coordinator.grpc.pb.h"
#include "kaon/v1/shard_control.grpc.pb.h"
#include "kaon/v1/shard_data.grpc.pb.h"
#include "kernels/mutex.h"
#include "kernels/steady_clock.h"
#include "proto/crc32c.h"
#include "proto/grpc_deadline.h"
#include "proto/grpc_status.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/admin_cli/health_check.h"
#include "server/admin_cli/status_report.h"

namespace kaon::admin_cli {

namespace {

// Trailing metadata: the address of the holder of the shards.
constexpr char kHolderKey[] = "kaon-holder";
constexpr char kNotServing[] = "NOT_SERVING";
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(50);
constexpr absl::Duration kMaxBackoff = absl::Seconds(1);

gpr_timespec Deadline(const Options& options) {
  return proto::DeadlineAfter(absl::Seconds(options.timeout_seconds));
}

enum class AfterDeadline { kAskNext, kEnd };

// Calls `call(stub, context)` on the endpoints in turn until one can be reached.
template <typename Call>
absl::Status CallAny(const Options& options, const Call& call,
                     AfterDeadline after_deadline = AfterDeadline::kAskNext) {
  absl::Status status;
  for (const std::string& endpoint : options.endpoints) {
    KAON_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                          client::CreateChannel(endpoint, options.tls, proto::Role::kCoordinator));
    const std::unique_ptr<v1::Admin::Stub> stub = v1::Admin::NewStub(channel);
    grpc::ClientContext context;
    context.set_deadline(Deadline(options));
    status = proto::FromGrpc(call(*stub, &context));
    // kaonctl cancels no call: the server or the connection went away.
    if (absl::IsCancelled(status)) status = proto::ConnectionLost(status.message());
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return status;
    status = absl::Status(status.code(), absl::StrCat("coordinator ", endpoint, ": ",
                                                      absl::string_view(status.message())));
    if (absl::IsDeadlineExceeded(status) && after_deadline == AfterDeadline::kEnd) return status;
  }
  return status;
}

struct HolderAnswer {
  absl::Status status;
  // Address of the holder, from a coordinator that refused because it is not the holder.
  std::string holder;
};

// Calls like CallAny. If the refusal names the holder, calls the holder once. A deadline ends the
// attempts, because the request may still be carried out.
template <typename Call>
HolderAnswer CallHolder(const Options& options, const Call& ask) {
  HolderAnswer answer;
  const auto call = [&](v1::Admin::Stub& stub, grpc::ClientContext* context) {
    const grpc::Status status = ask(stub, context);
    const auto& metadata = context->GetServerTrailingMetadata();
    const auto found = metadata.find(kHolderKey);
    answer.holder =
        found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
    return status;
  };
  answer.status = CallAny(options, call, AfterDeadline::kEnd);
  if (!absl::IsFailedPrecondition(answer.status) || answer.holder.empty()) return answer;
  Options there = options;
  there.endpoints = {answer.holder};
  answer.status = CallAny(there, call, AfterDeadline::kEnd);
  return answer;
}

// Calls `ask(options)` until a coordinator that holds the shards answers or the time is over. `ask`
// must be safe to repeat.
template <typename Ask>
absl::Status AskUntilAnswered(const Options& options, const AdminCalls::Pause& pause,
                              absl::Time end, const Ask& ask) {
  client::Backoff backoff(kFirstBackoff, kMaxBackoff, std::random_device()());
  Options attempt = options;
  for (int failures = 0;; ++failures) {
    attempt.timeout_seconds = absl::ToDoubleSeconds(end - SteadyNow());
    const HolderAnswer answer = ask(attempt);
    const bool moved = absl::IsFailedPrecondition(answer.status) && !answer.holder.empty();
    if (!moved && !absl::IsUnavailable(answer.status)) return answer.status;
    const absl::Duration delay = backoff.Delay(failures);
    if (delay >= end - SteadyNow()) return answer.status;
    pause(delay);
  }
}

// Asks for the service that a worker cannot work without.
absl::StatusOr<std::string> CheckOne(const Options& options, const std::string& address,
                                     proto::Role role) {
  KAON_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                        client::CreateChannel(address, options.tls, role));
  return admin_cli::CheckHealth(channel,
                                role == proto::Role::kShard ? v1::ShardData::service_full_name()
                                                            : v1::Coordinator::service_full_name(),
                                absl::Seconds(options.timeout_seconds));
}

HealthRow CheckRow(const Options& options, const std::string& address, proto::Role role) {
  const absl::StatusOr<std::string> answer = CheckOne(options, address, role);
  return {.role = std::string(proto::NameOf(role)),
          .address = address,
          .serving = answer.ok() && *answer == "SERVING",
          .status = answer.ok() ? *answer : absl::StatusCodeToString(answer.status().code()),
          .reason = std::string(answer.status().message())};
}

std::string WhyNotServing(const v1::ShardStatus& shard) {
  if (!shard.problem().empty()) return shard.problem();
  const v1::DescribeShardResponse& facts = shard.description();
  if (!facts.state().data_loss().empty()) return facts.state().data_loss();
  if (facts.journal().read_only_reason().empty()) return "";
  return absl::StrCat("read-only: ", facts.journal().read_only_reason());
}

// Returns why a server is not serving; grpc.health.v1 has no field for it.
std::string WhyNotServing(const v1::GetStatusResponse& status, const std::string& address) {
  for (const v1::ShardStatus& shard : status.shards()) {
    if (shard.address() == address) return WhyNotServing(shard);
  }
  return "";
}

}  // namespace

void PauseFor(absl::Duration duration) {
  Mutex mu;
  MutexLock lock(mu);
  CondVar never;
  never.WaitFor(mu, duration);
}

uint64_t RandomRequestId() {
  std::random_device device;
  uint64_t id = 0;
  while (id == 0) id = uint64_t{device()} << 32 | device();
  return id;
}

AdminCalls::AdminCalls(const Options& options, Pause pause)
    : options_(options),
      pause_(std::move(pause)),
      end_(SteadyNow() + absl::Seconds(options.timeout_seconds)) {}

template <typename Response, typename Method, typename Request>
absl::StatusOr<Response> AdminCalls::Call(Method method, const Request& request, To to,
                                          WhileAway while_away) const {
  Response response;
  const auto call = [&](v1::Admin::Stub& stub, grpc::ClientContext* context) {
    return (stub.*method)(context, request, &response);
  };
  const auto attempt = [&](const Options& options) {
    return to == To::kHolder ? CallHolder(options, call) : HolderAnswer{CallAny(options, call), ""};
  };
  KAON_RETURN_IF_ERROR(while_away == WhileAway::kFail
                           ? attempt(options_).status
                           : AskUntilAnswered(options_, pause_, end_, attempt));
  return response;
}

absl::StatusOr<v1::GetStatusResponse> AdminCalls::GetStatus(WhileAway while_away) const {
  return Call<v1::GetStatusResponse>(&v1::Admin::Stub::GetStatus, v1::GetStatusRequest(), To::kAny,
                                     while_away);
}

absl::StatusOr<v1::GetStatusResponse> AdminCalls::GetJobStatus() const {
  KAON_ASSIGN_OR_RETURN(v1::GetStatusResponse status, GetStatus());
  if (options_.job.empty() || status.job() == options_.job) return status;
  const std::string job = absl::StrCat("job \"", proto::Excerpt(options_.job), "\": ");
  if (!status.job().empty()) {
    return absl::NotFoundError(absl::StrCat(job, "the job here is \"", status.job(), "\""));
  }
  if (const absl::Status seen = AllShardsSeen(status); !seen.ok()) {
    return absl::UnavailableError(absl::StrCat(job, seen.message()));
  }
  return absl::NotFoundError(absl::StrCat(job, "no job is registered"));
}

absl::StatusOr<v1::GetStatusResponse> AdminCalls::GetHolderStatus() const {
  KAON_ASSIGN_OR_RETURN(v1::GetStatusResponse status, GetJobStatus());
  if (!status.holder() && !status.holder_address().empty()) {
    Options there = options_;
    there.endpoints = {status.holder_address()};
    KAON_ASSIGN_OR_RETURN(status, AdminCalls(there).GetJobStatus());
  }
  if (status.holder()) return status;
  return absl::UnavailableError(
      absl::StrCat("no coordinator that holds the shards can be asked: ", status.phase()));
}

absl::StatusOr<v1::ShardStatus> AdminCalls::DescribeShard() const {
  KAON_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                        client::CreateChannel(options_.shard, options_.tls, proto::Role::kShard));
  v1::ShardStatus shard;
  grpc::ClientContext context;
  context.set_deadline(Deadline(options_));
  const absl::Status status = proto::FromGrpc(v1::ShardControl::NewStub(channel)->DescribeShard(
      &context, v1::DescribeShardRequest(), shard.mutable_description()));
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat("shard ", options_.shard, ": ",
                                                    absl::string_view(status.message())));
  }
  const std::string& job = shard.description().state().registration().definition().name();
  if (!options_.job.empty() && job != options_.job) {
    return absl::NotFoundError(absl::StrCat("job \"", proto::Excerpt(options_.job), "\": shard ",
                                            options_.shard, " holds \"", job, "\""));
  }
  shard.set_shard(shard.description().shard());
  shard.set_address(options_.shard);
  shard.set_connected(true);
  return shard;
}

absl::StatusOr<v1::JobDescription> AdminCalls::DescribeJob(WhileAway while_away) const {
  return DescribeJob(options_.job, while_away);
}

absl::StatusOr<v1::JobDescription> AdminCalls::DescribeJob(const std::string& job,
                                                           WhileAway while_away) const {
  v1::DescribeJobRequest request;
  request.set_job(job);
  return Call<v1::JobDescription>(&v1::Admin::Stub::DescribeJob, request, To::kAny, while_away);
}

absl::StatusOr<std::vector<v1::ParameterRow>> AdminCalls::ListParameters() const {
  v1::ListParametersRequest request;
  request.set_job(options_.job);
  request.set_name_regex(options_.filter);
  std::vector<v1::ParameterRow> rows;
  do {
    KAON_ASSIGN_OR_RETURN(
        const v1::ListParametersResponse response,
        Call<v1::ListParametersResponse>(&v1::Admin::Stub::ListParameters, request));
    rows.insert(rows.end(), response.parameters().begin(), response.parameters().end());
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return rows;
}

absl::StatusOr<v1::StepHistoryResponse> AdminCalls::StepHistory(uint32_t limit) const {
  v1::StepHistoryRequest request;
  request.set_job(options_.job);
  request.set_limit(limit);
  request.set_with_phases(options_.command == Command::kStepPhases ||
                          options_.command == Command::kTop);
  return Call<v1::StepHistoryResponse>(&v1::Admin::Stub::StepHistory, request);
}

absl::StatusOr<NamedStats> AdminCalls::GetParameterStats() const {
  v1::GetParameterStatsRequest request;
  request.set_job(options_.job);
  request.set_parameter(options_.parameter);
  NamedStats stats;
  stats.name = options_.parameter;
  KAON_ASSIGN_OR_RETURN(stats.answer, Call<v1::GetParameterStatsResponse>(
                                          &v1::Admin::Stub::GetParameterStats, request));
  return stats;
}

absl::StatusOr<NamedDiagnostics> AdminCalls::GetParameterDiagnostics() const {
  v1::GetParameterDiagnosticsRequest request;
  request.set_job(options_.job);
  request.set_parameter(options_.parameter);
  NamedDiagnostics diagnostics;
  diagnostics.name = options_.parameter;
  KAON_ASSIGN_OR_RETURN(diagnostics.answer,
                        Call<v1::GetParameterDiagnosticsResponse>(
                            &v1::Admin::Stub::GetParameterDiagnostics, request));
  return diagnostics;
}

absl::StatusOr<NamedHistory> AdminCalls::GetParameterHistory() const {
  v1::GetParameterHistoryRequest request;
  request.set_job(options_.job);
  request.set_parameter(options_.parameter);
  NamedHistory history = {options_.parameter, {}};
  KAON_ASSIGN_OR_RETURN(history.answer, Call<v1::GetParameterHistoryResponse>(
                                            &v1::Admin::Stub::GetParameterHistory, request));
  return history;
}

absl::StatusOr<NamedSlice> AdminCalls::ReadSlice() const {
  v1::ReadSliceRequest request;
  request.set_job(options_.job);
  request.set_parameter(options_.parameter);
  request.set_tensor(options_.tensor);
  request.set_offset(options_.offset);
  request.set_count(options_.count);
  NamedSlice slice = {options_.parameter, options_.tensor, options_.offset, {}};
  KAON_ASSIGN_OR_RETURN(slice.answer,
                        Call<v1::ReadSliceResponse>(&v1::Admin::Stub::ReadSlice, request));
  const std::string& values = slice.answer.slice().values();
  if (proto::Crc32c(values.data(), values.size()) != slice.answer.slice().crc32c()) {
    return absl::DataLossError("the values that came are not those that the shard read; ask again");
  }
  return slice;
}

absl::StatusOr<v1::SetGroupResponse> AdminCalls::SetGroup(
    const v1::SetGroupRequest& request) const {
  return Call<v1::SetGroupResponse>(&v1::Admin::Stub::SetGroup, request, To::kHolder,
                                    WhileAway::kAskAgain);
}

absl::StatusOr<v1::ListJobsResponse> AdminCalls::ListJobs() const {
  return Call<v1::ListJobsResponse>(&v1::Admin::Stub::ListJobs, v1::ListJobsRequest());
}

absl::StatusOr<v1::DeleteJobResponse> AdminCalls::DeleteJob(
    const v1::DeleteJobRequest& request) const {
  return Call<v1::DeleteJobResponse>(&v1::Admin::Stub::DeleteJob, request, To::kHolder,
                                     WhileAway::kAskAgain);
}

absl::StatusOr<v1::DrainShardResponse> AdminCalls::DrainShard() const {
  v1::DrainShardRequest request;
  request.set_shard(options_.shard_index);
  return Call<v1::DrainShardResponse>(&v1::Admin::Stub::DrainShard, request, To::kHolder);
}

absl::StatusOr<v1::CheckpointSummary> AdminCalls::CreateCheckpoint() const {
  v1::CreateCheckpointRequest request;
  request.set_job(options_.job);
  request.set_id(options_.checkpoint);
  KAON_ASSIGN_OR_RETURN(
      const v1::CreateCheckpointResponse response,
      Call<v1::CreateCheckpointResponse>(&v1::Admin::Stub::CreateCheckpoint, request, To::kHolder));
  return response.checkpoint();
}

absl::StatusOr<v1::RestoreCheckpointResponse> AdminCalls::RestoreCheckpoint(
    const v1::RestoreCheckpointRequest& request) const {
  return Call<v1::RestoreCheckpointResponse>(&v1::Admin::Stub::RestoreCheckpoint, request,
                                             To::kHolder, WhileAway::kAskAgain);
}

absl::StatusOr<v1::CheckpointSummary> AdminCalls::DeleteCheckpoint() const {
  v1::DeleteCheckpointRequest request;
  request.set_id(options_.checkpoint);
  KAON_ASSIGN_OR_RETURN(
      const v1::DeleteCheckpointResponse response,
      Call<v1::DeleteCheckpointResponse>(&v1::Admin::Stub::DeleteCheckpoint, request));
  return response.checkpoint();
}

absl::StatusOr<v1::ListCheckpointsResponse> AdminCalls::ListCheckpoints() const {
  v1::ListCheckpointsRequest request;
  request.set_job(options_.job);
  return Call<v1::ListCheckpointsResponse>(&v1::Admin::Stub::ListCheckpoints, request);
}

absl::StatusOr<v1::CheckpointSummary> AdminCalls::VerifyCheckpoint() const {
  v1::VerifyCheckpointRequest request;
  request.set_id(options_.checkpoint);
  KAON_ASSIGN_OR_RETURN(
      const v1::VerifyCheckpointResponse response,
      Call<v1::VerifyCheckpointResponse>(&v1::Admin::Stub::VerifyCheckpoint, request));
  return response.checkpoint();
}

HealthReport AdminCalls::CheckHealth() const {
  HealthReport health;
  std::vector<HealthRow>& rows = health.rows;
  if (!options_.shard.empty()) {
    HealthRow& row = rows.emplace_back(CheckRow(options_, options_.shard, proto::Role::kShard));
    const absl::StatusOr<v1::ShardStatus> shard = DescribeShard();
    if (row.status == kNotServing && shard.ok()) row.reason = WhyNotServing(*shard);
    return health;
  }
  for (const std::string& endpoint : options_.endpoints) {
    HealthRow& row = rows.emplace_back(CheckRow(options_, endpoint, proto::Role::kCoordinator));
    if (row.status != kNotServing) continue;
    Options itself = options_;
    itself.endpoints = {endpoint};
    const absl::StatusOr<v1::GetStatusResponse> status = AdminCalls(itself).GetStatus();
    if (status.ok()) row.reason = status->phase();
  }
  const absl::StatusOr<v1::GetStatusResponse> status = GetStatus();
  health.shards = absl::IsPermissionDenied(status.status())
                      ? absl::PermissionDeniedError(
                            absl::StrCat("shards cannot be listed: ", status.status().message(),
                                         "; use a certificate of role reader or admin"))
                      : status.status();
  if (!status.ok()) return health;
  for (const v1::ShardStatus& shard : status->shards()) {
    HealthRow& row = rows.emplace_back(CheckRow(options_, shard.address(), proto::Role::kShard));
    if (row.status != kNotServing) continue;
    // Ask again: the server may have had no reason when its address was learned.
    const absl::StatusOr<v1::GetStatusResponse> later = GetStatus();
    if (later.ok()) row.reason = WhyNotServing(*later, shard.address());
  }
  return health;
}

}  // namespace kaon::admin_cli
