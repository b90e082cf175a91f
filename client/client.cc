#include "client/kaon/client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/job_call.h"
#include "client/job_context.h"
#include "client/job_progress.h"
#include "client/pull_operation.h"
#include "client/runtime.h"
#include "client/step_operation.h"
#include "client/wire/job_conversion.h"
#include "client/wire/public_status.h"
#include "client/wire/record_conversion.h"
#include "client/worker_state.h"
#include "job/resolve.h"
#include "proto/status_macros.h"

namespace kaon {

using client::JobContext;
using client::Runtime;
using client::StepOperation;
using client::ToPublic;
using client::WorkerState;

class Step::Impl {
 public:
  Impl(std::shared_ptr<StepOperation> step, std::shared_ptr<const WorkerState> worker)
      : step_(std::move(step)), worker_(std::move(worker)) {}

  // Stops a step that was not finished; on return the caller may free its tensors. Does nothing in
  // a child of fork(), where the threads that would stop the step do not exist.
  ~Impl() {
    if (worker_->job().runtime().InForkedChild() || step_->finished()) return;
    step_->StopAndWait(absl::CancelledError("the step was destroyed before Finish"));
  }

  const std::shared_ptr<StepOperation>& step() const { return step_; }
  const WorkerState& worker() const { return *worker_; }

 private:
  // Shared with the library's threads until the step is closed.
  const std::shared_ptr<StepOperation> step_;
  // Shared with the public Worker, which may be destroyed first.
  const std::shared_ptr<const WorkerState> worker_;
};

Step::Step(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Step::Step(Step&&) noexcept = default;
Step& Step::operator=(Step&&) noexcept = default;
Step::~Step() = default;

Future<Done> Step::Push(uint32_t parameter_id, TensorView gradient, uint32_t micro_batch) {
  return impl_->step()->Push(parameter_id, gradient, micro_batch);
}

Future<Done> Step::Push(const std::string& parameter, TensorView gradient, uint32_t micro_batch) {
  const absl::StatusOr<uint32_t> id = impl_->worker().job().IdOf(parameter);
  if (id.ok()) return Push(*id, gradient, micro_batch);
  const Promise<Done> promise;
  promise.Set(ToPublic(id.status()));
  return promise.future();
}

Future<StepRecord> Step::Finish(FinishOptions options) {
  const Promise<StepRecord> promise;
  promise.OnCancel([weak = std::weak_ptr<StepOperation>(impl_->step())] {
    if (const std::shared_ptr<StepOperation> step = weak.lock()) {
      step->Stop(absl::CancelledError("the step was cancelled"));
    }
  });
  const absl::Status finished =
      impl_->step()->Finish(options, [promise](const StepOperation::Outcome& outcome) {
        if (outcome.ok()) {
          promise.Set(ToPublic(*outcome));
        } else {
          promise.Set(ToPublic(outcome.status()));
        }
      });
  if (!finished.ok()) promise.Set(ToPublic(finished));
  return promise.future();
}

class Worker::Impl {
 public:
  explicit Impl(std::shared_ptr<WorkerState> worker) : worker_(std::move(worker)) {}
  const std::shared_ptr<WorkerState>& worker() const { return worker_; }

 private:
  // Shared with its steps.
  const std::shared_ptr<WorkerState> worker_;
};

Worker::Worker(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Worker::Worker(Worker&&) noexcept = default;
Worker& Worker::operator=(Worker&&) noexcept = default;
Worker::~Worker() = default;

Future<Done> Worker::LoadWeights(std::vector<TensorView> weights) {
  return impl_->worker()->LoadWeights(weights);
}

Result<Step> Worker::Begin(const BeginOptions& options) {
  absl::StatusOr<std::shared_ptr<StepOperation>> step = impl_->worker()->Begin(options);
  if (!step.ok()) return ToPublic(step.status());
  return Step(std::make_shared<Step::Impl>(*std::move(step), impl_->worker()));
}

namespace {

absl::Status CheckViews(const char* what, size_t number, const JobContext& job) {
  if (number == job.num_parameters()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      number, " ", what, ", expecting ", job.num_parameters(), ", one for each parameter of job ",
      job.name(), ": pass an empty view for a parameter without one"));
}

// Returns the targets of the views that are not empty.
absl::StatusOr<std::vector<PullTarget>> TargetsOf(const JobContext& job,
                                                  const std::vector<MutableTensorView>& weights) {
  KAON_RETURN_IF_ERROR(CheckViews("weights", weights.size(), job));
  std::vector<PullTarget> targets;
  for (uint32_t id = 0; id < weights.size(); ++id) {
    if (weights[id].elements != nullptr) targets.emplace_back(id, weights[id]);
  }
  return client::CheckTargets(job, std::move(targets));
}

absl::Status CheckPlainStep(const JobContext& job, const BeginOptions& options,
                            const std::vector<TensorView>& gradients) {
  if (options.micro_batches != 1) {
    return absl::InvalidArgumentError(absl::StrCat("micro_batches is ", options.micro_batches,
                                                   ", must be 1: push several by Begin and Push"));
  }
  return CheckViews("gradients", gradients.size(), job);
}

}  // namespace

Result<StepRecord> Worker::RunStep(const BeginOptions& options,
                                   const std::vector<TensorView>& gradients,
                                   std::optional<double> loss,
                                   const std::vector<MutableTensorView>& weights) {
  const std::shared_ptr<const JobContext> job = impl_->worker()->shared_job();
  const absl::Status valid = CheckPlainStep(*job, options, gradients);
  if (!valid.ok()) return ToPublic(valid);
  absl::StatusOr<std::vector<PullTarget>> targets = TargetsOf(*job, weights);
  if (!targets.ok()) return ToPublic(targets.status());
  Result<Step> step = Begin(options);
  if (!step) return step.status();
  FinishOptions finish{loss};
  for (uint32_t id = 0; id < gradients.size(); ++id) {
    if (gradients[id].elements == nullptr) {
      if (!job->parameter(id).frozen) finish.missing_parameters.push_back(id);
      continue;
    }
    Future<Done> pushed = step->Push(id, gradients[id]);
    // The future is ready at once if a view does not fit; the step then ends without a record.
    if (!pushed.Ready()) continue;
    const Result<Done> result = pushed.Get();
    if (!result) return result.status();
  }
  Result<StepRecord> record = step->Finish(std::move(finish)).Get();
  if (!record) return record;
  const Result<Done> pulled = client::StartPull(job, options.step, *std::move(targets)).Get();
  if (!pulled) return pulled.status();
  return record;
}

double Worker::loss_scale() const { return impl_->worker()->loss_scale(); }

uint32_t Worker::rank() const { return impl_->worker()->rank(); }

class Job::Impl {
 public:
  explicit Impl(std::shared_ptr<const JobContext> job) : job_(std::move(job)) {}
  const std::shared_ptr<const JobContext>& job() const { return job_; }

 private:
  // Shared with its workers and pulls.
  const std::shared_ptr<const JobContext> job_;
};

Job::Job(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Job::Job(Job&&) noexcept = default;
Job& Job::operator=(Job&&) noexcept = default;
Job::~Job() = default;

const JobDescription& Job::description() const { return impl_->job()->description(); }

Result<JobDescription> Job::Refresh() {
  const JobContext& job = *impl_->job();
  const absl::StatusOr<v1::JobDescription> description =
      client::RefreshJob(job, job.runtime().call_deadline());
  if (!description.ok()) return ToPublic(description.status());
  return client::FromProto(*description);
}

Result<uint32_t> Job::ParameterId(const std::string& parameter) const {
  const absl::StatusOr<uint32_t> id = impl_->job()->IdOf(parameter);
  if (!id.ok()) return ToPublic(id.status());
  return *id;
}

Result<uint64_t> Job::WaitForWeights(std::chrono::milliseconds timeout) {
  const absl::StatusOr<uint64_t> applied =
      client::WaitForWeights(*impl_->job(), absl::FromChrono(timeout));
  if (!applied.ok()) return ToPublic(applied.status());
  return *applied;
}

Result<Worker> Job::Join(uint32_t rank) {
  const absl::Status usable = impl_->job()->runtime().CheckUsable();
  if (!usable.ok()) return ToPublic(usable);
  absl::StatusOr<std::shared_ptr<WorkerState>> worker = WorkerState::Join(impl_->job(), rank);
  if (!worker.ok()) return ToPublic(worker.status());
  return Worker(std::make_shared<Worker::Impl>(*std::move(worker)));
}

Future<Done> Job::Pull(uint64_t step, std::vector<PullTarget> targets) {
  return client::StartPull(impl_->job(), step, std::move(targets));
}

class Client::Impl {
 public:
  explicit Impl(std::shared_ptr<Runtime> runtime) : runtime_(std::move(runtime)) {}

  ~Impl() {
    if (runtime_->InForkedChild()) {
      // The loop's thread does not exist in a forked child and must not be joined: leak the
      // runtime.
      (void)std::make_unique<std::shared_ptr<Runtime>>(runtime_).release();
    } else {
      runtime_->Shutdown();
    }
  }

  const std::shared_ptr<Runtime>& runtime() const { return runtime_; }

 private:
  // Shared with jobs, workers and steps, which may outlive the client.
  const std::shared_ptr<Runtime> runtime_;
};

namespace {

Result<std::shared_ptr<const JobContext>> ToJob(
    const std::shared_ptr<Runtime>& runtime,
    const absl::StatusOr<v1::JobDescription>& description) {
  if (!description.ok()) return ToPublic(description.status());
  absl::StatusOr<std::shared_ptr<const JobContext>> job = JobContext::Create(runtime, *description);
  if (!job.ok()) return ToPublic(job.status());
  return *std::move(job);
}

}  // namespace

Client::Client(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

Result<Client> Client::Connect(const ClientOptions& options) {
  absl::StatusOr<std::shared_ptr<Runtime>> runtime = Runtime::Create(options);
  if (!runtime.ok()) return ToPublic(runtime.status());
  Client client(std::make_shared<Impl>(*runtime));
  const absl::Status found = client::FindCoordinator(*runtime);
  if (!found.ok()) return ToPublic(found);
  return client;
}

Result<Job> Client::Register(const JobDefinition& definition) {
  const absl::Status usable = impl_->runtime()->CheckUsable();
  if (!usable.ok()) return ToPublic(usable);
  const v1::JobDefinition job = client::ToProto(definition);
  const absl::Status valid = job::CheckJob(job);
  if (!valid.ok()) return ToPublic(valid);
  Result<std::shared_ptr<const JobContext>> context =
      ToJob(impl_->runtime(), client::RegisterJob(impl_->runtime(), job));
  if (!context.ok()) return context.status();
  return Job(std::make_shared<Job::Impl>(*context));
}

Result<Job> Client::Attach(const std::string& name) {
  const absl::Status usable = impl_->runtime()->CheckUsable();
  if (!usable.ok()) return ToPublic(usable);
  Result<std::shared_ptr<const JobContext>> context =
      ToJob(impl_->runtime(), client::LookUpJob(impl_->runtime(), name));
  if (!context.ok()) return context.status();
  return Job(std::make_shared<Job::Impl>(*context));
}

Status Client::CheckDevice(int device) const {
  return ToPublic(impl_->runtime()->CheckDevice(device));
}

TransferTotals Client::transfer_totals() const {
  const client::TransferCounters& counters = *impl_->runtime()->counters();
  return {counters.push_bytes, counters.pull_bytes,      counters.shm_bytes, counters.shm_refusals,
          counters.retries,    counters.infinite_pulled, counters.nccl_bytes};
}

}  // namespace kaon
