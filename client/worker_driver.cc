#include "client/worker_driver.h"

#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "proto/failpoint.h"

namespace kaon::client {
namespace {

WorkerSessionOptions SessionOptions(const JobContext& job, uint32_t rank, uint64_t process_nonce) {
  WorkerSessionOptions options;
  options.rank = rank;
  options.process_nonce = process_nonce;
  options.coordinators = job.runtime().options().coordinators;
  options.num_shards = job.num_shards();
  options.jitter_seed = process_nonce;
  return options;
}

absl::StatusOr<Joined> ToJoined(const absl::StatusOr<v1::JoinWorkerResponse>& response) {
  if (!response.ok()) return response.status();
  return Joined{response->attempt(),        response->process_nonce(), response->applied_step(),
                response->weights_loaded(), response->loss_scale(),    response->timeline()};
}

absl::StatusOr<std::optional<v1::StepRecord>> RecordOf(
    const absl::StatusOr<v1::BeginStepResponse>& response) {
  if (!response.ok()) return response.status();
  std::optional<v1::StepRecord> record;
  if (response->has_record()) record = response->record();
  return record;
}

}  // namespace

WorkerDriver::WorkerDriver(std::shared_ptr<const JobContext> job, uint32_t rank,
                           uint64_t process_nonce)
    : job_(std::move(job)), rank_(rank), session_(SessionOptions(*job_, rank, process_nonce)) {}

void WorkerDriver::Join(OnJoined done) {
  on_joined_ = std::move(done);
  session_.Join(EventLoop::Now());
  Act();
}

void WorkerDriver::Begin(const StepShare& share, std::shared_ptr<StepPusher> pusher,
                         OnRecord done) {
  on_record_ = std::move(done);
  pusher_ = std::move(pusher);
  session_.Begin(share, EventLoop::Now());
  Act();
}

void WorkerDriver::Abandon() {
  session_.Abandon();
  on_joined_ = nullptr;
  on_record_ = nullptr;
  Act();
  pusher_.reset();
}

std::string WorkerDriver::WaitsFor() const {
  const std::string what =
      session_.WaitsFor(pusher_ == nullptr ? std::vector<uint32_t>() : pusher_->LackingShards());
  return what.empty() ? what : absl::StrCat(what, " (job ", job_->name(), ", rank ", rank_, ")");
}

void WorkerDriver::Post(std::function<void(WorkerDriver&)> input) {
  job_->runtime().loop().Post([self = shared_from_this(), input = std::move(input)] {
    input(*self);
    self->Act();
  });
}

void WorkerDriver::Act() {
  for (const SessionAction& action : session_.TakeActions()) {
    std::visit([this](const auto& what) { Do(what); }, action);
  }
}

void WorkerDriver::Do(const CallJoin& action) {
  v1::JoinWorkerRequest request;
  request.set_job(job_->name());
  request.set_rank(rank_);
  request.set_process_nonce(action.process_nonce);
  if (action.previous_attempt.has_value()) {
    *request.mutable_previous_attempt() = *action.previous_attempt;
  }
  request.set_timeline(job_->attached_timeline());
  auto done = [self = shared_from_this(), call = action.call](
                  const absl::StatusOr<v1::JoinWorkerResponse>& response,
                  const std::string& holder) {
    const absl::StatusOr<Joined> joined = ToJoined(response);
    if (joined.ok()) PassFailpoint(Failpoint::worker_joined);
    self->Post([call, joined, holder](WorkerDriver& driver) {
      driver.calls_.erase(call);
      if (!joined.ok()) driver.job_->runtime().counters()->NoteRetry(joined.status());
      driver.session_.OnJoin(call, joined, holder, EventLoop::Now());
    });
  };
  Runtime& runtime = job_->runtime();
  calls_[action.call] = runtime.coordinators().Join(action.coordinator, request,
                                                    runtime.try_timeout(), std::move(done));
}

void WorkerDriver::Do(const CallBegin& action) {
  PassFailpoint(Failpoint::worker_begin);
  v1::BeginStepRequest request;
  request.set_job(job_->name());
  request.set_rank(rank_);
  *request.mutable_attempt() = action.attempt;
  request.set_process_nonce(action.process_nonce);
  request.set_step(action.share.step);
  request.set_token_weight(action.share.token_weight);
  request.set_micro_batches(action.share.micro_batches);
  request.set_learning_rate_multiplier(action.share.learning_rate_multiplier);
  request.mutable_group_multipliers()->insert(action.share.group_multipliers.begin(),
                                              action.share.group_multipliers.end());
  request.set_traceparent(action.share.traceparent);
  auto done = [self = shared_from_this(), call = action.call](
                  const absl::StatusOr<v1::BeginStepResponse>& response,
                  const std::string& holder) {
    const absl::StatusOr<std::optional<v1::StepRecord>> record = RecordOf(response);
    self->Post([call, record, holder](WorkerDriver& driver) {
      driver.calls_.erase(call);
      if (!record.ok()) driver.job_->runtime().counters()->NoteRetry(record.status());
      driver.session_.OnBegin(call, record, holder, EventLoop::Now());
    });
  };
  Runtime& runtime = job_->runtime();
  calls_[action.call] = runtime.coordinators().Begin(action.coordinator, request,
                                                     runtime.try_timeout(), std::move(done));
}

void WorkerDriver::Do(const CallAwait& action) {
  v1::AwaitStepRequest request;
  request.set_job(job_->name());
  request.set_rank(rank_);
  *request.mutable_attempt() = action.attempt;
  request.set_step(action.step);
  auto on_event = [self = shared_from_this(), call = action.call](const v1::StepEvent& event) {
    AwaitEvent heard;
    if (event.has_planned()) {
      PassFailpoint(Failpoint::worker_plan_received);
      heard = Planned{event.planned().ballot(), event.planned().round()};
    } else if (event.has_decided()) {
      heard = event.decided();
    } else {
      // A newer coordinator may send events that this version does not know.
      return;
    }
    self->Post([call, heard](WorkerDriver& driver) {
      driver.session_.OnEvent(call, heard, EventLoop::Now());
    });
  };
  auto on_end = [self = shared_from_this(), call = action.call](const absl::Status& status,
                                                                const std::string& holder) {
    self->Post([call, status, holder](WorkerDriver& driver) {
      // If the call is gone, it was cancelled, which is no retry.
      if (driver.calls_.erase(call) > 0 && !status.ok()) {
        driver.job_->runtime().counters()->NoteRetry(status);
      }
      driver.session_.OnAwaitEnded(call, status, holder, EventLoop::Now());
    });
  };
  calls_[action.call] = job_->runtime().coordinators().Await(
      action.coordinator, request, std::move(on_event), std::move(on_end));
}

void WorkerDriver::Do(const StartPush& action) {
  const uint64_t call = action.call;
  const uint32_t shard = action.shard;
  const absl::StatusOr<std::shared_ptr<ShardChannel>> channel = job_->ShardChannelOf(shard);
  if (!channel.ok()) {
    const absl::Status status = channel.status();
    return Post([call, shard, status](WorkerDriver& driver) {
      driver.session_.OnPushEnded(call, shard, status, EventLoop::Now());
    });
  }
  pushes_[call] = shard;
  pusher_->StartStream(action, **channel,
                       [self = shared_from_this(), call, shard](const absl::Status& status) {
                         self->Post([call, shard, status](WorkerDriver& driver) {
                           driver.pushes_.erase(call);
                           if (!status.ok()) driver.job_->runtime().counters()->NoteRetry(status);
                           driver.session_.OnPushEnded(call, shard, status, EventLoop::Now());
                         });
                       });
}

void WorkerDriver::Do(const CancelCalls& action) {
  for (uint64_t number : action.calls) {
    const auto call = calls_.find(number);
    if (call != calls_.end()) {
      // Null if the call could not be made.
      if (call->second != nullptr) call->second->Cancel();
      calls_.erase(call);
      continue;
    }
    const auto push = pushes_.find(number);
    if (push == pushes_.end()) continue;
    pusher_->CancelStream(push->second);
    pushes_.erase(push);
  }
}

void WorkerDriver::Do(const WakeAt& action) {
  job_->runtime().loop().PostAt(action.at, [weak = weak_from_this()] {
    const std::shared_ptr<WorkerDriver> self = weak.lock();
    if (self == nullptr) return;
    self->session_.Tick(EventLoop::Now());
    self->Act();
  });
}

void WorkerDriver::Do(const JoinOver& action) {
  const OnJoined done = std::exchange(on_joined_, nullptr);
  if (done) done(action.joined);
}

void WorkerDriver::Do(const StepOver& action) {
  PassFailpoint(Failpoint::worker_decided);
  pusher_.reset();
  if (action.rewound.has_value() && on_rewound_) on_rewound_(*action.rewound);
  const OnRecord done = std::exchange(on_record_, nullptr);
  if (done) done(action.record);
}

}  // namespace kaon::client
