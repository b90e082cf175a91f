#include "tests/integration/trained_job.h"

#include <glog/logging.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "client/train/local_optimizer.h"
#include "client/train/tensor_buffers.h"
#include "job/definition.h"
#include "kaon/v1/admin.grpc.pb.h"
#include "kaon/v1/coordinator.grpc.pb.h"
#include "kaon/v1/shard_control.grpc.pb.h"
#include "kernels/backend.h"
#include "kernels/reduce/digest.h"
#include "tests/testing/in_process_cluster.h"

namespace kaon::testing {
namespace {

using Tensors = std::vector<std::vector<float>>;

// server/shard/parameters/parameter_store.cc: the position is in the digest, once per parameter.
constexpr uint32_t kPositionSlot = 1002;
constexpr double kTokenWeights[] = {1, 2, 4, 1};

Tensors InitialWeights(const v1::JobDefinition& job) {
  Tensors weights;
  for (int id = 0; id < job.parameters_size(); ++id) weights.push_back(DrawTensor(job, id, 1000));
  return weights;
}

void Scale(double factor, std::vector<float>& tensor) {
  for (float& value : tensor) value *= static_cast<float>(factor);
}

template <typename T>
T ValueOf(Result<T> result) {
  CHECK(result.ok()) << result.status().ToString();
  return std::move(result).value();
}

void Register(const InProcessCluster& cluster, const v1::JobDefinition& job) {
  const auto stub = v1::Coordinator::NewStub(
      grpc::CreateChannel(cluster.coordinator_address(), grpc::InsecureChannelCredentials()));
  v1::RegisterJobRequest request;
  *request.mutable_definition() = job;
  grpc::Status status(grpc::StatusCode::UNAVAILABLE, "not asked yet");
  // A coordinator holds no shards in its first moments.
  while (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    v1::JobDescription response;
    status = stub->RegisterJob(&context, request, &response);
  }
  CHECK(status.ok()) << status.error_message();
}

void AskAdmin(const InProcessCluster& cluster, TrainedJob& trained) {
  const auto stub = v1::Admin::NewStub(
      grpc::CreateChannel(cluster.coordinator_address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext of_status;
  grpc::Status asked = stub->GetStatus(&of_status, {}, &trained.status);
  CHECK(asked.ok()) << asked.error_message();
  grpc::ClientContext of_history;
  v1::StepHistoryRequest request;
  request.set_limit(1000);
  request.set_with_phases(true);
  asked = stub->StepHistory(&of_history, request, &trained.history);
  CHECK(asked.ok()) << asked.error_message();
}

uint64_t StateDigest(const InProcessCluster& cluster, const v1::JobDefinition& job,
                     int num_shards) {
  uint64_t digest = 0;
  uint64_t position = 0;
  for (int i = 0; i < num_shards; ++i) {
    const auto stub = v1::ShardControl::NewStub(
        grpc::CreateChannel(cluster.shard_address(i), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    v1::DescribeShardResponse response;
    const grpc::Status status = stub->DescribeShard(&context, {}, &response);
    CHECK(status.ok()) << status.error_message();
    digest += response.state_digest();
    // A shard without parameters may lag behind.
    position = std::max<uint64_t>(position, response.state().applied_position());
  }
  for (int id = 0; id < job.parameters_size(); ++id) {
    digest -= kernels::FactDigest(id, kPositionSlot, position);
  }
  return digest;
}

StepRecord TrainStep(const TrainingPlan& plan, Worker& worker, uint64_t number) {
  BeginOptions begin;
  begin.step = number;
  begin.token_weight = kTokenWeights[worker.rank()];
  begin.micro_batches = plan.micro_batches;
  FinishOptions finish;
  Tensors gradients;
  for (int id = 0; id < plan.job.parameters_size(); ++id) {
    gradients.push_back(plan.gradient(id, worker.rank(), number));
    Scale(worker.loss_scale() / plan.micro_batches, gradients.back());
  }
  Step step = ValueOf(worker.Begin(begin));
  for (int id = 0; id < plan.job.parameters_size(); ++id) {
    if (plan.job.parameters(id).frozen()) continue;
    if (gradients[id].empty()) {
      finish.missing_parameters.push_back(id);
      continue;
    }
    for (uint32_t micro = 0; micro < plan.micro_batches; ++micro) {
      static_cast<void>(
          step.Push(id, {gradients[id].data(), gradients[id].size(), DType::kFloat32}, micro));
    }
  }
  finish.loss = worker.rank();
  return ValueOf(step.Finish(finish).Get());
}

Worker JoinAndLoad(Job& job, const v1::JobDefinition& definition, uint32_t rank) {
  Worker worker = ValueOf(job.Join(rank));
  if (rank > 0) return worker;
  const Tensors weights = InitialWeights(definition);
  std::vector<TensorView> views;
  for (const std::vector<float>& tensor : weights) {
    views.push_back({tensor.data(), tensor.size(), DType::kFloat32});
  }
  ValueOf(worker.LoadWeights(views).Get());
  return worker;
}

Tensors Pull(Job& job, const v1::JobDefinition& definition, uint64_t step) {
  Tensors weights;
  for (const v1::ParameterSpec& parameter : definition.parameters()) {
    weights.emplace_back(job::NumElements(parameter));
  }
  std::vector<PullTarget> targets;
  for (uint32_t id = 0; id < weights.size(); ++id) {
    targets.push_back({id, {weights[id].data(), weights[id].size(), DType::kFloat32}});
  }
  ValueOf(job.Pull(step, targets).Get());
  return weights;
}

}  // namespace

std::vector<float> DrawTensor(const v1::JobDefinition& job, uint32_t parameter_id, uint64_t seed) {
  const std::string& original = job.parameters(static_cast<int>(parameter_id)).tied_to();
  for (int id = 0; id < job.parameters_size(); ++id) {
    if (job.parameters(id).name() == original) parameter_id = static_cast<uint32_t>(id);
  }
  std::seed_seq mixed{uint64_t{parameter_id}, seed};
  std::mt19937 random(mixed);
  std::vector<float> values(job::NumElements(job.parameters(static_cast<int>(parameter_id))));
  for (float& value : values) {
    value = static_cast<float>(static_cast<int64_t>(random() % 2001) - 1000) / 256.0f;
  }
  return values;
}

TrainedJob TrainOnShards(const TrainingPlan& plan, int num_shards) {
  InProcessCluster cluster(num_shards);
  Register(cluster, plan.job);
  TrainedJob trained;
  Client client = cluster.Connect();
  Job job = ValueOf(client.Attach(plan.job.name()));
  std::vector<Worker> workers;
  for (uint32_t rank = 0; rank < plan.job.world_size(); ++rank) {
    workers.push_back(JoinAndLoad(job, plan.job, rank));
  }
  Pull(job, plan.job, 0);
  for (uint64_t step = 1; step <= plan.steps; ++step) {
    std::vector<StepRecord> records(workers.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < workers.size(); ++rank) {
      threads.emplace_back([&, rank] { records[rank] = TrainStep(plan, workers[rank], step); });
    }
    for (std::thread& thread : threads) thread.join();
    trained.records.push_back(records[0]);
    // A version is complete on every shard once it can be pulled.
    trained.weights = Pull(job, plan.job, step);
    trained.state_digests.push_back(StateDigest(cluster, plan.job, num_shards));
  }
  AskAdmin(cluster, trained);
  return trained;
}

TrainedJob TrainWithoutServers(const TrainingPlan& plan) {
  kernels::BackendOptions options;
  options.gemm = "reference";
  auto optimizer = train::LocalOptimizer::Create(plan.job, *kernels::CreateBackend(options),
                                                 InitialWeights(plan.job));
  CHECK(optimizer.ok()) << optimizer.status();
  TrainedJob trained;
  for (uint64_t step = 1; step <= plan.steps; ++step) {
    const uint32_t world_size = plan.job.world_size();
    std::vector<train::TensorBuffers> buffers(world_size);
    std::vector<train::StepContribution> contributions(world_size);
    for (uint32_t rank = 0; rank < world_size; ++rank) {
      Tensors gradients;
      for (int id = 0; id < plan.job.parameters_size(); ++id) {
        gradients.push_back(plan.gradient(id, rank, step));
        Scale(optimizer->loss_scale(), gradients.back());
        if (gradients.back().empty()) contributions[rank].missing_parameters.push_back(id);
      }
      train::Encode(gradients, &buffers[rank]);
      contributions[rank].step = step;
      contributions[rank].token_weight = kTokenWeights[rank];
      contributions[rank].loss = rank;
      contributions[rank].gradients = &buffers[rank];
    }
    trained.records.push_back(optimizer->Step(contributions));
  }
  trained.weights = optimizer->weights();
  return trained;
}

}  // namespace kaon::testing
