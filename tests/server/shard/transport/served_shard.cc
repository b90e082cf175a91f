#include "tests/server/shard/transport/served_shard.h"

#include <grpcpp/create_channel.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/crc32c.h"
#include "proto/tensor_stream.h"
#include "server/admin_cli/health_check.h"
#include "tests/server/shard/device/shard_memory.h"

namespace kaon::shard {

namespace {

// Elements of fp32 that fill a chunk.
constexpr uint64_t kChunkElements = proto::kMaxChunkBytes / sizeof(float);

// Returns a directory of the running test.
std::string NewDirectory() {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  std::string name = absl::StrCat(test.test_suite_name(), "-", test.name());
  // Instances of a suite have numbers.
  std::replace(name.begin(), name.end(), '/', '-');
  return absl::StrCat(testing::TempDir(), "/", name);
}

}  // namespace

std::unique_ptr<grpc::ClientContext> WithDeadline() {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  return context;
}

ControlCall::ControlCall(v1::ShardControl::Stub& stub, uint32_t num_shards)
    : num_shards_(num_shards), stream_(stub.Control(context_.get())) {}

void ControlCall::Send(const v1::CoordinatorToShard& message) {
  v1::CoordinatorToShard addressed = message;
  // A test may address the shard wrongly.
  addressed.set_num_shards(std::max(num_shards_, message.num_shards()));
  stream_->Write(addressed);
}

v1::ShardToCoordinator ControlCall::Receive() {
  v1::ShardToCoordinator message;
  EXPECT_TRUE(stream_->Read(&message)) << "the control stream ended";
  return message;
}

v1::ShardToCoordinator ControlCall::Ask(const v1::CoordinatorToShard& message) {
  Send(message);
  return Receive();
}

grpc::Status ControlCall::End() {
  stream_->WritesDone();
  v1::ShardToCoordinator message;
  while (stream_->Read(&message)) {
  }
  return stream_->Finish();
}

v1::CoordinatorToShard Envelope(uint64_t counter) {
  v1::CoordinatorToShard message;
  *message.mutable_ballot() = MakeBallot(counter);
  message.set_holder_address("coordinator");
  message.set_num_shards(1);
  return message;
}

v1::PushRequest ChunkRequest(uint32_t parameter, const std::vector<float>& values,
                             uint64_t offset) {
  v1::PushRequest request;
  request.set_payload(values.data(), values.size() * sizeof(float));
  v1::TensorChunk* chunk = request.mutable_chunk();
  chunk->set_parameter_id(parameter);
  chunk->set_offset(offset);
  chunk->set_num_elements(values.size());
  chunk->set_dtype(v1::DTYPE_FLOAT32);
  chunk->set_crc32c(proto::Crc32c(request.payload().data(), request.payload().size()));
  return request;
}

v1::PushRequest FinishRequest(const std::vector<uint32_t>& missing) {
  v1::PushRequest request;
  request.mutable_finish();
  for (uint32_t id : missing) request.mutable_finish()->add_missing_parameters(id);
  return request;
}

grpc::Status PushTo(v1::ShardData::Stub& shard, const std::vector<v1::PushRequest>& requests,
                    std::vector<v1::PushResponse>* responses) {
  const std::unique_ptr<grpc::ClientContext> context = WithDeadline();
  const auto stream = shard.Push(context.get());
  for (const v1::PushRequest& request : requests) {
    if (!stream->Write(request)) break;
  }
  stream->WritesDone();
  v1::PushResponse response;
  while (stream->Read(&response)) {
    if (responses != nullptr) responses->push_back(response);
  }
  return stream->Finish();
}

ServedShardTest::ServedShardTest(uint32_t shm_sessions, std::shared_ptr<kernels::DeviceLink> link)
    : data_dir_(NewDirectory()) {
  v1::ShardConfig config;
  config.set_data_dir(data_dir_);
  config.set_host_memory_bytes(64 << 20);
  config.set_gemm("reference");
  if (ShardMemory::is_device()) config.set_device("fake:0");
  config.set_shm_sessions(shm_sessions);
  absl::StatusOr<std::unique_ptr<ShardServer>> server = ShardServer::Prepare(config);
  EXPECT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  if (link != nullptr) server_->UseLink(std::move(link));
  const absl::Status served = server_->Serve();
  EXPECT_TRUE(served.ok()) << served;
  channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()),
                                 grpc::InsecureChannelCredentials());
  data_ = v1::ShardData::NewStub(channel_);
  control_ = v1::ShardControl::NewStub(channel_);
}

v1::CoordinatorToShard ServedShardTest::PromiseOf(uint64_t counter) {
  v1::CoordinatorToShard message = Envelope(counter);
  message.mutable_promise();
  return message;
}

v1::CoordinatorToShard ServedShardTest::PlanOf(const v1::StepPlan& plan) {
  v1::CoordinatorToShard message = Envelope(plan.ballot().counter());
  *message.mutable_plan() = plan;
  return message;
}

v1::CoordinatorToShard ServedShardTest::DecisionOf(const v1::StepRecord& record) {
  v1::CoordinatorToShard message = Envelope(record.plan().ballot().counter());
  *message.mutable_decision() = record;
  return message;
}

v1::PushRequest ServedShardTest::OpenRequest(uint32_t rank, uint64_t step) {
  v1::PushRequest request;
  v1::PushOpen* open = request.mutable_open();
  open->set_job("gpt2");
  open->set_timeline(1);
  open->set_step(step);
  open->set_rank(rank);
  *open->mutable_attempt()->mutable_ballot() = MakeBallot(1);
  open->mutable_attempt()->set_number(rank + 1);
  return request;
}

v1::PullRequest ServedShardTest::PullOf(uint64_t step, const std::vector<uint32_t>& parameters) {
  v1::PullRequest request;
  request.set_job("gpt2");
  request.set_timeline(1);
  request.set_step(step);
  request.set_dtype(v1::DTYPE_FLOAT32);
  for (uint32_t id : parameters) request.add_parameter_ids(id);
  return request;
}

grpc::Status ServedShardTest::Pull(const v1::PullRequest& request,
                                   std::vector<v1::PullResponse>* responses) {
  const std::unique_ptr<grpc::ClientContext> context = WithDeadline();
  const auto stream = data_->Pull(context.get(), request);
  v1::PullResponse response;
  while (stream->Read(&response)) {
    if (responses != nullptr) responses->push_back(response);
  }
  return stream->Finish();
}

void ServedShardTest::PlanStepOne(uint64_t b_elements, uint32_t micro_batches,
                                  uint32_t num_shards) {
  v1::StepPlan registration = RegistrationPlan(1, 1);
  v1::RegisterBody& job = *registration.mutable_registration();
  job.mutable_definition()->mutable_parameters(1)->set_shape(0, b_elements);
  job.mutable_placement()->set_num_shards(num_shards);
  if (num_shards > 1) {
    v1::ParameterSpec g = job.definition().parameters(1);
    g.set_name("g");
    *job.mutable_definition()->add_parameters() = std::move(g);
    v1::ParameterPlacement elsewhere = job.placement().parameters(1);
    elsewhere.set_parameter_id(3);
    elsewhere.set_shard(1);
    *job.mutable_placement()->add_parameters() = std::move(elsewhere);
  }
  v1::StepPlan train = TrainPlan(1, 1, 1);
  train.mutable_step()->mutable_members(0)->set_micro_batches(micro_batches);
  coordinator_ = std::make_unique<ControlCall>(*control_, num_shards);
  ASSERT_TRUE(coordinator_->Ask(PromiseOf(1)).has_state());
  ASSERT_TRUE(coordinator_->Ask(PlanOf(registration)).has_prepared());
  ASSERT_TRUE(coordinator_->Ask(DecisionOf(Applying(registration))).has_applied());
  coordinator_->Send(PlanOf(LoadPlan(1, 1)));
  std::vector<v1::PushRequest> weights = {OpenRequest(0, 0), ChunkRequest(0, {1, 2, 3, 4, 5, 6})};
  for (uint64_t offset = 0; offset < b_elements; offset += kChunkElements) {
    const std::vector<float> values(std::min(b_elements - offset, kChunkElements),
                                    1 + offset / kChunkElements);
    weights.push_back(ChunkRequest(1, values, offset));
  }
  weights.push_back(ChunkRequest(2, std::vector<float>(5, 9)));
  weights.push_back(FinishRequest());
  grpc::Status status = Push(weights);
  // The plan travels on another stream.
  while (status.error_code() == grpc::StatusCode::UNAVAILABLE) status = Push(weights);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_TRUE(coordinator_->Receive().has_prepared());
  ASSERT_TRUE(coordinator_->Ask(DecisionOf(Applying(LoadPlan(1, 1)))).has_applied());
  coordinator_->Send(PlanOf(train));
  // Answered after the plan, which has no answer yet; a heartbeat may be answered before.
  ASSERT_TRUE(coordinator_->Ask(PromiseOf(1)).has_state());
}

v1::DescribeShardResponse ServedShardTest::Describe() {
  v1::DescribeShardResponse response;
  const grpc::Status status =
      control_->DescribeShard(WithDeadline().get(), v1::DescribeShardRequest(), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

std::string ServedShardTest::Health(const std::string& service) {
  const auto answer = admin_cli::CheckHealth(channel_, service, absl::Seconds(30));
  return answer.ok() ? *answer : answer.status().ToString();
}

}  // namespace kaon::shard
