#include "tests/testing/fake_cluster.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kaon/v1/coordinator.grpc.pb.h"
#include "kaon/v1/shard_data.grpc.pb.h"
#include "proto/crc32c.h"
#include "proto/grpc_status.h"

namespace kaon::testing {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(5);

uint64_t NumElements(const v1::ParameterSpec& parameter) {
  uint64_t elements = 1;
  for (uint64_t dimension : parameter.shape()) elements *= dimension;
  return elements;
}

}  // namespace

class FakeCluster::CoordinatorService : public v1::Coordinator::Service {
 public:
  explicit CoordinatorService(FakeCluster& cluster) : cluster_(cluster) {}

  grpc::Status RegisterJob(grpc::ServerContext* context, const v1::RegisterJobRequest* request,
                           v1::JobDescription* response) override {
    MutexLock lock(cluster_.mu_);
    if (Redirects(*context)) return NotTheHolder();
    cluster_.state_.job = request->definition();
    *response = cluster_.DescribeLocked();
    return grpc::Status::OK;
  }

  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                      v1::JobDescription* response) override {
    MutexLock lock(cluster_.mu_);
    if (Redirects(*context)) return NotTheHolder();
    State& state = cluster_.state_;
    if (!state.job.has_value() || state.job->name() != request->job()) {
      return grpc::Status(grpc::StatusCode::NOT_FOUND, "no job " + request->job());
    }
    *response = cluster_.DescribeLocked();
    return grpc::Status::OK;
  }

  grpc::Status JoinWorker(grpc::ServerContext* context, const v1::JoinWorkerRequest* request,
                          v1::JoinWorkerResponse* response) override {
    MutexLock lock(cluster_.mu_);
    if (Redirects(*context)) return NotTheHolder();
    State& state = cluster_.state_;
    if (state.job.has_value() && request->rank() >= state.job->world_size()) {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                          absl::StrCat("rank is ", request->rank(), ", must be 0 .. ",
                                       state.job->world_size() - 1));
    }
    v1::Attempt attempt;
    attempt.mutable_ballot()->set_counter(1);
    attempt.set_number(++state.joins);
    *response->mutable_attempt() =
        request->has_previous_attempt() ? request->previous_attempt() : attempt;
    response->set_process_nonce(request->process_nonce());
    response->set_timeline(1);
    response->set_applied_step(state.applied_step);
    response->set_weights_loaded(state.weights_loaded);
    return grpc::Status::OK;
  }

  grpc::Status BeginStep(grpc::ServerContext* context, const v1::BeginStepRequest* request,
                         v1::BeginStepResponse*) override {
    MutexLock lock(cluster_.mu_);
    if (Redirects(*context)) return NotTheHolder();
    State& state = cluster_.state_;
    state.finished = false;
    // Keeps the chunks that the same attempt has pushed for the step, as a shard does.
    const std::string begun =
        absl::StrCat(request->step(), "/", request->attempt().SerializeAsString());
    if (begun != state.begun) state.contributions.clear();
    state.begun = begun;
    return grpc::Status::OK;
  }

  grpc::Status AwaitStep(grpc::ServerContext* context, const v1::AwaitStepRequest* request,
                         grpc::ServerWriter<v1::StepEvent>* writer) override {
    v1::StepEvent planned;
    planned.mutable_planned()->mutable_ballot()->set_counter(1);
    planned.mutable_planned()->set_round(1);
    writer->Write(planned);
    v1::StepEvent decided;
    {
      MutexLock lock(cluster_.mu_);
      State& state = cluster_.state_;
      while (!state.finished || state.hold_decisions) {
        if (context->IsCancelled() || state.stopping) return grpc::Status::CANCELLED;
        cluster_.changed_.WaitFor(cluster_.mu_, kPoll);
      }
      v1::StepRecord& record = *decided.mutable_decided();
      v1::StepBody& step = *record.mutable_plan()->mutable_step();
      step.set_step(request->step());
      step.set_kind(request->step() == 0 ? v1::STEP_KIND_LOAD_WEIGHTS : v1::STEP_KIND_TRAIN);
      record.mutable_decision()->set_outcome(state.outcome);
      record.mutable_decision()->set_reason(state.reason);
      record.mutable_decision()->set_grad_norm(2.5);
      state.applied_step = request->step();
      state.weights_loaded = true;
    }
    writer->Write(decided);
    return grpc::Status::OK;
  }

 private:
  bool Redirects(grpc::ServerContext& context) ABSL_EXCLUSIVE_LOCKS_REQUIRED(cluster_.mu_) {
    if (cluster_.state_.redirect.empty()) return false;
    context.AddTrailingMetadata("kaon-holder", cluster_.state_.redirect);
    return true;
  }
  static grpc::Status NotTheHolder() {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "not the holder");
  }

  FakeCluster& cluster_;
};

class FakeCluster::ShardService : public v1::ShardData::Service {
 public:
  explicit ShardService(FakeCluster& cluster) : cluster_(cluster) {}

  grpc::Status Push(grpc::ServerContext* context,
                    grpc::ServerReaderWriter<v1::PushResponse, v1::PushRequest>* stream) override {
    v1::PushRequest request;
    if (!stream->Read(&request)) return grpc::Status::CANCELLED;
    uint64_t window = 0;
    std::string begun;
    v1::PushResponse response;
    {
      MutexLock lock(cluster_.mu_);
      State& state = cluster_.state_;
      ++state.num_pushes;
      cluster_.changed_.NotifyAll();
      if (state.failing_pushes > 0) {
        --state.failing_pushes;
        return proto::ToGrpc(state.push_failure);
      }
      window = state.credit_window;
      begun = state.begun;
      for (const auto& [key, bytes] : state.contributions) {
        v1::ReceivedChunks& received = *response.mutable_opened()->add_received();
        received.set_parameter_id(key.first);
        received.set_micro_batch(key.second);
        received.set_num_elements(bytes.size() / 4);
      }
    }
    response.mutable_opened()->set_credit_bytes(window);
    stream->Write(response);
    uint64_t uncredited = 0;
    while (stream->Read(&request)) {
      if (request.has_finish()) {
        MutexLock lock(cluster_.mu_);
        if (cluster_.state_.begun != begun) return Reopened();
        cluster_.state_.finishes.push_back(request.finish());
        cluster_.state_.finished = true;
        cluster_.changed_.NotifyAll();
        response.mutable_finished();
        stream->Write(response);
        return grpc::Status::OK;
      }
      uncredited += request.payload().size();
      if (uncredited > window) {
        return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "more than the credit");
      }
      const grpc::Status taken = Take(request, begun);
      if (!taken.ok()) return taken;
      if (!MayCredit(*context)) continue;
      response.set_credit_bytes(uncredited);
      stream->Write(response);
      uncredited = 0;
    }
    return grpc::Status::CANCELLED;
  }

  grpc::Status Pull(grpc::ServerContext* context, const v1::PullRequest* request,
                    grpc::ServerWriter<v1::PullResponse>* writer) override {
    bool corrupt = false;
    float weight = 0;
    std::vector<uint64_t> num_elements;
    {
      MutexLock lock(cluster_.mu_);
      State& state = cluster_.state_;
      if (state.failing_pulls > 0) {
        --state.failing_pulls;
        return state.pull_failure;
      }
      while (state.hold_pulls) {
        if (context->IsCancelled() || state.stopping) return grpc::Status::CANCELLED;
        cluster_.changed_.WaitFor(cluster_.mu_, kPoll);
      }
      corrupt = state.corrupt_pulls;
      weight = state.weight;
      for (uint32_t id : request->parameter_ids()) {
        num_elements.push_back(NumElements(state.job->parameters(id)));
      }
    }
    for (int i = 0; i < request->parameter_ids_size(); ++i) {
      for (uint64_t offset = 0; offset < num_elements[i]; offset += kChunkElements) {
        const uint64_t count = std::min<uint64_t>(kChunkElements, num_elements[i] - offset);
        const std::vector<float> values(count, weight);
        v1::PullResponse response;
        response.set_payload(values.data(), count * 4);
        v1::TensorChunk& chunk = *response.mutable_chunk();
        chunk.set_parameter_id(request->parameter_ids(i));
        chunk.set_offset(offset);
        chunk.set_num_elements(count);
        chunk.set_dtype(v1::DTYPE_FLOAT32);
        chunk.set_crc32c(proto::Crc32c(values.data(), count * 4) + (corrupt ? 1 : 0));
        writer->Write(response);
      }
    }
    return grpc::Status::OK;
  }

 private:
  static constexpr uint64_t kChunkElements = 1000;

  static grpc::Status Reopened() { return grpc::Status(grpc::StatusCode::ABORTED, "reopened"); }

  grpc::Status Take(const v1::PushRequest& request, const std::string& begun) {
    absl::string_view payload = request.payload();
    if (request.has_chunk()) return TakeChunk(request.chunk(), payload, begun);
    for (const v1::TensorChunk& piece : request.pieces()) {
      const absl::string_view bytes = payload.substr(0, piece.num_elements() * SizeOf(piece));
      const grpc::Status taken = TakeChunk(piece, bytes, begun);
      if (!taken.ok()) return taken;
      payload.remove_prefix(bytes.size());
    }
    return grpc::Status::OK;
  }

  static uint64_t SizeOf(const v1::TensorChunk& chunk) {
    return chunk.dtype() == v1::DTYPE_FLOAT32 ? 4 : 2;
  }

  grpc::Status TakeChunk(const v1::TensorChunk& chunk, absl::string_view payload,
                         const std::string& begun) {
    if (proto::Crc32c(payload.data(), payload.size()) != chunk.crc32c()) {
      return grpc::Status(grpc::StatusCode::DATA_LOSS, "checksum");
    }
    MutexLock lock(cluster_.mu_);
    if (cluster_.state_.begun != begun) return Reopened();
    std::string& bytes = cluster_.state_.contributions[{chunk.parameter_id(), chunk.micro_batch()}];
    if (chunk.offset() * SizeOf(chunk) != bytes.size()) {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                          absl::StrCat("offset ", chunk.offset(), " after ", bytes.size()));
    }
    bytes.append(payload.data(), payload.size());
    cluster_.state_.received_bytes += payload.size();
    cluster_.changed_.NotifyAll();
    return grpc::Status::OK;
  }

  bool MayCredit(grpc::ServerContext& context) {
    MutexLock lock(cluster_.mu_);
    // Chunks are half a window, so the client can send no more while this one waits.
    State& state = cluster_.state_;
    if (!state.hold_credits) return true;
    if (state.received_bytes < state.credit_window) return false;
    while (state.hold_credits) {
      if (context.IsCancelled() || state.stopping) return false;
      cluster_.changed_.WaitFor(cluster_.mu_, kPoll);
    }
    return true;
  }

  FakeCluster& cluster_;
};

struct FakeCluster::Server {
  explicit Server(FakeCluster& cluster) : coordinator(cluster), shard(cluster) {}

  CoordinatorService coordinator;
  ShardService shard;
  std::unique_ptr<grpc::Server> server;
};

FakeCluster::FakeCluster() : server_(std::make_unique<Server>(*this)) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&server_->coordinator);
  builder.RegisterService(&server_->shard);
  server_->server = builder.BuildAndStart();
  server_->server->GetHealthCheckService()->SetServingStatus(v1::Coordinator::service_full_name(),
                                                             true);
  address_ = absl::StrCat("127.0.0.1:", port);
}

FakeCluster::~FakeCluster() {
  Change([](State& state) { state.stopping = true; });
  server_->server->Shutdown();
  server_->server->Wait();
}

v1::JobDescription FakeCluster::DescribeLocked() const {
  v1::JobDescription description;
  *description.mutable_definition() = *state_.job;
  for (int id = 0; id < state_.job->parameters_size(); ++id) {
    v1::ParameterPlacement& placement = *description.mutable_placement()->add_parameters();
    placement.set_parameter_id(id);
    placement.set_group("scalars");
  }
  description.mutable_placement()->set_num_shards(1);
  description.set_timeline(1);
  description.set_applied_step(state_.applied_step);
  description.set_weights_loaded(state_.weights_loaded);
  description.add_shard_addresses(address_);
  return description;
}

void FakeCluster::Change(const std::function<void(State&)>& change) {
  MutexLock lock(mu_);
  change(state_);
  changed_.NotifyAll();
}

void FakeCluster::SetCreditWindow(uint64_t bytes) {
  Change([bytes](State& state) { state.credit_window = bytes; });
}
void FakeCluster::HoldCredits(bool hold) {
  Change([hold](State& state) { state.hold_credits = hold; });
}
void FakeCluster::HoldDecisions(bool hold) {
  Change([hold](State& state) { state.hold_decisions = hold; });
}
void FakeCluster::FailPushes(int count, const absl::Status& status) {
  Change([&](State& state) {
    state.failing_pushes = count;
    state.push_failure = status;
  });
}
void FakeCluster::FailPulls(int count, const absl::Status& status) {
  LosePulls(count, proto::ToGrpc(status));
}

void FakeCluster::LosePulls(int count, const grpc::Status& status) {
  Change([&](State& state) {
    state.failing_pulls = count;
    state.pull_failure = status;
  });
}
void FakeCluster::CorruptPulls(bool corrupt) {
  Change([corrupt](State& state) { state.corrupt_pulls = corrupt; });
}
void FakeCluster::HoldPulls(bool hold) {
  Change([hold](State& state) { state.hold_pulls = hold; });
}
void FakeCluster::SetOutcome(v1::Outcome outcome, const std::string& reason) {
  Change([&](State& state) {
    state.outcome = outcome;
    state.reason = reason;
  });
}
void FakeCluster::RedirectTo(const std::string& holder) {
  Change([&holder](State& state) { state.redirect = holder; });
}
void FakeCluster::SetWeight(float weight) {
  Change([weight](State& state) { state.weight = weight; });
}

std::string FakeCluster::Contribution(uint32_t parameter_id, uint32_t micro_batch) const {
  MutexLock lock(mu_);
  const auto found = state_.contributions.find({parameter_id, micro_batch});
  return found == state_.contributions.end() ? std::string() : found->second;
}

std::vector<v1::PushFinish> FakeCluster::finishes() const {
  MutexLock lock(mu_);
  return state_.finishes;
}

uint64_t FakeCluster::received_bytes() const {
  MutexLock lock(mu_);
  return state_.received_bytes;
}

int FakeCluster::num_pushes() const {
  MutexLock lock(mu_);
  return state_.num_pushes;
}

void FakeCluster::AwaitReceivedBytes(uint64_t bytes) {
  MutexLock lock(mu_);
  while (state_.received_bytes < bytes) changed_.Wait(mu_);
}

}  // namespace kaon::testing
