// Idle peers cost a bounded amount of memory and no step (T11, P17). They connect and stay silent,
// open streams and stay silent, or request weights and do not read them. An honest worker's steps
// commit meanwhile. Servers, idle peers and the worker are in this process, so its memory is an
// upper bound of the servers' memory.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/kaon/client.h"
#include "client/wire/job_conversion.h"
#include "kaon/v1/shard_data.grpc.pb.h"
#include "kernels/steady_clock.h"
#include "tests/testing/in_process_cluster.h"
#include "tests/testing/resident_memory.h"

namespace kaon::testing {
namespace {

constexpr int kStreamsOfAConnection = 250;
constexpr int kConnections = 16;
constexpr int kSilentConnections = 1000;
constexpr int kSlowReaders = 64;
// Of both ends of a stream.
constexpr uint64_t kBytesOfAStream = 64 << 10;
// Bytes at both ends of a pull that no caller reads: HTTP/2's windows, and the chunks in flight.
constexpr uint64_t kBytesOfASlowReader = 3 << 20;
// A step here needs milliseconds; a longer one was held up.
constexpr absl::Duration kStepLimit = absl::Seconds(10);
constexpr uint64_t kElements = 1 << 20;

v1::JobDefinition OneParameter() {
  v1::JobDefinition job;
  job.set_name("idle");
  job.set_world_size(1);
  v1::ParameterGroup& group = *job.add_groups();
  group.set_name("all");
  group.set_rule(v1::RULE_SGD);
  group.set_lr(0.01);
  job.set_matrix_group("all");
  job.set_scalar_group("all");
  v1::ParameterSpec& parameter = *job.add_parameters();
  parameter.set_name("weight");
  parameter.add_shape(kElements);
  parameter.set_dtype(v1::DTYPE_FLOAT32);
  return job;
}

class IdlePeersTest : public ::testing::Test {
 protected:
  IdlePeersTest() : cluster_(1), client_(cluster_.Connect()) {
    // Sockets of both ends.
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    v1::JobDescription description;
    *description.mutable_definition() = OneParameter();
    job_.emplace(client_.Register(client::FromProto(description).definition).value());
    worker_.emplace(job_->Join(0).value());
    EXPECT_TRUE(worker_->LoadWeights({View()}).Get().ok());
    // The first steps allocate memory that the idle peers must not be charged for.
    for (int i = 0; i < 3; ++i) Step();
  }

  TensorView View() const { return {values_.data(), values_.size(), DType::kFloat32}; }

  // Pushes, decides and pulls an honest step. Returns how long it took.
  absl::Duration Step() {
    const absl::Time start = SteadyNow();
    BeginOptions begin;
    begin.step = ++step_;
    Result<kaon::Step> step = worker_->Begin(begin);
    EXPECT_TRUE(step.ok()) << step.status().ToString();
    if (!step.ok()) return absl::InfiniteDuration();
    // Finish says what became of it.
    static_cast<void>(step->Push(0, View()));
    const Result<StepRecord> record = step->Finish().Get();
    EXPECT_TRUE(record.ok()) << record.status().ToString();
    std::vector<float> pulled(values_.size());
    const PullTarget target = {0, {pulled.data(), pulled.size(), DType::kFloat32}};
    EXPECT_TRUE(job_->Pull(step_, {target}).Get().ok());
    return SteadyNow() - start;
  }

  // Takes steps while the peers are connected. Bounds their time and the memory beyond `before`.
  void ExpectUndisturbed(const std::string& what, uint64_t before, uint64_t limit) {
    absl::Duration longest;
    for (int i = 0; i < 3; ++i) longest = std::max(longest, Step());
    const uint64_t now = ResidentBytes();
    std::cout << what << ": RSS " << (before >> 20) << " MiB before, " << (now >> 20)
              << " MiB beside them (limit " << ((before + limit) >> 20) << "), longest step "
              << longest << std::endl;
    EXPECT_LT(longest, kStepLimit) << what;
    if (!kSanitized) {
      EXPECT_LT(now, before + limit) << what;
    }
  }

  // A connection of its own.
  std::shared_ptr<grpc::Channel> Connect() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    // Bounds this end's buffers, whose memory is not the server's.
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64 << 10);
    return grpc::CreateCustomChannel(cluster_.shard_address(0), grpc::InsecureChannelCredentials(),
                                     arguments);
  }

  InProcessCluster cluster_;
  Client client_;
  std::optional<Job> job_;
  std::optional<Worker> worker_;
  std::vector<float> values_ = std::vector<float>(kElements, 0.25f);
  uint64_t step_ = 0;
};

TEST_F(IdlePeersTest, ConnectionsThatSayNothingHoldUpNoStep) {
  const uint64_t before = ResidentBytes();
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(60);
  for (int i = 0; i < kSilentConnections; ++i) {
    channels.push_back(Connect());
    ASSERT_TRUE(channels.back()->WaitForConnected(deadline)) << i;
  }
  ExpectUndisturbed(absl::StrCat(kSilentConnections, " idle connections"), before,
                    kSilentConnections * kBytesOfAStream * 4);
}

TEST_F(IdlePeersTest, StreamsThatSayNothingHoldUpNoStep) {
  const uint64_t before = ResidentBytes();
  // Streams before their contexts.
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<v1::ShardData::Stub>> stubs;
  std::vector<std::unique_ptr<grpc::ClientReaderWriter<v1::PushRequest, v1::PushResponse>>> streams;
  for (int i = 0; i < kConnections; ++i) {
    stubs.push_back(v1::ShardData::NewStub(Connect()));
    for (int j = 0; j < kStreamsOfAConnection; ++j) {
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      streams.push_back(stubs.back()->Push(contexts.back().get()));
    }
  }
  ExpectUndisturbed(absl::StrCat(streams.size(), " idle streams"), before,
                    streams.size() * kBytesOfAStream);
  for (const auto& context : contexts) context->TryCancel();
  for (const auto& stream : streams) {
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  ExpectUndisturbed("after them", before, streams.size() * kBytesOfAStream);
}

TEST_F(IdlePeersTest, PullsThatNobodyReadsHoldUpNoStep) {
  const uint64_t before = ResidentBytes();
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<v1::ShardData::Stub>> stubs;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::PullResponse>>> pulls;
  v1::PullRequest request;
  request.set_job("idle");
  request.set_timeline(1);
  request.set_step(step_);
  request.set_dtype(v1::DTYPE_FLOAT32);
  request.add_parameter_ids(0);
  for (int i = 0; i < kSlowReaders; ++i) {
    stubs.push_back(v1::ShardData::NewStub(Connect()));
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    pulls.push_back(stubs.back()->Pull(contexts.back().get(), request));
  }
  ExpectUndisturbed(absl::StrCat(kSlowReaders, " pulls that nobody reads"), before,
                    kSlowReaders * kBytesOfASlowReader);
  for (const auto& context : contexts) context->TryCancel();
  for (const auto& pull : pulls) EXPECT_FALSE(pull->Finish().ok());
  ExpectUndisturbed("after them", before, kSlowReaders * kBytesOfASlowReader);
}

}  // namespace
}  // namespace kaon::testing
