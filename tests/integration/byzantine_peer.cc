#include "tests/integration/byzantine_peer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "proto/crc32c.h"
#include "proto/grpc_status.h"
#include "proto/shm_link.h"
#include "tests/simulation/model.h"
#include "tests/testing/captured_log.h"

namespace kaon {

namespace {

using proto::ShmRecord;

constexpr uint64_t kStep = 1;
// Nonce of the gradients of the test's honest worker and its replay.
constexpr uint64_t kGradientNonce = 0;

std::unique_ptr<grpc::ClientContext> WithDeadline() {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  return context;
}

}  // namespace

ByzantinePeer::ByzantinePeer(const testing::InProcessCluster& cluster, v1::JobDefinition job)
    : job_(std::move(job)),
      shard_address_(cluster.shard_address(0)),
      shard_channel_(grpc::CreateChannel(shard_address_, grpc::InsecureChannelCredentials())),
      coordinator_(v1::Coordinator::NewStub(
          grpc::CreateChannel(cluster.coordinator_address(), grpc::InsecureChannelCredentials()))),
      data_(v1::ShardData::NewStub(shard_channel_)),
      control_(v1::ShardControl::NewStub(shard_channel_)) {}

grpc::Status ByzantinePeer::BeginHonestly() {
  const auto context = WithDeadline();
  v1::JoinWorkerResponse joined;
  grpc::Status status = coordinator_->JoinWorker(context.get(), JoinRequest(), &joined);
  if (!status.ok()) return status;
  attempt_ = joined.attempt();
  status = Begin(BeginRequest());
  if (!status.ok()) return status;
  const auto following = WithDeadline();
  const auto stream = coordinator_->AwaitStep(following.get(), AwaitRequest());
  v1::StepEvent event;
  const bool planned = stream->Read(&event) && event.has_planned();
  following->TryCancel();
  stream->Finish();
  return planned ? grpc::Status::OK : grpc::Status(grpc::StatusCode::INTERNAL, "no plan");
}

grpc::Status ByzantinePeer::PushHonestly() {
  std::vector<v1::PushRequest> requests = {Open()};
  for (int id = 0; id < job_.parameters_size(); ++id) {
    if (job_.parameters(id).frozen()) continue;
    for (uint32_t micro = 0; micro < BeginRequest().micro_batches(); ++micro) {
      requests.push_back(Chunk(id));
      requests.back().mutable_chunk()->set_micro_batch(micro);
    }
  }
  requests.push_back(Finish());
  return Push(requests);
}

v1::JoinWorkerRequest ByzantinePeer::JoinRequest() const {
  v1::JoinWorkerRequest request;
  request.set_job(job_.name());
  request.set_rank(kRank);
  request.set_process_nonce(kNonce);
  return request;
}

v1::BeginStepRequest ByzantinePeer::BeginRequest() const {
  v1::BeginStepRequest request;
  request.set_job(job_.name());
  request.set_rank(kRank);
  *request.mutable_attempt() = attempt_;
  request.set_process_nonce(kNonce);
  request.set_step(kStep);
  request.set_token_weight(simulation::Share(kRank, kStep).token_weight);
  request.set_micro_batches(simulation::Share(kRank, kStep).micro_batches);
  request.set_learning_rate_multiplier(1);
  return request;
}

v1::AwaitStepRequest ByzantinePeer::AwaitRequest() const {
  v1::AwaitStepRequest request;
  request.set_job(job_.name());
  request.set_rank(kRank);
  *request.mutable_attempt() = attempt_;
  request.set_step(kStep);
  return request;
}

v1::PushRequest ByzantinePeer::Open() const {
  v1::PushRequest request;
  v1::PushOpen& open = *request.mutable_open();
  open.set_job(job_.name());
  open.set_timeline(1);
  open.set_step(kStep);
  open.set_rank(kRank);
  *open.mutable_attempt() = attempt_;
  return request;
}

v1::PushRequest ByzantinePeer::Chunk(uint32_t parameter_id) const {
  const std::vector<float> gradient =
      simulation::Gradient(job_, parameter_id, kRank, kGradientNonce, kStep);
  v1::PushRequest request;
  v1::TensorChunk& chunk = *request.mutable_chunk();
  chunk.set_parameter_id(parameter_id);
  chunk.set_num_elements(gradient.size());
  chunk.set_dtype(v1::DTYPE_FLOAT32);
  return WithPayload(std::move(request), std::string(reinterpret_cast<const char*>(gradient.data()),
                                                     gradient.size() * sizeof(float)));
}

v1::PushRequest ByzantinePeer::Pieces(const std::vector<uint32_t>& parameter_ids) const {
  v1::PushRequest request;
  for (uint32_t id : parameter_ids) {
    const v1::PushRequest one = Chunk(id);
    *request.add_pieces() = one.chunk();
    *request.mutable_payload() += one.payload();
  }
  return request;
}

v1::PushRequest ByzantinePeer::WithPayload(v1::PushRequest request, std::string payload) {
  request.mutable_chunk()->set_crc32c(proto::Crc32c(payload.data(), payload.size()));
  request.set_payload(std::move(payload));
  return request;
}

v1::PushRequest ByzantinePeer::Finish() {
  v1::PushRequest request;
  request.mutable_finish();
  return request;
}

v1::PullRequest ByzantinePeer::PullRequest() const {
  v1::PullRequest request;
  request.set_job(job_.name());
  request.set_timeline(1);
  request.set_dtype(v1::DTYPE_FLOAT32);
  for (int id = 0; id < job_.parameters_size(); ++id) request.add_parameter_ids(id);
  return request;
}

grpc::Status ByzantinePeer::Register(const v1::JobDefinition& job) {
  v1::RegisterJobRequest request;
  *request.mutable_definition() = job;
  v1::JobDescription response;
  return coordinator_->RegisterJob(WithDeadline().get(), request, &response);
}

grpc::Status ByzantinePeer::GetJob(const std::string& job) {
  v1::GetJobRequest request;
  request.set_job(job);
  v1::JobDescription response;
  return coordinator_->GetJob(WithDeadline().get(), request, &response);
}

grpc::Status ByzantinePeer::Join(const v1::JoinWorkerRequest& request) {
  v1::JoinWorkerResponse response;
  return coordinator_->JoinWorker(WithDeadline().get(), request, &response);
}

grpc::Status ByzantinePeer::Begin(const v1::BeginStepRequest& request) {
  v1::BeginStepResponse response;
  return coordinator_->BeginStep(WithDeadline().get(), request, &response);
}

grpc::Status ByzantinePeer::Await(const v1::AwaitStepRequest& request) {
  const auto context = WithDeadline();
  const auto stream = coordinator_->AwaitStep(context.get(), request);
  v1::StepEvent event;
  while (stream->Read(&event)) {
  }
  return stream->Finish();
}

void ByzantinePeer::UseSharedMemory() { session_ = shard::ShmWorker::Connect(shard_channel_); }

grpc::Status ByzantinePeer::EndSession(
    const std::function<void(ByzantinePeer&, shard::ShmWorker&)>& send) {
  // The shard reports the reason only in its log, which is in this process.
  const testing::CapturedLog log;
  session_->Send(ShmRecord::kPushRequest, session_->next_call(), Open().SerializeAsString());
  send(*this, *session_);
  session_->IsEnded();
  session_ = shard::ShmWorker::Connect(shard_channel_);
  const std::string text = log.text();
  const size_t why = text.find("ended: INVALID_ARGUMENT: ");
  if (why == std::string::npos) return grpc::Status(grpc::StatusCode::UNKNOWN, text);
  return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, text.substr(why));
}

bool ByzantinePeer::IsServed() {
  return absl::IsInvalidArgument(session_->Push({v1::PushRequest()}));
}

grpc::Status ByzantinePeer::PushBody(const std::string& body) {
  session_->Send(ShmRecord::kPushRequest, session_->next_call(), body);
  const shard::ShmWorker::Record record = session_->Receive();
  return grpc::Status(static_cast<grpc::StatusCode>(record.header.code), record.body);
}

grpc::Status ByzantinePeer::Push(const std::vector<v1::PushRequest>& requests) {
  if (session_ != nullptr) return proto::ToGrpc(session_->Push(requests));
  const auto context = WithDeadline();
  const auto stream = data_->Push(context.get());
  for (const v1::PushRequest& request : requests) {
    if (!stream->Write(request)) break;
  }
  stream->WritesDone();
  v1::PushResponse response;
  while (stream->Read(&response)) {
  }
  return stream->Finish();
}

grpc::Status ByzantinePeer::PushAgainAndAgain(const v1::PushRequest& request, int times,
                                              int* sent) {
  const auto context = WithDeadline();
  const auto stream = data_->Push(context.get());
  *sent = 0;
  if (stream->Write(Open())) {
    while (*sent < times && stream->Write(request)) ++*sent;
  }
  stream->WritesDone();
  v1::PushResponse response;
  while (stream->Read(&response)) {
  }
  return stream->Finish();
}

grpc::Status ByzantinePeer::PushCompressed(const v1::PushRequest& request) {
  const auto context = WithDeadline();
  context->set_compression_algorithm(GRPC_COMPRESS_GZIP);
  const auto stream = data_->Push(context.get());
  stream->Write(request);
  v1::PushResponse response;
  while (stream->Read(&response)) {
  }
  return stream->Finish();
}

grpc::Status ByzantinePeer::PushWithMetadata(size_t bytes) {
  // Over a connection of its own: the shard may close it, and every other call on it would end.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto stub = v1::ShardData::NewStub(
      grpc::CreateCustomChannel(shard_address_, grpc::InsecureChannelCredentials(), arguments));
  const auto context = WithDeadline();
  context->AddMetadata("flood", std::string(bytes, 'x'));
  const auto stream = stub->Push(context.get());
  stream->Write(Open());
  v1::PushResponse response;
  while (stream->Read(&response)) {
  }
  return stream->Finish();
}

grpc::Status ByzantinePeer::Pull(const v1::PullRequest& request) {
  if (session_ != nullptr) return proto::ToGrpc(session_->Pull(request));
  const auto context = WithDeadline();
  const auto stream = data_->Pull(context.get(), request);
  v1::PullResponse response;
  while (stream->Read(&response)) {
  }
  return stream->Finish();
}

grpc::Status ByzantinePeer::CancelStorm(int streams) {
  for (int i = 0; i < streams; ++i) {
    if (session_ != nullptr) {
      session_->Send(ShmRecord::kPushRequest, session_->next_call(), Open().SerializeAsString());
      session_->Send(ShmRecord::kCancel, session_->call(), "");
      continue;
    }
    const auto context = WithDeadline();
    const auto stream = data_->Push(context.get());
    stream->Write(Open());
    context->TryCancel();
    const grpc::Status status = stream->Finish();
    if (status.error_code() != grpc::StatusCode::CANCELLED) return status;
  }
  if (session_ != nullptr && !IsServed()) return grpc::Status(grpc::StatusCode::UNKNOWN, "");
  return grpc::Status(grpc::StatusCode::CANCELLED, "all of them");
}

grpc::Status ByzantinePeer::PullWithoutReading() {
  if (session_ != nullptr) {
    session_->Send(ShmRecord::kPullRequest, session_->next_call(),
                   PullRequest().SerializeAsString());
    session_->Send(ShmRecord::kCancel, session_->call(), "");
    return IsServed() ? grpc::Status(grpc::StatusCode::CANCELLED, "")
                      : grpc::Status(grpc::StatusCode::UNKNOWN, "the session is not served");
  }
  const auto context = WithDeadline();
  const auto stream = data_->Pull(context.get(), PullRequest());
  context->TryCancel();
  return stream->Finish();
}

uint64_t ByzantinePeer::StateDigest() {
  v1::DescribeShardResponse response;
  const grpc::Status status = control_->DescribeShard(WithDeadline().get(), {}, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.state_digest();
}

}  // namespace kaon
