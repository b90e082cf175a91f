#include "client/step_operation.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/wire/public_status.h"
#include "proto/status_macros.h"

namespace kaon::client {
namespace {

std::shared_ptr<StepPusher> MakePusher(const StepOperation::Options& options) {
  const Runtime& runtime = options.job->runtime();
  StepPusherOptions pusher;
  pusher.job = options.job->name();
  pusher.timeline = options.share.timeline;
  pusher.step = options.share.step;
  pusher.rank = options.driver->rank();
  pusher.num_shards = options.job->num_shards();
  pusher.max_bytes_in_flight = runtime.options().max_bytes_in_flight;
  pusher.counters = runtime.counters();
  return std::make_shared<StepPusher>(std::move(pusher));
}

Future<Done> Failed(const absl::Status& status) {
  const Promise<Done> promise;
  promise.Set(ToPublic(status));
  return promise.future();
}

}  // namespace

absl::StatusOr<std::shared_ptr<StepOperation>> StepOperation::Start(Options options) {
  auto step = std::make_shared<StepOperation>(std::move(options));
  Runtime& runtime = step->options_.job->runtime();
  const bool added = runtime.AddOperation(
      [step] { step->Stop(absl::CancelledError("the client was destroyed")); }, step->operation_);
  if (!added) return runtime.CheckUsable();
  step->StartDeadline("finished");
  step->StartLog();
  runtime.loop().Post([step] { step->Begin(); });
  return step;
}

void StepOperation::StartDeadline(const std::string& what) {
  Runtime& runtime = options_.job->runtime();
  const absl::Duration deadline = runtime.step_deadline();
  MutexLock lock(mu_);
  if (closed_) return;
  if (deadline_.has_value()) runtime.loop().Cancel(*deadline_);
  deadline_ =
      runtime.loop().PostAt(EventLoop::Now() + deadline, [weak = weak_from_this(), deadline, what] {
        const std::shared_ptr<StepOperation> self = weak.lock();
        if (self == nullptr) return;
        const std::string awaited = self->WaitsFor();
        self->Stop(absl::DeadlineExceededError(absl::StrCat(
            "step ", self->options_.share.step, " was not ", what, " within ",
            absl::FormatDuration(deadline), awaited.empty() ? "" : ": waited for ", awaited)));
      });
}

void StepOperation::StartLog() {
  const auto what = [weak = weak_from_this()] {
    const std::shared_ptr<StepOperation> self = weak.lock();
    return self == nullptr ? std::string() : self->WaitsFor();
  };
  const auto since = [weak = weak_from_this()] {
    const std::shared_ptr<StepOperation> self = weak.lock();
    return self == nullptr ? absl::InfiniteFuture() : self->WaitsSince();
  };
  MutexLock lock(mu_);
  if (!closed_) log_ = std::make_unique<WaitLog>(options_.job->runtime(), what, since);
}

StepOperation::StepOperation(Options options)
    : options_(std::move(options)),
      pusher_(MakePusher(options_)),
      num_pushed_(options_.job->num_parameters(), 0) {}

uint32_t StepOperation::micro_batches() const { return options_.share.micro_batches; }

bool StepOperation::TakesPart(uint32_t parameter_id) const {
  return options_.load_weights || !options_.job->parameter(parameter_id).frozen;
}

absl::Status StepOperation::CheckTensor(uint32_t parameter_id, const TensorView& tensor) const {
  const JobContext& job = *options_.job;
  if (parameter_id >= job.num_parameters()) {
    return absl::InvalidArgumentError(absl::StrCat("parameter_id is ", parameter_id, ", job ",
                                                   job.name(), " has ", job.num_parameters()));
  }
  const std::string& name = job.parameter(parameter_id).name;
  if (!TakesPart(parameter_id)) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", name, " is frozen: it takes no gradient"));
  }
  if (tensor.num_elements != job.num_elements(parameter_id)) {
    return absl::InvalidArgumentError(absl::StrCat("parameter ", name, ": ", tensor.num_elements,
                                                   " elements pushed, expecting ",
                                                   job.num_elements(parameter_id)));
  }
  if (tensor.elements == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("parameter ", name, ": elements is null"));
  }
  if (absl::Status on_device = job.runtime().CheckDevice(tensor.device); !on_device.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", name, ": elements are ", on_device.message()));
  }
  if (options_.load_weights && tensor.device != -1) {
    return absl::InvalidArgumentError(absl::StrCat("parameter ", name, ": weights are on device ",
                                                   tensor.device, ", expecting host memory"));
  }
  const int dtype = static_cast<int>(tensor.dtype);
  if (dtype < 1 || dtype > 3 || (options_.load_weights && tensor.dtype != DType::kFloat32)) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", name, ": dtype is ", NameOf(tensor.dtype), " (", dtype,
                     "), expecting ", options_.load_weights ? "float32" : "a known one"));
  }
  return absl::OkStatus();
}

Future<Done> StepOperation::Push(uint32_t parameter_id, const TensorView& tensor,
                                 uint32_t micro_batch) {
  if (options_.job->runtime().InForkedChild()) {
    return Failed(options_.job->runtime().CheckUsable());
  }
  const absl::Status valid = CheckTensor(parameter_id, tensor);
  if (!valid.ok()) return Failed(valid);
  const std::string& name = options_.job->parameter(parameter_id).name;
  if (micro_batch >= micro_batches()) {
    return Failed(absl::InvalidArgumentError(absl::StrCat(
        "parameter ", name, ": micro-batch ", micro_batch, ", the step has ", micro_batches())));
  }
  const Promise<Done> accepted;
  {
    MutexLock lock(mu_);
    if (finished_) {
      return Failed(absl::FailedPreconditionError(
          absl::StrCat("parameter ", name, " pushed after Finish of step ", options_.share.step)));
    }
    if (micro_batch != num_pushed_[parameter_id]) {
      return Failed(absl::InvalidArgumentError(absl::StrCat("parameter ", name, ": micro-batch ",
                                                            micro_batch, " pushed, expecting ",
                                                            num_pushed_[parameter_id])));
    }
    ++num_pushed_[parameter_id];
    ++num_queueing_;
  }
  // Not under the lock: this sends chunks on the calling thread.
  pusher_->Push(options_.job->shard_of(parameter_id), {parameter_id, micro_batch}, tensor,
                accepted);
  {
    MutexLock lock(mu_);
    if (--num_queueing_ == 0) changed_.NotifyAll();
  }
  return accepted.future();
}

absl::StatusOr<std::vector<bool>> StepOperation::MissingParameters(
    const FinishOptions& options) const {
  std::vector<bool> missing(options_.job->num_parameters(), false);
  for (uint32_t id : options.missing_parameters) {
    if (id >= missing.size()) {
      return absl::InvalidArgumentError(absl::StrCat("missing_parameters names ", id, ", job ",
                                                     options_.job->name(), " has ", missing.size(),
                                                     " parameters"));
    }
    if (!TakesPart(id)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "missing_parameters names ", options_.job->parameter(id).name, ", which is frozen"));
    }
    missing[id] = true;
  }
  return missing;
}

absl::Status StepOperation::CheckCompleteLocked(const std::vector<bool>& missing) const {
  for (uint32_t id = 0; id < num_pushed_.size(); ++id) {
    if (!TakesPart(id)) continue;
    const uint32_t expected = missing[id] ? 0 : micro_batches();
    if (num_pushed_[id] == expected) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", options_.job->parameter(id).name, ": ", num_pushed_[id], " of ",
                     micro_batches(), " contributions pushed, and ",
                     missing[id] ? "listed as missing" : "not listed as missing"));
  }
  return absl::OkStatus();
}

std::vector<v1::PushFinish> StepOperation::FinishByShard(const std::vector<bool>& missing,
                                                         const FinishOptions& options) const {
  std::vector<v1::PushFinish> by_shard(options_.job->num_shards());
  for (v1::PushFinish& finish : by_shard) {
    if (options.loss.has_value()) finish.set_loss(*options.loss);
  }
  for (uint32_t id = 0; id < missing.size(); ++id) {
    if (missing[id]) by_shard[options_.job->shard_of(id)].add_missing_parameters(id);
  }
  return by_shard;
}

absl::Status StepOperation::Finish(const FinishOptions& options,
                                   std::function<void(const Outcome&)> done) {
  if (options_.job->runtime().InForkedChild()) return options_.job->runtime().CheckUsable();
  if (options.loss.has_value() && !std::isfinite(*options.loss)) {
    return absl::InvalidArgumentError(
        absl::StrCat("loss is ", *options.loss, ", must be finite or absent"));
  }
  KAON_ASSIGN_OR_RETURN(const std::vector<bool> missing, MissingParameters(options));
  bool closed = false;
  {
    MutexLock lock(mu_);
    if (finished_) {
      return absl::FailedPreconditionError(
          absl::StrCat("step ", options_.share.step, " was finished before"));
    }
    KAON_RETURN_IF_ERROR(CheckCompleteLocked(missing));
    finished_ = true;
    // The finish must not overtake contributions that are counted but not yet queued.
    while (num_queueing_ > 0) changed_.Wait(mu_);
    closed = closed_;
    if (!closed) {
      done_ = std::move(done);
      finish_time_ = EventLoop::Now();
    }
  }
  if (closed) {
    done(*outcome_);
  } else {
    StartDeadline("decided");
    pusher_->Finish(FinishByShard(missing, options));
  }
  return absl::OkStatus();
}

void StepOperation::Stop(const absl::Status& status) {
  options_.job->runtime().loop().Post([self = shared_from_this(), status] {
    if (self->outcome_.has_value()) return;
    self->options_.driver->Abandon();
    self->OnOver(status);
  });
}

void StepOperation::StopAndWait(const absl::Status& status) {
  options_.job->runtime().loop().CheckNotOnLoop("a step that is not finished was destroyed");
  Stop(status);
  const WaitLog log(options_.job->runtime(),
                    [self = shared_from_this()] { return self->WaitsFor(); });
  MutexLock lock(mu_);
  while (!closed_) changed_.Wait(mu_);
}

bool StepOperation::finished() const {
  MutexLock lock(mu_);
  return finished_;
}

absl::Time StepOperation::WaitsSince() const {
  {
    MutexLock lock(mu_);
    if (finish_time_.has_value()) return *finish_time_;
  }
  return pusher_->OldestUnaccepted();
}

std::string StepOperation::WaitsFor() const {
  if (outcome_.has_value()) return "the shards' connections to release the gradients";
  const std::string what = options_.driver->WaitsFor();
  return what.empty() ? what : absl::StrCat(what, ", step ", options_.share.step);
}

void StepOperation::Begin() {
  // The client was destroyed before this task ran.
  if (outcome_.has_value()) return;
  options_.driver->Begin(options_.share, pusher_,
                         [self = shared_from_this()](const Outcome& o) { self->OnOver(o); });
}

void StepOperation::OnOver(const Outcome& outcome) {
  if (outcome_.has_value()) return;
  outcome_ = outcome;
  // The caller's memory is free once the step is decided and every slice's release callback has
  // run. The pusher cancels streams that are stuck on a dead lane (protocol.md 2.2). The callback
  // may run on any thread, so the rest is posted to the loop.
  pusher_->Close(outcome.status(), [self = shared_from_this()]() mutable {
    EventLoop& loop = self->options_.job->runtime().loop();
    loop.Post([self = std::move(self)] { self->Close(); });
  });
}

void StepOperation::Close() {
  options_.on_closed(*outcome_);
  std::function<void(const Outcome&)> done;
  {
    MutexLock lock(mu_);
    closed_ = true;
    done = std::move(done_);
    log_.reset();
    if (deadline_.has_value()) options_.job->runtime().loop().Cancel(*deadline_);
    changed_.NotifyAll();
  }
  if (done) done(*outcome_);
  options_.job->runtime().RemoveOperation(operation_);
}

}  // namespace kaon::client
