#include "tests/server/shard/scripted_shard.h"

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "job/settings.h"
#include "proto/decide_version.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/manifest.h"
#include "server/disk/posix_directory.h"
#include "tests/server/shard/agreement/plans.h"
#include "tests/server/shard/device/shard_memory.h"

namespace kaon::shard {

namespace {

// Other ones at each step.
std::vector<std::vector<float>> GradientsOf(uint64_t step) {
  const auto x = static_cast<float>(step);
  return {{0.5f, -x, 2, 0.25f * x, -0.5f, 1}, {x, -2, 3, -4}};
}

}  // namespace

ScriptedShard::ScriptedShard(const std::string& folder, const std::string& durability)
    : folder_(folder), durability_(durability) {
  std::filesystem::create_directories(folder + "/checkpoints");
  Start();
}

void ScriptedShard::Restart() {
  Stop();
  coordinator_.reset();
  server_.reset();
  Start();
}

void ScriptedShard::Start() {
  v1::ShardConfig config;
  config.set_data_dir(folder_ + "/data");
  config.set_checkpoint_dir(folder_ + "/checkpoints");
  config.set_durability(durability_);
  config.set_host_memory_bytes(64 << 20);
  config.set_gemm("reference");
  if (ShardMemory::is_device()) config.set_device("fake:0");
  config.set_allow_other_build(true);
  absl::StatusOr<std::unique_ptr<ShardServer>> server = ShardServer::Start(config);
  EXPECT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  const auto channel = grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()),
                                           grpc::InsecureChannelCredentials());
  data_ = v1::ShardData::NewStub(channel);
  control_ = v1::ShardControl::NewStub(channel);
  // As whoever wrote the directory has had the lower ones.
  counter_ = Describe().state().applied_position();
  coordinator_ = std::make_unique<ControlCall>(*control_);
  Promise();
}

void ScriptedShard::Promise() {
  ++counter_;
  v1::CoordinatorToShard promise = Envelope(counter_);
  promise.mutable_promise();
  EXPECT_TRUE(coordinator_->Ask(promise).has_state());
}

v1::DescribeShardResponse ScriptedShard::Describe() {
  v1::DescribeShardResponse response;
  const grpc::Status status =
      control_->DescribeShard(WithDeadline().get(), v1::DescribeShardRequest(), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

v1::StepPlan ScriptedShard::NextPlan() {
  const v1::ShardState state = State();
  v1::StepPlan plan;
  plan.set_job("gpt2");
  plan.set_timeline(state.timeline());
  plan.set_position(state.applied_position() + 1);
  *plan.mutable_ballot() = MakeBallot(counter_);
  plan.set_round(1);
  plan.set_decide_version(proto::kDecideVersion);
  plan.set_config_revision(state.config_revision());
  return plan;
}

void ScriptedShard::Decide(const v1::StepPlan& plan, const v1::ShardToCoordinator& vote,
                           const v1::StepDecision* decision) {
  ASSERT_TRUE(vote.has_prepared()) << vote.DebugString();
  v1::CoordinatorToShard message = Envelope(counter_);
  *message.mutable_decision() = Applying(plan);
  if (decision != nullptr) *message.mutable_decision()->mutable_decision() = *decision;
  message.mutable_decision()->mutable_decision()->set_state_digest(vote.prepared().state_digest());
  const v1::ShardToCoordinator answer = coordinator_->Ask(message);
  EXPECT_TRUE(answer.has_applied()) << answer.DebugString();
}

void ScriptedShard::Push(uint32_t rank, const v1::StepPlan& plan,
                         const std::vector<std::vector<float>>& values) {
  std::vector<v1::PushRequest> requests(1);
  v1::PushOpen* open = requests[0].mutable_open();
  open->set_job(plan.job());
  open->set_timeline(plan.timeline());
  open->set_step(plan.step().step());
  open->set_rank(rank);
  *open->mutable_attempt() = plan.step().members(static_cast<int>(rank)).attempt();
  for (uint32_t id = 0; id < values.size(); ++id) requests.push_back(ChunkRequest(id, values[id]));
  requests.push_back(FinishRequest());
  grpc::Status status = PushTo(*data_, requests);
  // The plan travels on another stream.
  for (int tries = 0; status.error_code() == grpc::StatusCode::UNAVAILABLE; ++tries) {
    ASSERT_LT(tries, 10'000) << status.error_message();
    status = PushTo(*data_, requests);
  }
  EXPECT_TRUE(status.ok()) << status.error_message();
}

void ScriptedShard::RegisterAndLoad() {
  v1::CoordinatorToShard message = Envelope(counter_);
  *message.mutable_plan() = NextPlan();
  message.mutable_plan()->set_timeline(1);
  *message.mutable_plan()->mutable_registration() = MakeRegistration();
  Decide(message.plan(), coordinator_->Ask(message));
  *message.mutable_plan() = NextPlan();
  *message.mutable_plan()->mutable_step() = LoadPlan(1, 1).step();
  coordinator_->Send(message);
  Push(0, message.plan(), {{1, 2, 3, 4, 5, 6}, std::vector<float>(4, 1), std::vector<float>(5, 9)});
  Decide(message.plan(), coordinator_->Receive());
}

void ScriptedShard::Train() {
  const uint64_t step = State().applied_step() + 1;
  v1::CoordinatorToShard message = Envelope(counter_);
  *message.mutable_plan() = NextPlan();
  *message.mutable_plan()->mutable_step() = TrainPlan(step, 1, 1).step();
  coordinator_->Send(message);
  for (uint32_t rank : {0, 1}) Push(rank, message.plan(), GradientsOf(step));
  Decide(message.plan(), coordinator_->Receive());
}

void ScriptedShard::ChangeGroup(const std::string& field, const std::string& value) {
  v1::CoordinatorToShard message = Envelope(counter_);
  *message.mutable_plan() = NextPlan();
  v1::GroupSetting setting;
  setting.set_field(field);
  setting.set_value(value);
  const absl::StatusOr<v1::GroupChangeBody> change =
      job::MakeGroupChange(State().registration(), "scalars", {setting}, message.plan().position());
  ASSERT_TRUE(change.ok()) << change.status();
  *message.mutable_plan()->mutable_group_change() = *change;
  Decide(message.plan(), coordinator_->Ask(message));
}

void ScriptedShard::Checkpoint(const std::string& id) {
  const v1::ShardState state = State();
  v1::CoordinatorToShard message = Envelope(counter_);
  message.mutable_checkpoint()->set_id(id);
  message.mutable_checkpoint()->set_position(state.applied_position());
  message.mutable_checkpoint()->set_attempt(7);
  v1::CheckpointReport report;
  coordinator_->Send(message);
  do {
    report = coordinator_->Receive().checkpoint();
    ASSERT_EQ(report.error_code(), 0u) << report.error();
  } while (!report.has_part());
  const checkpoint::CheckpointFacts facts = {id, state.registration(), state.applied_record(),
                                             state.applied_step()};
  const auto manifest = checkpoint::BuildManifest(facts, {report.part()});
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const auto files = disk::PosixDirectory::At(folder_ + "/checkpoints");
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(checkpoint::CheckpointDirectory(**files).Commit(*manifest), absl::OkStatus());
}

void ScriptedShard::Restore(const std::string& checkpoint) {
  const auto files = disk::PosixDirectory::At(folder_ + "/checkpoints");
  ASSERT_TRUE(files.ok()) << files.status();
  checkpoint::CheckpointDirectory directory(**files);
  const absl::StatusOr<v1::CheckpointManifest> manifest = directory.Load(checkpoint);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  v1::CoordinatorToShard message = Envelope(counter_);
  *message.mutable_plan() = NextPlan();
  message.mutable_plan()->set_timeline(message.plan().timeline() + 1);
  v1::RestoreBody& restore = *message.mutable_plan()->mutable_restore();
  *restore.mutable_registration() = manifest->registration();
  restore.set_checkpoint(checkpoint);
  restore.set_manifest_sha256(*directory.ManifestDigest(checkpoint));
  restore.set_step(manifest->step());
  *restore.mutable_last_decision() = manifest->last_record().decision();
  Decide(message.plan(), coordinator_->Ask(message), &restore.last_decision());
}

void ScriptedShard::RollBack(uint64_t step) {
  v1::CoordinatorToShard message = Envelope(counter_);
  *message.mutable_plan() = NextPlan();
  message.mutable_plan()->set_timeline(message.plan().timeline() + 1);
  const v1::ShardState state = State();
  for (const v1::SnapshotPoint& point : state.snapshots()) {
    if (point.step() == step) *message.mutable_plan()->mutable_rollback()->mutable_target() = point;
  }
  ASSERT_TRUE(message.plan().has_rollback()) << "no snapshot of step " << step;
  Decide(message.plan(), coordinator_->Ask(message),
         &message.plan().rollback().target().last_decision());
}

void ScriptedShard::AwaitSnapshot(uint64_t step) {
  for (int tries = 0; tries < 100'000; ++tries) {
    const v1::ShardState state = State();
    for (const v1::SnapshotPoint& point : state.snapshots()) {
      if (point.step() == step) return;
    }
  }
  FAIL() << "no snapshot of step " << step;
}

}  // namespace kaon::shard
