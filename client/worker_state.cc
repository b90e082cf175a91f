#include "client/worker_state.h"

#include <cstring>
#include <random>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/job_call.h"
#include "client/wait_log.h"
#include "client/wire/public_status.h"
#include "job/validation.h"
#include "proto/status_macros.h"

namespace kaon::client {
namespace {

uint64_t RandomNonce() {
  std::random_device device;
  uint64_t nonce = 0;
  // On the wire, 0 means no nonce.
  while (nonce == 0) nonce = (uint64_t{device()} << 32) | device();
  return nonce;
}

absl::Status CheckShare(const BeginOptions& options) {
  if (options.step == 0) return absl::InvalidArgumentError("step is 0, must be >= 1");
  return job::ValidateShare(options.token_weight, options.micro_batches,
                            {options.learning_rate_multiplier, options.group_multipliers});
}

// Checks that a copy has the same bits as its original: steps keep them equal, but cannot make them
// equal. Leaves tensors of another size, and those on a device, to Push.
absl::Status CheckCopies(const JobContext& job, const std::vector<TensorView>& weights) {
  for (uint32_t id = 0; id < weights.size(); ++id) {
    const absl::StatusOr<uint32_t> original = job.IdOf(job.parameter(id).tied_to);
    if (!original.ok()) continue;
    const TensorView& a = weights[id];
    const TensorView& b = weights[*original];
    const bool on_host = a.device == -1 && b.device == -1;
    const bool alike = a.dtype == b.dtype && a.num_elements == b.num_elements;
    if (a.elements == b.elements || !alike || !on_host) continue;
    if (std::memcmp(a.elements, b.elements, a.num_bytes()) == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("weights of parameter ", job.parameter(id).name, " differ from those of ",
                     job.parameter(*original).name,
                     ", which it is tied to, must be equal: load one tensor for both"));
  }
  return absl::OkStatus();
}

// A join and its result, shared by the waiting thread and the loop.
struct PendingJoin {
  uint64_t operation = 0;
  Promise<Done> ended;
  // Written on the loop before `ended` is set.
  std::optional<absl::StatusOr<Joined>> result;

  bool End(Runtime& runtime, absl::StatusOr<Joined> joined) {
    if (result.has_value()) return false;
    result = std::move(joined);
    runtime.RemoveOperation(operation);
    ended.Set(Done());
    return true;
  }
};

}  // namespace

absl::StatusOr<std::shared_ptr<WorkerState>> WorkerState::Join(
    std::shared_ptr<const JobContext> job, uint32_t rank) {
  auto worker = std::make_shared<WorkerState>(std::move(job), rank);
  worker->driver_->OnRewound([weak = worker->weak_from_this()](const Joined& joined) {
    if (const std::shared_ptr<WorkerState> self = weak.lock()) self->Adopt(joined);
  });
  KAON_RETURN_IF_ERROR(worker->WaitForJoin());
  return worker;
}

WorkerState::WorkerState(std::shared_ptr<const JobContext> job, uint32_t rank)
    : job_(std::move(job)), driver_(std::make_shared<WorkerDriver>(job_, rank, RandomNonce())) {}

absl::Status WorkerState::WaitForJoin() {
  Runtime& runtime = job_->runtime();
  runtime.loop().CheckNotOnLoop("a rank was joined");
  auto pending = std::make_shared<PendingJoin>();
  const auto give_up = [pending, driver = driver_, &runtime](const absl::Status& status) {
    if (pending->End(runtime, status)) driver->Abandon();
  };
  const bool added = runtime.AddOperation(
      [give_up] { give_up(absl::CancelledError("the client was destroyed")); }, pending->operation);
  if (!added) return runtime.CheckUsable();
  runtime.loop().Post([pending, driver = driver_, &runtime] {
    if (pending->result.has_value()) return;
    driver->Join([pending, &runtime](const absl::StatusOr<Joined>& joined) {
      pending->End(runtime, joined);
    });
  });
  const EventLoop::Timer timer =
      runtime.loop().PostAt(EventLoop::Now() + runtime.call_deadline(), [give_up, rank = rank()] {
        give_up(absl::DeadlineExceededError(
            absl::StrCat("no coordinator let rank ", rank, " join in time")));
      });
  const WaitLog log(runtime, [driver = driver_] { return driver->WaitsFor(); });
  Future<Done> ended = pending->ended.future();
  (void)ended.Get();
  runtime.loop().Cancel(timer);
  KAON_RETURN_IF_ERROR(pending->result->status());
  Adopt(**pending->result);
  return absl::OkStatus();
}

void WorkerState::Adopt(const Joined& joined) {
  {
    MutexLock lock(mu_);
    timeline_ = joined.timeline;
    applied_step_ = joined.applied_step;
    weights_loaded_ = joined.weights_loaded;
    loss_scale_ = joined.loss_scale;
  }
  job_->NoteTimeline(joined.timeline, joined.applied_step);
}

double WorkerState::loss_scale() const {
  MutexLock lock(mu_);
  return loss_scale_;
}

absl::Status WorkerState::CheckIsNext(uint64_t step) {
  {
    MutexLock lock(mu_);
    if (step == applied_step_ + 1) return absl::OkStatus();
  }
  // Steps that this worker abandoned may have been decided.
  KAON_ASSIGN_OR_RETURN(const v1::JobDescription job,
                        LookUpJob(job_->shared_runtime(), job_->name()));
  job_->NoteTimeline(job.timeline(), job.applied_step());
  MutexLock lock(mu_);
  // A replaced coordinator that does not know it yet may report an old state.
  const bool newer =
      std::pair(job.timeline(), job.applied_step()) > std::pair(timeline_, applied_step_);
  uint64_t applied_step = applied_step_;
  if (!step_is_open_ && newer) {
    applied_step = job.applied_step();
    // Only a join tells the loss scale of another timeline. A step that begins now ends as rewound,
    // and the worker takes over all of that timeline.
    const bool is_scaled = job_->description().definition.loss_scaler.has_value();
    if (!is_scaled || job.timeline() == timeline_) {
      timeline_ = job.timeline();
      applied_step_ = job.applied_step();
      weights_loaded_ = job.weights_loaded();
    }
  }
  if (step == applied_step + 1) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("step ", step, " begun, expecting ", applied_step + 1));
}

absl::StatusOr<std::shared_ptr<StepOperation>> WorkerState::Begin(const BeginOptions& options) {
  KAON_RETURN_IF_ERROR(job_->runtime().CheckUsable());
  KAON_RETURN_IF_ERROR(CheckShare(options));
  KAON_RETURN_IF_ERROR(CheckIsNext(options.step));
  StepShare share;
  share.step = options.step;
  share.token_weight = options.token_weight;
  share.micro_batches = options.micro_batches;
  share.learning_rate_multiplier = options.learning_rate_multiplier;
  share.group_multipliers = options.group_multipliers;
  // The coordinator ignores a malformed one, but refuses the call if it is not text.
  if (absl::c_all_of(options.traceparent, absl::ascii_isprint)) {
    share.traceparent = options.traceparent;
  }
  return Open(share, /*load_weights=*/false);
}

absl::StatusOr<std::shared_ptr<StepOperation>> WorkerState::Open(const StepShare& share,
                                                                 bool load_weights) {
  StepOperation::Options options;
  {
    MutexLock lock(mu_);
    if (step_is_open_) {
      return absl::FailedPreconditionError(absl::StrCat(
          "rank ", rank(), ": step ", share.step, " begun while step ", open_step_, " is open"));
    }
    if (load_weights && weights_loaded_) {
      return absl::FailedPreconditionError(
          absl::StrCat("job ", job_->name(), " has weights: its applied step is ", applied_step_));
    }
    step_is_open_ = true;
    open_step_ = share.step;
    // Use the timeline that this rank knows. A newer one, known to another rank of the process,
    // must end the step as rewound.
    options.share = share;
    options.share.timeline = timeline_;
  }
  options.job = job_;
  options.driver = driver_;
  options.load_weights = load_weights;
  options.on_closed = [self = shared_from_this()](const StepOperation::Outcome& outcome) {
    self->OnClosed(outcome);
  };
  absl::StatusOr<std::shared_ptr<StepOperation>> step = StepOperation::Start(std::move(options));
  if (!step.ok()) OnClosed(step.status());
  return step;
}

void WorkerState::OnClosed(const StepOperation::Outcome& outcome) {
  MutexLock lock(mu_);
  step_is_open_ = false;
  if (!outcome.ok()) return;
  loss_scale_ = outcome->decision().next_loss_scale();
  const v1::StepBody& step = outcome->plan().step();
  if (step.kind() == v1::STEP_KIND_LOAD_WEIGHTS) {
    // Refused weights may be loaded again.
    weights_loaded_ = outcome->decision().outcome() == v1::OUTCOME_APPLY;
  } else {
    weights_loaded_ = true;
    applied_step_ = step.step();
  }
}

Future<Done> WorkerState::LoadWeights(const std::vector<TensorView>& weights) {
  const Promise<Done> promise;
  absl::Status valid = job_->runtime().CheckUsable();
  if (valid.ok() && rank() != 0) {
    valid = absl::FailedPreconditionError(
        absl::StrCat("rank ", rank(), " loads weights, expecting rank 0"));
  }
  if (valid.ok() && weights.size() != job_->num_parameters()) {
    valid = absl::InvalidArgumentError(
        absl::StrCat(weights.size(), " tensors of weights, expecting ", job_->num_parameters()));
  }
  if (valid.ok()) valid = CheckCopies(*job_, weights);
  if (!valid.ok()) {
    promise.Set(ToPublic(valid));
    return promise.future();
  }
  const absl::StatusOr<std::shared_ptr<StepOperation>> step =
      Open({0, 1, 1, 1}, /*load_weights=*/true);
  if (!step.ok()) {
    promise.Set(ToPublic(step.status()));
    return promise.future();
  }
  for (uint32_t id = 0; id < weights.size(); ++id) {
    // The future is ready at once only if an argument is invalid. Such an error ends the step.
    Future<Done> pushed = (*step)->Push(id, weights[id], 0);
    if (!pushed.Ready()) continue;
    const Result<Done> result = pushed.Get();
    if (result.ok()) continue;
    (*step)->StopAndWait(absl::CancelledError("refused"));
    promise.Set(result.status());
    return promise.future();
  }
  promise.OnCancel([weak = std::weak_ptr<StepOperation>(*step)] {
    if (const auto loading = weak.lock()) {
      loading->Stop(absl::CancelledError("the loading of weights was cancelled"));
    }
  });
  const absl::Status finished =
      (*step)->Finish(FinishOptions(), [promise](const StepOperation::Outcome& outcome) {
        if (!outcome.ok()) {
          promise.Set(ToPublic(outcome.status()));
        } else if (outcome->decision().outcome() == v1::OUTCOME_APPLY) {
          promise.Set(Done());
        } else {
          promise.Set(kaon::Status(StatusCode::kInvalidArgument, outcome->decision().reason()));
        }
      });
  if (!finished.ok()) promise.Set(ToPublic(finished));
  return promise.future();
}

}  // namespace kaon::client
