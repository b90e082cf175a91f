#include "tests/server/coordinator/machine/machine_harness.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/machine/registration.h"
#include "tests/server/coordinator/machine/test_job.h"

namespace kaon::coordinator {

namespace {

constexpr uint64_t kNever = std::numeric_limits<int64_t>::max();

StepMachineOptions Options(int num_shards, const std::string& address) {
  StepMachineOptions options;
  options.address = address;
  for (int i = 0; i < num_shards; ++i) options.shard_addresses.push_back(absl::StrCat("shard:", i));
  options.incarnation_high = std::hash<std::string>()(address);
  options.seed = options.incarnation_high;
  options.takes_checkpoints = true;
  options.checkpoint_every_steps = 3;
  return options;
}

v1::Refused Refusal(const std::string& detail, const v1::StepPlan& plan) {
  v1::Refused refused;
  refused.set_reason(v1::REFUSAL_REASON_INVALID);
  refused.set_detail(detail);
  refused.set_position(plan.position());
  *refused.mutable_ballot() = plan.ballot();
  refused.set_round(plan.round());
  return refused;
}

}  // namespace

v1::ShardState StateAfterStep(uint64_t step) {
  PlacementLimits limits;
  limits.num_shards = 2;
  v1::ShardState state;
  state.set_applied_position(step + 2);
  state.set_applied_step(step);
  state.set_timeline(1);
  state.set_config_revision(1);
  state.set_weights_loaded(true);
  *state.mutable_registration() = MakeRegistration(TestJob(), limits).value();
  v1::StepPlan& plan = *state.mutable_applied_record()->mutable_plan();
  plan.set_position(step + 2);
  plan.set_timeline(1);
  plan.mutable_step()->set_kind(step == 0 ? v1::STEP_KIND_LOAD_WEIGHTS : v1::STEP_KIND_TRAIN);
  plan.mutable_step()->set_step(step);
  state.mutable_applied_record()->mutable_decision()->set_next_loss_scale(1);
  return state;
}

MachineHarness::MachineHarness(int num_shards, std::string address)
    : num_shards_(num_shards), machine_(Options(num_shards, address)) {}

void MachineHarness::Drain() {
  for (CoordinatorAction& action : machine_.TakeActions()) {
    if (auto* send = std::get_if<SendToShard>(&action)) {
      if (send->message.has_checkpoint()) attempt_ = send->message.checkpoint().attempt();
      sent_[send->shard].push_back(send->Whole());
    } else if (auto* event = std::get_if<AwaitEvent>(&action)) {
      EXPECT_EQ(ended_.count(event->call), 0) << "event after the end";
      events_[event->call].push_back(event->event->message);
      if (event->last) ended_[event->call] = absl::OkStatus();
    } else if (auto* failed = std::get_if<AwaitFailed>(&action)) {
      EXPECT_EQ(ended_.count(failed->call), 0) << "ended twice";
      ended_[failed->call] = failed->status;
      holder_address_ = failed->holder_address;
    } else if (auto* finish = std::get_if<FinishCheckpoint>(&action)) {
      finished_.push_back(std::move(*finish));
    } else if (auto* read = std::get_if<ReadRecord>(&action)) {
      reads_.push_back(read->position);
    } else if (auto* ask = std::get_if<ReadAwaited>(&action)) {
      asked_.push_back(ask->shard);
    } else if (!std::holds_alternative<WakeAt>(action)) {
      std::visit(
          [this, &action](const auto& reply) {
            if constexpr (requires { reply.response; }) {
              EXPECT_EQ(replies_.count(reply.call), 0) << "answered twice";
              holder_address_ = reply.holder_address;
              replies_[reply.call] = action;
            }
          },
          action);
    }
  }
}

void MachineHarness::Tick(absl::Duration by) {
  now_ += by;
  machine_.Tick(now_);
  Drain();
}

void MachineHarness::FromShard(int shard, v1::ShardToCoordinator message,
                               std::optional<v1::Ballot> promised) {
  message.set_shard(shard);
  *message.mutable_promised() = promised.value_or(ballot());
  machine_.OnShardMessage(shard, std::move(message), now_);
  Drain();
}

void MachineHarness::Probed(int shard, uint64_t silent_ms, const v1::Ballot& promised,
                            const std::string& holder) {
  v1::ShardToCoordinator message;
  message.mutable_probed()->set_holder_silent_ms(silent_ms);
  message.mutable_probed()->set_holder_address(holder);
  FromShard(shard, message, promised);
}

void MachineHarness::State(int shard, const v1::ShardState& state) {
  v1::ShardToCoordinator message;
  *message.mutable_state() = state;
  FromShard(shard, message);
}

v1::Prepared MachineHarness::VoteFor(const v1::StepPlan& plan, int shard) {
  v1::Prepared vote;
  vote.set_plan(plan.SerializeAsString());
  const auto job = machine_.Snapshot().job;
  if (!plan.has_step() || !job) return vote;
  for (const v1::ParameterPlacement& row : job->placement().parameters()) {
    if (row.shard() != shard || row.group().empty()) continue;
    v1::ParameterSums& sums = *vote.add_sums();
    sums.set_parameter_id(row.parameter_id());
    sums.set_sum_squares(0.25);
  }
  return vote;
}

void MachineHarness::Vote(int shard, const v1::StepPlan& plan) {
  v1::ShardToCoordinator message;
  *message.mutable_prepared() = VoteFor(plan, shard);
  FromShard(shard, message);
}

void MachineHarness::Applied(int shard, uint64_t position) {
  v1::ShardToCoordinator message;
  message.mutable_applied()->set_position(position);
  FromShard(shard, message);
}

void MachineHarness::Refuse(int shard, v1::RefusalReason reason, const std::string& detail,
                            const v1::Ballot& promised, const std::string& holder) {
  v1::ShardToCoordinator message;
  message.mutable_refused()->set_reason(reason);
  message.mutable_refused()->set_detail(detail);
  message.mutable_refused()->set_holder_address(holder);
  FromShard(shard, message, promised);
}

void MachineHarness::RefusePlan(int shard, const std::string& detail, const v1::StepPlan& plan,
                                std::optional<v1::Ballot> promised, v1::RefusalReason reason) {
  v1::ShardToCoordinator message;
  *message.mutable_refused() = Refusal(detail, plan);
  message.mutable_refused()->set_reason(reason);
  FromShard(shard, message, promised);
}

void MachineHarness::RefuseDecision(int shard, const std::string& detail, const v1::StepPlan& plan,
                                    v1::RefusalReason reason) {
  v1::ShardToCoordinator message;
  *message.mutable_refused() = Refusal(detail, plan);
  message.mutable_refused()->set_reason(reason);
  message.mutable_refused()->set_decision(true);
  FromShard(shard, message);
}

void MachineHarness::Stand(const v1::Ballot& promised) {
  for (int i = 0; i < num_shards_; ++i) machine_.OnShardConnected(i);
  Tick();
  Probed(0, kNever, promised, "");
  Tick(absl::Seconds(1));
  Probed(0, kNever, promised, "");
}

void MachineHarness::Hold(const v1::ShardState& state, const v1::Ballot& promised) {
  Stand(promised);
  for (int i = 0; i < num_shards_; ++i) State(i, state);
  ASSERT_TRUE(machine_.IsHolder()) << phase();
}

v1::StepRecord MachineHarness::VoteAndApply() {
  const std::optional<v1::StepPlan> plan = SentPlan(0);
  EXPECT_TRUE(plan.has_value()) << phase();
  if (!plan) return {};
  for (int i = 0; i < num_shards_; ++i) Vote(i, *plan);
  const std::optional<v1::StepRecord> record = SentRecord(0);
  EXPECT_TRUE(record.has_value()) << phase();
  for (int i = 0; i < num_shards_; ++i) Applied(i, plan->position());
  ClearSent();
  return record.value_or(v1::StepRecord());
}

void MachineHarness::Train(uint32_t world_size) { Train(TestJob(world_size)); }

void MachineHarness::Train(const v1::JobDefinition& job) {
  Hold();
  v1::RegisterJobRequest request;
  *request.mutable_definition() = job;
  machine_.Register(++last_call_, request);
  Drain();
  VoteAndApply();
  for (uint32_t rank = 0; rank < job.world_size(); ++rank) ASSERT_TRUE(Join(rank, 100 + rank).ok());
  ASSERT_TRUE(Begin(0, 0).ok());
  VoteAndApply();
}

absl::StatusOr<v1::JobDescription> MachineHarness::Register(const v1::JobDefinition& job) {
  v1::RegisterJobRequest request;
  *request.mutable_definition() = job;
  const CallId call = ++last_call_;
  machine_.Register(call, request);
  Drain();
  if (replies_.count(call) == 0) VoteAndApply();
  return std::get<ReplyRegister>(replies_.at(call)).response;
}

absl::StatusOr<v1::JobDescription> MachineHarness::GetJob() {
  v1::GetJobRequest request;
  request.set_job("tiny");
  const CallId call = ++last_call_;
  machine_.GetJob(call, request);
  Drain();
  return std::get<ReplyGetJob>(replies_.at(call)).response;
}

absl::StatusOr<v1::JoinWorkerResponse> MachineHarness::Join(const v1::JoinWorkerRequest& request) {
  const CallId call = ++last_call_;
  machine_.Join(call, request);
  Drain();
  const auto response = std::get<ReplyJoin>(replies_.at(call)).response;
  if (response.ok()) joined_[request.rank()] = *response;
  return response;
}

absl::StatusOr<v1::JoinWorkerResponse> MachineHarness::Join(uint32_t rank, uint64_t nonce) {
  v1::JoinWorkerRequest request;
  request.set_job("tiny");
  request.set_rank(rank);
  request.set_process_nonce(nonce);
  return Join(request);
}

v1::BeginStepRequest MachineHarness::BeginRequest(uint32_t rank, uint64_t step) {
  v1::BeginStepRequest request;
  request.set_job("tiny");
  request.set_rank(rank);
  *request.mutable_attempt() = joined_[rank].attempt();
  request.set_process_nonce(joined_[rank].process_nonce());
  request.set_step(step);
  request.set_token_weight(1);
  request.set_learning_rate_multiplier(1);
  return request;
}

absl::StatusOr<v1::BeginStepResponse> MachineHarness::Begin(const v1::BeginStepRequest& request) {
  const CallId call = ++last_call_;
  machine_.Begin(call, request);
  Drain();
  return std::get<ReplyBegin>(replies_.at(call)).response;
}

absl::StatusOr<v1::BeginStepResponse> MachineHarness::Begin(uint32_t rank, uint64_t step) {
  return Begin(BeginRequest(rank, step));
}

CallId MachineHarness::SetGroup(const v1::SetGroupRequest& request) {
  const CallId call = ++last_call_;
  machine_.SetGroup(call, request);
  Drain();
  return call;
}

CallId MachineHarness::SetRate(const std::string& lr, uint64_t expected_revision) {
  v1::SetGroupRequest request;
  request.set_group("adamw");
  request.add_settings()->set_field("lr");
  request.mutable_settings(0)->set_value(lr);
  request.set_expected_revision(expected_revision);
  return SetGroup(request);
}

CallId MachineHarness::Create(const std::string& id) {
  const CallId call = ++last_call_;
  v1::CreateCheckpointRequest request;
  request.set_job("tiny");
  request.set_id(id);
  machine_.CreateCheckpoint(call, request);
  Drain();
  return call;
}

std::optional<absl::StatusOr<v1::CreateCheckpointResponse>> MachineHarness::created(CallId call) {
  const auto it = replies_.find(call);
  if (it == replies_.end()) return std::nullopt;
  return std::get<ReplyCreate>(it->second).response;
}

CallId MachineHarness::DrainShard(uint32_t shard) {
  const CallId call = ++last_call_;
  v1::DrainShardRequest request;
  request.set_shard(shard);
  machine_.DrainShard(call, request);
  Drain();
  return call;
}

std::optional<absl::StatusOr<v1::DrainShardResponse>> MachineHarness::drained(CallId call) {
  const auto it = replies_.find(call);
  if (it == replies_.end()) return std::nullopt;
  return std::get<ReplyDrain>(it->second).response;
}

void MachineHarness::Disconnect(int shard, const absl::Status& why) {
  machine_.OnShardDisconnected(shard, why);
  Drain();
}

void MachineHarness::Connect(int shard) {
  machine_.OnShardConnected(shard);
  Drain();
}

void MachineHarness::CheckpointFinished(const absl::StatusOr<v1::CheckpointSummary>& summary) {
  machine_.OnCheckpointFinished(attempt_, summary);
  Drain();
}

CallId MachineHarness::Restore(const RestoreOrder& order) {
  const CallId call = ++last_call_;
  machine_.Restore(call, order);
  Drain();
  return call;
}

CallId MachineHarness::Delete(const std::string& job, uint64_t request_id) {
  v1::DeleteJobRequest request;
  request.set_job(job);
  const std::optional<v1::JobDescription> known = machine_.Snapshot().job;
  request.set_timeline(known ? known->timeline() : 1);
  request.set_request_id(request_id);
  return Delete(request);
}

CallId MachineHarness::Delete(const v1::DeleteJobRequest& request) {
  const CallId call = ++last_call_;
  machine_.DeleteJob(call, request);
  Drain();
  return call;
}

std::optional<absl::StatusOr<v1::DeleteJobResponse>> MachineHarness::deleted(CallId call) {
  const auto it = replies_.find(call);
  if (it == replies_.end()) return std::nullopt;
  return std::get<ReplyDelete>(it->second).response;
}

std::optional<absl::StatusOr<v1::RestoreCheckpointResponse>> MachineHarness::restored(CallId call) {
  const auto it = replies_.find(call);
  if (it == replies_.end()) return std::nullopt;
  return std::get<ReplyRestore>(it->second).response;
}

std::optional<absl::StatusOr<v1::SetGroupResponse>> MachineHarness::set(CallId call) {
  const auto it = replies_.find(call);
  if (it == replies_.end()) return std::nullopt;
  return std::get<ReplySetGroup>(it->second).response;
}

void MachineHarness::RecordRead(uint64_t position, const absl::StatusOr<v1::StepRecord>& record) {
  machine_.OnRecordRead(position, record);
  Drain();
}

void MachineHarness::Awaited(int shard, const std::vector<uint32_t>& ranks,
                             const v1::StepPlan& plan) {
  v1::DescribeShardResponse description;
  description.mutable_state()->set_applied_position(plan.position() - 1);
  *description.mutable_awaited_ballot() = plan.ballot();
  description.set_awaited_round(plan.round());
  for (const uint32_t rank : ranks) description.add_awaited_ranks(rank);
  machine_.OnAwaited(shard, description);
  Drain();
}

CallId MachineHarness::Await(uint32_t rank, uint64_t step) {
  v1::AwaitStepRequest request;
  request.set_job("tiny");
  request.set_rank(rank);
  *request.mutable_attempt() = joined_[rank].attempt();
  request.set_step(step);
  const CallId call = ++last_call_;
  machine_.Await(call, request);
  Drain();
  return call;
}

void MachineHarness::HangUp(CallId call) {
  machine_.CancelCall(call);
  Drain();
}

std::optional<absl::Status> MachineHarness::ended(CallId call) {
  const auto it = ended_.find(call);
  if (it == ended_.end()) return std::nullopt;
  return it->second;
}

void MachineHarness::ClearSent() {
  Drain();
  sent_.clear();
  reads_.clear();
  asked_.clear();
}

std::optional<v1::StepPlan> MachineHarness::SentPlan(int shard) {
  std::optional<v1::StepPlan> plan;
  for (const v1::CoordinatorToShard& message : sent_[shard]) {
    if (message.has_plan()) plan = message.plan();
  }
  return plan;
}

std::optional<v1::StepRecord> MachineHarness::SentRecord(int shard) {
  std::optional<v1::StepRecord> record;
  for (const v1::CoordinatorToShard& message : sent_[shard]) {
    if (message.has_decision()) record = message.decision();
  }
  return record;
}

bool MachineHarness::SentPromise(int shard) {
  for (const v1::CoordinatorToShard& message : sent_[shard]) {
    if (message.has_promise()) return true;
  }
  return false;
}

}  // namespace kaon::coordinator
