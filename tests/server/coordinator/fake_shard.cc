#include "tests/server/coordinator/fake_shard.h"

#include <grpcpp/server_builder.h>

#include <chrono>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "job/settings.h"
#include "proto/ballot.h"

namespace kaon::coordinator {

FakeShard::FakeShard(const std::string& address) {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  address_ = absl::StrCat("127.0.0.1:", port);
}

FakeShard::~FakeShard() { Stop(); }

void FakeShard::Stop() {
  // Without a deadline, open streams of coordinators would block the shutdown.
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

v1::ShardState FakeShard::state() {
  MutexLock lock(mu_);
  return state_;
}

void FakeShard::set_votes(bool votes) {
  MutexLock lock(mu_);
  votes_ = votes;
}

void FakeShard::set_build(const std::string& build) {
  MutexLock lock(mu_);
  build_ = build;
}

void FakeShard::set_read_only(const std::string& reason) {
  MutexLock lock(mu_);
  read_only_ = reason;
}

void FakeShard::FailCheckpoints(const absl::Status& status) {
  MutexLock lock(mu_);
  checkpoints_ = status;
}

void FakeShard::ApplyLocked(const v1::StepRecord& record) {
  const v1::StepPlan& plan = record.plan();
  if (plan.position() != state_.applied_position() + 1) return;
  state_.set_applied_position(plan.position());
  state_.set_timeline(plan.timeline());
  *state_.mutable_applied_record() = record;
  state_.clear_prepared();
  history_.push_back(record);
  if (plan.has_registration()) {
    state_.set_config_revision(plan.position());
    *state_.mutable_registration() = plan.registration();
  } else if (plan.has_restore()) {
    state_.set_config_revision(plan.position());
    *state_.mutable_registration() = plan.restore().registration();
    state_.set_applied_step(plan.restore().step());
    state_.set_weights_loaded(true);
  } else if (plan.has_job_deletion()) {
    state_.set_config_revision(plan.position());
    state_.clear_registration();
    state_.clear_applied_step();
    state_.clear_weights_loaded();
  } else if (plan.has_group_change()) {
    state_.set_config_revision(plan.position());
    job::ApplyGroupChange(plan.group_change(), *state_.mutable_registration());
  } else if (plan.step().kind() == v1::STEP_KIND_TRAIN) {
    state_.set_applied_step(plan.step().step());
  } else {
    state_.set_weights_loaded(true);
  }
}

v1::ShardToCoordinator FakeShard::Answer(const v1::CoordinatorToShard& message) {
  MutexLock lock(mu_);
  v1::ShardToCoordinator answer;
  shard_ = message.shard();
  const int by_ballot = proto::Compare(message.ballot(), promised_);
  if (message.has_promise() ? by_ballot >= 0 : by_ballot == 0 && message.has_ballot()) {
    heard_ = absl::Now();
  }
  if (message.has_probe()) {
    answer.mutable_probed()->set_holder_address(holder_);
    answer.mutable_probed()->set_holder_silent_ms(
        heard_ == absl::InfinitePast() ? std::numeric_limits<int64_t>::max()
                                       : absl::ToInt64Milliseconds(absl::Now() - heard_));
  } else if (by_ballot < 0) {
    answer.mutable_refused()->set_reason(v1::REFUSAL_REASON_OLD_BALLOT);
    answer.mutable_refused()->set_holder_address(holder_);
  } else if (message.has_promise()) {
    promised_ = message.ballot();
    holder_ = message.holder_address();
    *answer.mutable_state() = state_;
  } else if (message.has_plan() && votes_) {
    answer.mutable_prepared()->set_plan(message.plan().SerializeAsString());
    *state_.mutable_prepared() = answer.prepared();
  } else if (message.has_decision()) {
    ApplyLocked(message.decision());
    answer.mutable_applied()->set_position(message.decision().plan().position());
  } else if (message.has_checkpoint() && !checkpoints_.ok()) {
    v1::CheckpointReport& report = *answer.mutable_checkpoint();
    report.set_id(message.checkpoint().id());
    report.set_attempt(message.checkpoint().attempt());
    report.set_error_code(static_cast<uint32_t>(checkpoints_.code()));
    report.set_error(std::string(checkpoints_.message()));
  } else {
    answer.mutable_heartbeat();
  }
  answer.set_shard(shard_);
  *answer.mutable_promised() = promised_;
  return answer;
}

grpc::Status FakeShard::Control(
    grpc::ServerContext*,
    grpc::ServerReaderWriter<v1::ShardToCoordinator, v1::CoordinatorToShard>* stream) {
  v1::CoordinatorToShard message;
  while (stream->Read(&message)) {
    if (!stream->Write(Answer(message))) break;
  }
  return grpc::Status::OK;
}

grpc::Status FakeShard::ReadHistory(grpc::ServerContext*, const v1::ReadHistoryRequest* request,
                                    v1::ReadHistoryResponse* response) {
  MutexLock lock(mu_);
  if (request->with_phases()) response->add_phases();
  for (const v1::StepRecord& record : history_) {
    if (record.plan().position() < request->from_position()) continue;
    if (response->records_size() < request->limit()) *response->add_records() = record;
  }
  return grpc::Status::OK;
}

grpc::Status FakeShard::DescribeShard(grpc::ServerContext*, const v1::DescribeShardRequest*,
                                      v1::DescribeShardResponse* response) {
  MutexLock lock(mu_);
  response->set_shard(shard_);
  *response->mutable_state() = state_;
  response->mutable_journal()->set_read_only_reason(read_only_);
  response->set_build(build_);
  response->set_backend("cpu");
  response->set_device_class("x86-64");
  for (const v1::ParameterPlacement& row : state_.registration().placement().parameters()) {
    if (row.shard() != shard_) continue;
    v1::ParameterState& state = *response->add_parameters();
    state.set_parameter_id(row.parameter_id());
    state.set_updates_applied(state_.applied_step());
  }
  return grpc::Status::OK;
}

grpc::Status FakeShard::GetParameterStats(grpc::ServerContext*,
                                          const v1::ShardParameterRequest* request,
                                          v1::ParameterStats* response) {
  MutexLock lock(mu_);
  response->set_parameter_id(request->parameter_id());
  response->set_updates_applied(state_.applied_step());
  return grpc::Status::OK;
}

grpc::Status FakeShard::GetParameterDiagnostics(grpc::ServerContext*,
                                                const v1::ShardParameterRequest* request,
                                                v1::ParameterDiagnostics* response) {
  MutexLock lock(mu_);
  response->set_parameter_id(request->parameter_id());
  response->set_backend(absl::StrCat("shard ", shard_));
  return grpc::Status::OK;
}

grpc::Status FakeShard::ReadParameterHistory(grpc::ServerContext*,
                                             const v1::ShardParameterRequest* request,
                                             v1::ParameterHistory* response) {
  response->set_parameter_id(request->parameter_id());
  response->set_every_steps(10);
  response->add_samples()->set_step(1);
  return grpc::Status::OK;
}

grpc::Status FakeShard::ReadSlice(grpc::ServerContext*, const v1::ShardSliceRequest* request,
                                  v1::TensorSlice* response) {
  response->set_values(absl::StrCat(request->job(), " ", request->parameter_id(), " ",
                                    request->tensor(), " ", request->offset(), " ",
                                    request->count()));
  return grpc::Status::OK;
}

}  // namespace kaon::coordinator
