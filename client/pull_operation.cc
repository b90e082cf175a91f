#include "client/pull_operation.h"

#include <glog/logging.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/backoff.h"
#include "client/wait_log.h"
#include "client/wire/public_status.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"

namespace kaon::client {
namespace {

// All methods run on the loop, except Start.
class PullOperation : public std::enable_shared_from_this<PullOperation> {
 public:
  PullOperation(std::shared_ptr<const JobContext> job, uint64_t step,
                const std::vector<PullTarget>& targets)
      : job_(std::move(job)),
        deadline_(EventLoop::Now() + job_->runtime().step_deadline()),
        backoff_(absl::Milliseconds(5), absl::Seconds(1), std::random_device()()) {
    for (const PullTarget& target : targets) {
      ShardPart& part = parts_[job_->shard_of(target.parameter_id)];
      part.request.set_job(job_->name());
      part.request.set_timeline(job_->timeline());
      part.request.set_step(step);
      part.request.set_dtype(static_cast<v1::DType>(target.into.dtype));
      part.request.add_parameter_ids(target.parameter_id);
      part.targets.push_back(target.into);
    }
  }

  Future<Done> Start() {
    Runtime& runtime = job_->runtime();
    log_ = std::make_unique<WaitLog>(runtime, [weak = weak_from_this()] {
      const std::shared_ptr<PullOperation> self = weak.lock();
      return self == nullptr ? std::string() : self->WaitsFor();
    });
    const bool added = runtime.AddOperation(
        [self = shared_from_this()] {
          self->Stop(absl::CancelledError("the client was destroyed"));
        },
        operation_);
    if (!added) {
      promise_.Set(ToPublic(runtime.CheckUsable()));
      return promise_.future();
    }
    // Weak: the caller shares the promise and may keep it for ever.
    promise_.OnCancel([weak = weak_from_this(), runtime = &runtime] {
      const std::shared_ptr<PullOperation> self = weak.lock();
      if (self == nullptr) return;
      runtime->loop().Post([self] { self->Stop(absl::CancelledError("the pull was cancelled")); });
    });
    Future<Done> future = promise_.future();
    runtime.loop().Post([self = shared_from_this()] { self->StartAll(); });
    return future;
  }

 private:
  struct ShardPart {
    v1::PullRequest request;
    std::vector<MutableTensorView> targets;
    std::shared_ptr<PullStream> stream;
    int failures = 0;
    bool complete = false;
  };

  void StartAll() {
    for (const auto& [shard, part] : parts_) StartPart(shard);
    CheckEnd();
  }

  void StartPart(uint32_t shard) {
    if (ended_ || !failure_.ok()) return;
    const absl::StatusOr<std::shared_ptr<ShardChannel>> channel = job_->ShardChannelOf(shard);
    if (!channel.ok()) return Stop(channel.status());
    ShardPart& part = parts_[shard];
    PullOptions options;
    options.request = part.request;
    options.targets = part.targets;
    options.timeout = deadline_ - EventLoop::Now();
    options.on_bytes = [counters = job_->runtime().counters()](uint64_t bytes) {
      counters->pull_bytes += bytes;
    };
    options.on_infinite = [job = job_, dtype = part.targets[0].dtype](uint32_t id, uint64_t n) {
      job->runtime().counters()->infinite_pulled += n;
      LOG_EVERY_T(WARNING, 60) << "job " << job->name() << ", parameter " << job->parameter(id).name
                               << ": " << n << " elements pulled as " << NameOf(dtype)
                               << " are infinite, their weights are beyond its largest number: "
                               << "pull another dtype";
    };
    options.done = [self = shared_from_this(), shard](const absl::Status& status) {
      EventLoop& loop = self->job_->runtime().loop();
      loop.Post([self, shard, status] { self->OnPartDone(shard, status); });
    };
    part.stream = (*channel)->Pull(std::move(options));
    PassFailpoint(Failpoint::worker_pull_begin);
  }

  void OnPartDone(uint32_t shard, const absl::Status& status) {
    ShardPart& part = parts_[shard];
    part.stream.reset();
    if (status.ok()) {
      PassFailpoint(Failpoint::worker_pulled);
      part.complete = true;
      return CheckEnd();
    }
    const bool transient = absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
                           absl::IsCancelled(status);
    if (!failure_.ok()) return CheckEnd();
    if (!transient) {
      return Stop(
          absl::Status(status.code(), absl::StrCat("shard ", shard, ": ", status.message())));
    }
    const absl::Time at = EventLoop::Now() + backoff_.Delay(part.failures++);
    if (at >= deadline_) {
      return Stop(absl::DeadlineExceededError(
          absl::StrCat("pull of step ", part.request.step(), " from shard ", shard, " in ",
                       absl::FormatDuration(job_->runtime().step_deadline()),
                       "; last error: ", status.ToString())));
    }
    last_error_ = status;
    job_->runtime().counters()->NoteRetry(status);
    job_->runtime().loop().PostAt(at,
                                  [self = shared_from_this(), shard] { self->StartPart(shard); });
  }

  std::string WaitsFor() const {
    std::vector<uint32_t> shards;
    for (const auto& [shard, part] : parts_) {
      if (!part.complete) shards.push_back(shard);
    }
    if (ended_ || shards.empty()) return "";
    const v1::PullRequest& request = parts_.begin()->second.request;
    return absl::StrCat("step ", request.step(), " of job ", job_->name(), " from shard ",
                        absl::StrJoin(shards, ", "), last_error_.ok() ? "" : "; last error: ",
                        last_error_.ok() ? "" : last_error_.ToString());
  }

  // The first failure is the result. All streams must still end before the targets are free.
  void Stop(const absl::Status& status) {
    if (ended_ || !failure_.ok()) return;
    failure_ = status;
    for (auto& [shard, part] : parts_) {
      if (part.stream != nullptr) part.stream->Cancel();
    }
    CheckEnd();
  }

  void CheckEnd() {
    if (ended_) return;
    bool complete = true;
    for (const auto& [shard, part] : parts_) {
      if (part.stream != nullptr) return;
      complete = complete && part.complete;
    }
    if (failure_.ok() && !complete) return;
    ended_ = true;
    log_.reset();
    // Remove it first: the receiver of the result may destroy the client.
    job_->runtime().RemoveOperation(operation_);
    if (failure_.ok()) {
      promise_.Set(Done());
    } else {
      promise_.Set(ToPublic(failure_));
    }
  }

  // Shared with the whole job.
  const std::shared_ptr<const JobContext> job_;
  const absl::Time deadline_;
  uint64_t operation_ = 0;
  const Promise<Done> promise_;

  // Used on the loop.
  Backoff backoff_;
  std::map<uint32_t, ShardPart> parts_;
  absl::Status failure_;
  // Error of the newest try that was repeated.
  absl::Status last_error_;
  std::unique_ptr<WaitLog> log_;
  bool ended_ = false;
};

}  // namespace

absl::StatusOr<std::vector<PullTarget>> CheckTargets(const JobContext& job,
                                                     std::vector<PullTarget> targets) {
  std::set<uint32_t> seen;
  for (PullTarget& target : targets) {
    if (!target.parameter.empty()) {
      KAON_ASSIGN_OR_RETURN(target.parameter_id, job.IdOf(target.parameter));
    }
    const uint32_t id = target.parameter_id;
    if (id >= job.num_parameters()) {
      return absl::InvalidArgumentError(absl::StrCat("parameter_id is ", id, ", job ", job.name(),
                                                     " has ", job.num_parameters()));
    }
    const std::string& name = job.parameter(id).name;
    if (!seen.insert(id).second) {
      return absl::InvalidArgumentError(absl::StrCat("parameter ", name, " is pulled twice"));
    }
    if (target.into.num_elements != job.num_elements(id)) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", name, ": target of ", target.into.num_elements,
                       " elements, expecting ", job.num_elements(id)));
    }
    if (target.into.elements == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("parameter ", name, ": elements is null"));
    }
    if (const absl::Status on_device = job.runtime().CheckDevice(target.into.device);
        !on_device.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", name, ": ", on_device.message()));
    }
    const int dtype = static_cast<int>(target.into.dtype);
    if (dtype < 1 || dtype > 3) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", name, ": dtype is ", dtype, ", must be 1 .. 3"));
    }
    if (target.into.dtype != targets[0].into.dtype) {
      return absl::InvalidArgumentError(absl::StrCat("parameter ", name, ": dtype ",
                                                     NameOf(target.into.dtype), " beside ",
                                                     NameOf(targets[0].into.dtype)));
    }
  }
  return targets;
}

Future<Done> StartPull(std::shared_ptr<const JobContext> job, uint64_t step,
                       std::vector<PullTarget> targets) {
  absl::Status valid = job->runtime().CheckUsable();
  if (valid.ok()) {
    absl::StatusOr<std::vector<PullTarget>> checked = CheckTargets(*job, std::move(targets));
    valid = checked.status();
    if (valid.ok()) {
      return std::make_shared<PullOperation>(std::move(job), step, *checked)->Start();
    }
  }
  const Promise<Done> promise;
  promise.Set(ToPublic(valid));
  return promise.future();
}

}  // namespace kaon::client
