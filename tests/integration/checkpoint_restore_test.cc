// One checkpoint, restored onto different numbers of real servers: the same weights and state, and
// the same bits after the same steps (protocol.md section 6).
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/train/service_session.h"
#include "client/train/stop_gate.h"
#include "client/train/tensor_buffers.h"
#include "job/definition.h"
#include "kaon/v1/admin.grpc.pb.h"
#include "kernels/mutex.h"
#include "kernels/reduce/digest.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/import.h"
#include "server/checkpoint/safetensors/safetensors_writer.h"
#include "server/disk/posix_directory.h"
#include "tests/integration/job_parts.h"
#include "tests/integration/trained_job.h"
#include "tests/testing/in_process_cluster.h"

namespace kaon::testing {
namespace {

v1::JobDefinition SmallJob() {
  v1::JobDefinition job;
  job.set_name("small");
  job.set_world_size(1);
  job.set_max_grad_norm(1);
  AddGroup(job, "matrices", v1::RULE_MUON, 0.02).set_momentum_dtype(v1::STATE_DTYPE_INT8);
  AddGroup(job, "scalars", v1::RULE_ADAMW, 0.01);
  job.set_matrix_group("matrices");
  job.set_scalar_group("scalars");
  for (int i = 0; i < 4; ++i) {
    AddParameter(job, absl::StrCat("layer", i, ".weight"), {40, 24});
    AddParameter(job, absl::StrCat("layer", i, ".bias"), {50});
  }
  return job;
}

struct Digests {
  uint64_t weights = 0;
  // State digest without the position.
  uint64_t state = 0;

  friend bool operator==(const Digests& a, const Digests& b) {
    return a.weights == b.weights && a.state == b.state;
  }
};

class CheckpointRestoreTest : public ::testing::Test {
 protected:
  CheckpointRestoreTest() {
    checkpoint_dir_ = ::testing::TempDir() + "/checkpoints.XXXXXX";
    EXPECT_NE(mkdtemp(checkpoint_dir_.data()), nullptr);
    files_ = disk::PosixDirectory::At(checkpoint_dir_).value();
    Import();
  }

  // Checkpoint "start": the drawn weights, through a file as another program would write it.
  void Import() {
    const v1::JobDefinition job = SmallJob();
    std::vector<checkpoint::Tensor> tensors;
    std::map<std::string, uint32_t> id_of;
    for (int id = 0; id < job.parameters_size(); ++id) {
      checkpoint::Tensor& tensor = tensors.emplace_back();
      tensor.name = job.parameters(id).name();
      tensor.shape.assign(job.parameters(id).shape().begin(), job.parameters(id).shape().end());
      id_of[tensor.name] = static_cast<uint32_t>(id);
    }
    const auto writer = checkpoint::SafetensorsWriter::Create(files_->Create("weights").value(), {},
                                                              std::move(tensors))
                            .value();
    for (const checkpoint::Tensor& tensor : writer->tensors()) {
      const std::vector<float> values = DrawTensor(job, id_of.at(tensor.name), 1000);
      ASSERT_TRUE(writer
                      ->Append({reinterpret_cast<const char*>(values.data()),
                                values.size() * sizeof(float)})
                      .ok());
    }
    ASSERT_TRUE(writer->Finish().ok());
    checkpoint::CheckpointDirectory directory(*files_);
    const auto file = files_->Open("weights").value();
    const auto manifest = checkpoint::ImportWeights(*file, job, "start", directory);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    start_ = *manifest;
  }

  static std::unique_ptr<v1::Admin::Stub> AdminOf(const InProcessCluster& cluster) {
    return v1::Admin::NewStub(
        grpc::CreateChannel(cluster.coordinator_address(), grpc::InsecureChannelCredentials()));
  }

  static v1::RestoreCheckpointResponse Restore(const InProcessCluster& cluster,
                                               const v1::RestoreCheckpointRequest& request,
                                               grpc::Status* status) {
    const auto stub = AdminOf(cluster);
    v1::RestoreCheckpointResponse response;
    do {
      // A coordinator holds no shards in its first moments.
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      *status = stub->RestoreCheckpoint(&context, request, &response);
    } while (status->error_code() == grpc::StatusCode::UNAVAILABLE);
    return response;
  }

  static Digests DigestsOf(const InProcessCluster& cluster, int num_parameters) {
    const auto stub = AdminOf(cluster);
    grpc::ClientContext context;
    v1::GetStatusResponse status;
    EXPECT_TRUE(stub->GetStatus(&context, {}, &status).ok());
    Digests digests;
    for (const v1::ShardStatus& shard : status.shards()) {
      digests.weights += shard.description().weights_digest();
      digests.state += shard.description().state_digest();
      for (const v1::ParameterState& parameter : shard.description().parameters()) {
        --num_parameters;
        digests.state -= kernels::FactDigest(parameter.parameter_id(), kernels::kPositionSlot,
                                             shard.description().state().applied_position());
      }
    }
    EXPECT_EQ(num_parameters, 0);
    return digests;
  }

  // `steps` more of the only rank.
  static void Train(Job& job, Worker& worker, uint64_t first, uint64_t steps) {
    const v1::JobDefinition definition = SmallJob();
    for (uint64_t number = first; number < first + steps; ++number) {
      BeginOptions begin;
      begin.step = number;
      Result<Step> step = worker.Begin(begin);
      ASSERT_TRUE(step.ok()) << step.status().ToString();
      std::vector<std::vector<float>> gradients;
      for (int id = 0; id < definition.parameters_size(); ++id) {
        gradients.push_back(DrawTensor(definition, static_cast<uint32_t>(id), number));
        static_cast<void>(
            step->Push(static_cast<uint32_t>(id),
                       {gradients.back().data(), gradients.back().size(), DType::kFloat32}));
      }
      const Result<StepRecord> record = step->Finish().Get();
      ASSERT_TRUE(record.ok()) << record.status().ToString();
      // All of them: from every shard, so that it has applied the step.
      std::vector<std::vector<float>> pulled = gradients;
      std::vector<PullTarget> targets;
      for (uint32_t id = 0; id < pulled.size(); ++id) {
        targets.push_back({id, {pulled[id].data(), pulled[id].size(), DType::kFloat32}});
      }
      ASSERT_TRUE(job.Pull(number, targets).Get().ok());
    }
  }

  std::string checkpoint_dir_;
  std::unique_ptr<disk::PosixDirectory> files_;
  v1::CheckpointManifest start_;
};

TEST_F(CheckpointRestoreTest, AnyNumberOfShardsGivesTheSameDigestsAndGoesOnToTheSameBits) {
  std::optional<Digests> trained;
  for (const int num_shards : {1, 2, 3, 5}) {
    SCOPED_TRACE(num_shards);
    InProcessCluster cluster(num_shards, checkpoint_dir_);
    grpc::Status status;
    const v1::RestoreCheckpointResponse restored = Restore(cluster, {}, &status);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(restored.checkpoint().id(), "start");
    EXPECT_EQ(restored.timeline(), 2u);
    EXPECT_EQ(restored.position(), 1u);
    const int num_parameters = SmallJob().parameters_size();
    const Digests at_start = DigestsOf(cluster, num_parameters);
    EXPECT_EQ(at_start.weights, start_.weights_digest());
    uint64_t expected = start_.state_digest();
    for (int id = 0; id < num_parameters; ++id) {
      expected -=
          kernels::FactDigest(static_cast<uint32_t>(id), kernels::kPositionSlot, start_.position());
    }
    EXPECT_EQ(at_start.state, expected);

    Client client = cluster.Connect();
    Result<Job> job = client.Attach("small");
    ASSERT_TRUE(job.ok()) << job.status().ToString();
    EXPECT_TRUE(job->description().weights_loaded);
    Result<Worker> worker = job->Join(0);
    ASSERT_TRUE(worker.ok()) << worker.status().ToString();
    Train(*job, *worker, 1, 3);
    const Digests now = DigestsOf(cluster, num_parameters);
    EXPECT_TRUE(now == trained.value_or(now));
    trained = now;
  }
}

// The same of one that three shards wrote in the middle of training, with momentum in int8 and both
// moments of Adam.
TEST_F(CheckpointRestoreTest, TrainedStateRestoresOntoAnyNumberOfShards) {
  const int num_parameters = SmallJob().parameters_size();
  v1::RestoreCheckpointRequest request;
  grpc::Status status;
  Digests at_checkpoint;
  Digests undisturbed;
  {
    InProcessCluster cluster(3, checkpoint_dir_);
    Restore(cluster, request, &status);
    ASSERT_TRUE(status.ok()) << status.error_message();
    Client client = cluster.Connect();
    Result<Job> job = client.Attach("small");
    ASSERT_TRUE(job.ok()) << job.status().ToString();
    Result<Worker> worker = job->Join(0);
    ASSERT_TRUE(worker.ok()) << worker.status().ToString();
    Train(*job, *worker, 1, 3);
    at_checkpoint = DigestsOf(cluster, num_parameters);
    v1::CreateCheckpointRequest create;
    create.set_id("trained");
    v1::CreateCheckpointResponse created;
    grpc::ClientContext context;
    status = AdminOf(cluster)->CreateCheckpoint(&context, create, &created);
    ASSERT_TRUE(status.ok()) << status.error_message();
    Train(*job, *worker, 4, 2);
    undisturbed = DigestsOf(cluster, num_parameters);
  }
  ASSERT_FALSE(at_checkpoint == undisturbed);
  request.set_id("trained");
  for (const int num_shards : {1, 2, 3, 5}) {
    SCOPED_TRACE(num_shards);
    InProcessCluster cluster(num_shards, checkpoint_dir_);
    Restore(cluster, request, &status);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_TRUE(DigestsOf(cluster, num_parameters) == at_checkpoint);
    Client client = cluster.Connect();
    Result<Job> job = client.Attach("small");
    ASSERT_TRUE(job.ok()) << job.status().ToString();
    Result<Worker> worker = job->Join(0);
    ASSERT_TRUE(worker.ok()) << worker.status().ToString();
    Train(*job, *worker, 4, 2);
    EXPECT_TRUE(DigestsOf(cluster, num_parameters) == undisturbed);
  }
}

// ClientOptions::on_rewind: before the step ends, from a Refresh too, once for each job object.
TEST_F(CheckpointRestoreTest, WorkersAreToldOfTheNewTimelineBeforeTheirStepEnds) {
  InProcessCluster cluster(2, checkpoint_dir_);
  grpc::Status status;
  v1::RestoreCheckpointRequest request;
  Restore(cluster, request, &status);
  ASSERT_TRUE(status.ok()) << status.error_message();
  Mutex mu;
  std::vector<std::pair<uint64_t, uint64_t>> heard;
  ClientOptions options;
  options.on_rewind = [&](uint64_t timeline, uint64_t step) {
    MutexLock lock(mu);
    heard.emplace_back(timeline, step);
  };
  const auto take_heard = [&] {
    MutexLock lock(mu);
    return std::exchange(heard, {});
  };
  Client client = cluster.Connect(options);
  Result<Job> job = client.Attach("small");
  Result<Job> other = client.Attach("small");
  ASSERT_TRUE(job.ok() && other.ok());
  Result<Worker> worker = job->Join(0);
  ASSERT_TRUE(worker.ok()) << worker.status().ToString();
  Train(*job, *worker, 1, 2);

  const std::vector<float> bias = DrawTensor(SmallJob(), 1, 3);
  BeginOptions begin;
  begin.step = 3;
  Result<Step> step = worker->Begin(begin);
  ASSERT_TRUE(step.ok()) << step.status().ToString();
  ASSERT_TRUE(step->Push(1, {bias.data(), bias.size(), DType::kFloat32}).Get().ok());
  FinishOptions finish;
  for (int id = 0; id < SmallJob().parameters_size(); ++id) {
    if (id != 1) finish.missing_parameters.push_back(static_cast<uint32_t>(id));
  }
  EXPECT_TRUE(take_heard().empty());
  request.set_id("start");
  request.set_job("small");
  request.set_expected_step(2);
  Restore(cluster, request, &status);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const Status ended = step->Finish(finish).Get().status();
  EXPECT_EQ(ended.code(), StatusCode::kFailedPrecondition) << ended.ToString();
  const std::vector<std::pair<uint64_t, uint64_t>> expected = {{3, 0}};
  EXPECT_EQ(take_heard(), expected);
  ASSERT_TRUE(job->Refresh().ok());
  EXPECT_TRUE(take_heard().empty());
  ASSERT_TRUE(other->Refresh().ok());
  EXPECT_EQ(take_heard(), expected);

  // The job continues from there, and is restored once more while no step is open.
  Train(*job, *worker, 1, 1);
  request.set_expected_step(1);
  Restore(cluster, request, &status);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(take_heard().empty());
  ASSERT_TRUE(job->Refresh().ok());
  EXPECT_EQ(take_heard(), (std::vector<std::pair<uint64_t, uint64_t>>{{4, 0}}));
  // The job object has heard of it, perhaps from another rank of the process; this rank has not.
  begin.step = 2;
  step = worker->Begin(begin);
  ASSERT_TRUE(step.ok()) << step.status().ToString();
  finish.missing_parameters.push_back(1);
  EXPECT_EQ(step->Finish(finish).Get().status().code(), StatusCode::kFailedPrecondition);
  Train(*job, *worker, 1, 1);
  EXPECT_TRUE(take_heard().empty());
}

// The trainer has multiplied its loss by the scale of the old timeline. The step must not count.
TEST_F(CheckpointRestoreTest, AWorkerTakesTheLossScaleOfATimelineThatItsJobHeardOf) {
  v1::JobDefinition definition = SmallJob();
  definition.mutable_loss_scaler()->set_dynamic(true);
  definition.mutable_loss_scaler()->set_initial_scale(4);
  definition.mutable_loss_scaler()->set_growth_interval(1);
  checkpoint::CheckpointDirectory directory(*files_);
  const auto file = files_->Open("weights").value();
  ASSERT_TRUE(checkpoint::ImportWeights(*file, definition, "scaled", directory).ok());
  InProcessCluster cluster(2, checkpoint_dir_);
  grpc::Status status;
  v1::RestoreCheckpointRequest request;
  request.set_id("scaled");
  Restore(cluster, request, &status);
  ASSERT_TRUE(status.ok()) << status.error_message();
  Client client = cluster.Connect();
  Result<Job> job = client.Attach("small");
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  Result<Worker> worker = job->Join(0);
  ASSERT_TRUE(worker.ok()) << worker.status().ToString();
  EXPECT_EQ(worker->loss_scale(), 4);
  Train(*job, *worker, 1, 2);
  EXPECT_GT(worker->loss_scale(), 4);

  request.set_job("small");
  request.set_expected_step(2);
  Restore(cluster, request, &status);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_TRUE(job->Refresh().ok());
  BeginOptions begin;
  begin.step = 1;
  Result<Step> step = worker->Begin(begin);
  ASSERT_TRUE(step.ok()) << step.status().ToString();
  FinishOptions finish;
  for (uint32_t id = 0; id < SmallJob().parameters_size(); ++id) {
    finish.missing_parameters.push_back(id);
  }
  EXPECT_EQ(step->Finish(finish).Get().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(worker->loss_scale(), 4);
  Train(*job, *worker, 1, 1);
}

// The job of the session hears of it before its worker does.
TEST_F(CheckpointRestoreTest, ATrainerFollowsARewindThatItsPullToldItOf) {
  InProcessCluster cluster(2, checkpoint_dir_);
  grpc::Status status;
  v1::RestoreCheckpointRequest request;
  Restore(cluster, request, &status);
  ASSERT_TRUE(status.ok()) << status.error_message();
  train::ServiceSessionOptions options;
  options.client.coordinators = {cluster.coordinator_address()};
  options.job = cluster.Connect().Attach("small")->description().definition;
  const std::atomic<bool> signalled{false};
  train::StopGate gate(signalled);
  auto session = train::ServiceSession::Create(options, gate);
  ASSERT_TRUE(session.ok()) << session.status();
  std::vector<std::vector<float>> tensors;
  for (int id = 0; id < SmallJob().parameters_size(); ++id) {
    tensors.push_back(DrawTensor(SmallJob(), static_cast<uint32_t>(id), 1));
  }
  train::TensorBuffers gradients;
  train::Encode(tensors, &gradients);
  train::TensorBuffers weights = gradients;
  train::StepContribution first;
  first.step = 1;
  first.gradients = &gradients;
  ASSERT_EQ((*session)->Start({}).value(), 0u);
  ASSERT_TRUE((*session)->Exchange(first).ok());
  request.set_id("start");
  request.set_job("small");
  request.set_expected_step(1);
  Restore(cluster, request, &status);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ((*session)->Pull(1, &weights).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*session)->TakeRewind(), 0u);
  EXPECT_TRUE((*session)->Pull(0, &weights).ok());
  const absl::StatusOr<train::StepOutcome> again = (*session)->Exchange(first);
  EXPECT_TRUE(again.ok()) << again.status();
}

TEST_F(CheckpointRestoreTest, RefusesWhatIsNotThereOrNotTheCallersStep) {
  InProcessCluster cluster(2, checkpoint_dir_);
  grpc::Status status;
  v1::RestoreCheckpointRequest request;
  request.set_id("absent");
  Restore(cluster, request, &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND) << status.error_message();
  request.set_id("start");
  Restore(cluster, request, &status);
  ASSERT_TRUE(status.ok()) << status.error_message();
  // A job runs now.
  Restore(cluster, request, &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  request.set_job("small");
  request.set_expected_step(4);
  Restore(cluster, request, &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_NE(status.error_message().find("expected_step is 4, the job is at step 0"),
            std::string::npos);
  request.set_expected_step(0);
  const v1::RestoreCheckpointResponse again = Restore(cluster, request, &status);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(again.timeline(), 3u);
}

}  // namespace
}  // namespace kaon::testing
