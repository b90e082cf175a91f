#include "tests/server/coordinator/server_fixture.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <chrono>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/grpc_status.h"
#include "tests/server/coordinator/machine/test_job.h"

namespace kaon::coordinator {

namespace {

constexpr std::chrono::seconds kPatience(20);

// Retries as long as workers do: on a busy machine a shard may have been silent lately.
template <typename Ask>
absl::Status UntilAvailable(const Ask& ask) {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  absl::Status status = ask();
  while (absl::IsUnavailable(status) && std::chrono::steady_clock::now() < give_up) status = ask();
  return status;
}

}  // namespace

void ServerFixture::SetUp() {
  for (int i = 0; i < 2; ++i) shards_.push_back(std::make_unique<FakeShard>());
  server_ = StartCoordinator();
  ASSERT_NE(server_, nullptr);
  Use(*server_);
  WaitFor([](const v1::GetStatusResponse& status) { return status.holder(); });
}

std::unique_ptr<CoordinatorServer> ServerFixture::StartCoordinator(uint32_t takeover_ms) {
  v1::CoordinatorConfig config;
  config.set_heartbeat_ms(10);
  config.set_takeover_ms(takeover_ms);
  for (const auto& shard : shards_) config.add_shards(shard->address());
  config.set_checkpoint_dir(checkpoint_dir_);
  if (!metrics_token_file_.empty()) {
    config.set_metrics_address("127.0.0.1:0");
    config.set_metrics_token_file(metrics_token_file_);
  }
  auto server = CoordinatorServer::Start(config);
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? std::move(*server) : nullptr;
}

void ServerFixture::ReplaceCoordinator() {
  server_->Shutdown();
  server_ = StartCoordinator();
  ASSERT_NE(server_, nullptr);
  Use(*server_);
  WaitFor([](const v1::GetStatusResponse& status) { return status.holder(); });
}

void ServerFixture::Use(const CoordinatorServer& server) {
  const auto channel = grpc::CreateChannel(absl::StrCat("127.0.0.1:", server.port()),
                                           grpc::InsecureChannelCredentials());
  coordinator_ = v1::Coordinator::NewStub(channel);
  admin_ = v1::Admin::NewStub(channel);
}

void ServerFixture::WaitFor(const std::function<bool(const v1::GetStatusResponse&)>& done) {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  for (v1::GetStatusResponse status = Status(); !done(status); status = Status()) {
    ASSERT_LT(std::chrono::steady_clock::now(), give_up) << status.phase();
  }
}

absl::Status ServerFixture::Finished(const grpc::ClientContext& context,
                                     const grpc::Status& status) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto it = metadata.find(kHolderMetadata);
  holder_ = it == metadata.end() ? "" : std::string(it->second.data(), it->second.size());
  return proto::FromGrpc(status);
}

absl::Status ServerFixture::Register(const v1::JobDefinition& job) {
  v1::RegisterJobRequest request;
  *request.mutable_definition() = job;
  v1::JobDescription response;
  return Call(&v1::Coordinator::Stub::RegisterJob, *coordinator_, request, &response);
}

absl::Status ServerFixture::GetJob(const std::string& job, v1::JobDescription* response) {
  v1::GetJobRequest request;
  request.set_job(job);
  return Call(&v1::Coordinator::Stub::GetJob, *coordinator_, request, response);
}

absl::Status ServerFixture::Join(const v1::JoinWorkerRequest& request,
                                 v1::JoinWorkerResponse* response) {
  return Call(&v1::Coordinator::Stub::JoinWorker, *coordinator_, request, response);
}

absl::Status ServerFixture::Begin(const v1::BeginStepRequest& request,
                                  v1::BeginStepResponse* response) {
  return Call(&v1::Coordinator::Stub::BeginStep, *coordinator_, request, response);
}

absl::Status ServerFixture::Await(const v1::AwaitStepRequest& request,
                                  std::vector<v1::StepEvent>* events) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const auto reader = coordinator_->AwaitStep(&context, request);
  v1::StepEvent event;
  while (reader->Read(&event)) events->push_back(event);
  return Finished(context, reader->Finish());
}

v1::JoinWorkerRequest ServerFixture::JoinRequest(uint32_t rank) {
  v1::JoinWorkerRequest request;
  request.set_job("tiny");
  request.set_rank(rank);
  request.set_process_nonce(100 + rank);
  return request;
}

v1::BeginStepRequest ServerFixture::BeginRequest(uint32_t rank, uint64_t step) {
  v1::BeginStepRequest request;
  request.set_job("tiny");
  request.set_rank(rank);
  *request.mutable_attempt() = attempts_.at(rank);
  request.set_process_nonce(100 + rank);
  request.set_step(step);
  request.set_token_weight(1);
  request.set_learning_rate_multiplier(1);
  return request;
}

v1::AwaitStepRequest ServerFixture::AwaitRequest(uint32_t rank, uint64_t step) {
  v1::AwaitStepRequest request;
  request.set_job("tiny");
  request.set_rank(rank);
  *request.mutable_attempt() = attempts_.at(rank);
  request.set_step(step);
  return request;
}

v1::GetStatusResponse ServerFixture::Status() {
  v1::GetStatusResponse response;
  EXPECT_TRUE(Call(&v1::Admin::Stub::GetStatus, *admin_, v1::GetStatusRequest(), &response).ok());
  return response;
}

void ServerFixture::Train(uint32_t world_size) {
  ASSERT_EQ(UntilAvailable([&] { return Register(TestJob(world_size)); }), absl::OkStatus());
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    v1::JoinWorkerResponse joined;
    ASSERT_EQ(UntilAvailable([&] { return Join(JoinRequest(rank), &joined); }), absl::OkStatus());
    attempts_.push_back(joined.attempt());
  }
  v1::BeginStepResponse begun;
  ASSERT_EQ(UntilAvailable([&] { return Begin(BeginRequest(0, 0), &begun); }), absl::OkStatus());
  std::vector<v1::StepEvent> events;
  ASSERT_EQ(UntilAvailable([&] { return Await(AwaitRequest(0, 0), &events); }), absl::OkStatus());
  WaitFor([](const v1::GetStatusResponse& status) {
    return absl::StartsWith(status.phase(), "step 1: waiting for rank");
  });
}

std::string ServerFixture::Visible() {
  v1::GetStatusResponse status = Status();
  status.clear_events();
  status.clear_time_unix_millis();
  std::string visible = status.DebugString();
  for (const auto& shard : shards_) absl::StrAppend(&visible, shard->state().DebugString());
  return visible;
}

std::map<std::string, uint64_t> ServerFixture::Counted() {
  std::map<std::string, uint64_t> counted;
  const v1::GetStatusResponse status = Status();
  for (const v1::EventCount& one : status.events()) counted[one.name()] = one.count();
  return counted;
}

}  // namespace kaon::coordinator
