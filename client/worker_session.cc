#include "client/worker_session.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/ballot.h"

namespace kaon::client {
namespace {

// Retries after a coordinator, or a shard, reports an unknown job: about 10 seconds with the
// backoffs.
constexpr int kMaxNotFound = 10;
constexpr int kMaxPushesNotFound = 16;

// Returns whether the same call, to this or another server, may succeed. A server that shuts down
// answers CANCELLED; calls that this side cancels are never reported.
bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status) || absl::IsCancelled(status);
}

int CompareRounds(const Planned& a, const Planned& b) {
  const int ballots = proto::Compare(a.ballot, b.ballot);
  if (ballots != 0) return ballots;
  return a.round < b.round ? -1 : (a.round > b.round ? 1 : 0);
}

}  // namespace

WorkerSession::WorkerSession(WorkerSessionOptions options)
    : options_(std::move(options)),
      nonces_(options_.process_nonce),
      backoff_(options_.first_backoff, options_.max_backoff, options_.jitter_seed),
      push_backoff_(options_.first_push_backoff, options_.max_backoff, options_.jitter_seed + 1),
      process_nonce_(options_.process_nonce) {
  CHECK(!options_.coordinators.empty());
  CHECK_NE(process_nonce_, 0u);
  coordinator_ = options_.coordinators[0];
}

void WorkerSession::Join(absl::Time) {
  CHECK(idle());
  share_.reset();
  ForgetFailures();
  phase_ = Phase::kJoining;
  CallCoordinator();
}

void WorkerSession::Begin(const StepShare& share, absl::Time) {
  CHECK(idle());
  share_ = share;
  planned_.reset();
  pushes_.assign(options_.num_shards, ShardPush());
  ForgetFailures();
  // With a spent attempt, join first: if another process took the rank, this one must not take it
  // back.
  phase_ = attempt_.has_value() && !spent_ ? Phase::kBeginning : Phase::kJoining;
  CallCoordinator();
}

void WorkerSession::Abandon() {
  if (!idle() && share_.has_value()) spent_ = attempt_.has_value();
  StopCalls();
  phase_ = Phase::kIdle;
}

std::string WorkerSession::WaitsFor(const std::vector<uint32_t>& lacking) const {
  std::string what;
  std::vector<uint32_t> shards;
  switch (phase_) {
    case Phase::kIdle:
      return what;
    case Phase::kJoining:
      what = absl::StrCat("coordinator ", coordinator_, " to let it join");
      break;
    case Phase::kBeginning:
      what = absl::StrCat("coordinator ", coordinator_, " to accept the step");
      break;
    case Phase::kAwaiting:
      for (const uint32_t shard : lacking) {
        if (!pushes_[shard].accepted) shards.push_back(shard);
      }
      if (!planned_.has_value()) {
        what = absl::StrCat("the plan of coordinator ", coordinator_,
                            ": every rank must begin the step");
      } else if (!shards.empty()) {
        what = absl::StrCat("gradients to reach shard ", absl::StrJoin(shards, ", "));
      } else {
        what = absl::StrCat("the decision of coordinator ", coordinator_,
                            ": every rank must push its gradients");
      }
  }
  if (!last_failure_.ok()) absl::StrAppend(&what, "; last error: ", last_failure_.ToString());
  return what;
}

void WorkerSession::ForgetFailures() {
  coordinator_failures_ = 0;
  coordinator_not_found_ = 0;
  last_failure_ = absl::OkStatus();
}

void WorkerSession::CallCoordinator() {
  coordinator_retry_at_.reset();
  coordinator_call_ = ++last_call_;
  switch (phase_) {
    case Phase::kJoining:
      actions_.push_back(CallJoin{coordinator_call_, coordinator_, process_nonce_, attempt_});
      break;
    case Phase::kBeginning:
      actions_.push_back(
          CallBegin{coordinator_call_, coordinator_, *attempt_, process_nonce_, *share_});
      break;
    case Phase::kAwaiting:
      actions_.push_back(CallAwait{coordinator_call_, coordinator_, *attempt_, share_->step});
      break;
    case Phase::kIdle:
      LOG(FATAL) << "nothing to call a coordinator for";
  }
}

void WorkerSession::OnJoin(uint64_t call, const absl::StatusOr<Joined>& result,
                           const std::string& holder, absl::Time now) {
  if (call != coordinator_call_ || phase_ != Phase::kJoining) return;
  coordinator_call_ = 0;
  if (!result.ok()) {
    // A refused join stays refused, because no process returns a rank.
    if (absl::IsAborted(result.status())) return Fail(result.status());
    return OnCoordinatorFailure(result.status(), holder, now);
  }
  // The coordinator echoes the nonce of a join (protocol.md 2.1 rule 6).
  if (result->process_nonce != process_nonce_) {
    return Fail(absl::AbortedError(absl::StrCat(
        "rank ", options_.rank, " was taken by another process: the coordinator echoed nonce ",
        result->process_nonce, ", expecting ", process_nonce_)));
  }
  attempt_ = result->attempt;
  // Gradients computed for the old timeline are useless in the new one.
  if (share_.has_value() && result->timeline > share_->timeline) return EndRewound(*result);
  if (spent_) {
    DropAttempt();
    return CallCoordinator();
  }
  if (!share_.has_value()) {
    phase_ = Phase::kIdle;
    actions_.push_back(JoinOver{*result});
    return;
  }
  phase_ = Phase::kBeginning;
  CallCoordinator();
}

void WorkerSession::EndRewound(const Joined& joined) {
  // The shards kept nothing that was pushed in the old timeline.
  spent_ = false;
  StopCalls();
  phase_ = Phase::kIdle;
  actions_.push_back(StepOver{absl::FailedPreconditionError(absl::StrCat(
                                  "step ", share_->step, " of timeline ", share_->timeline,
                                  " begun, the job goes on from step ", joined.applied_step,
                                  " in timeline ", joined.timeline)),
                              joined});
}

void WorkerSession::OnBegin(uint64_t call,
                            const absl::StatusOr<std::optional<v1::StepRecord>>& result,
                            const std::string& holder, absl::Time now) {
  if (call != coordinator_call_ || phase_ != Phase::kBeginning) return;
  coordinator_call_ = 0;
  if (!result.ok()) return OnCoordinatorFailure(result.status(), holder, now);
  if (result->has_value()) return EndStep(**result);
  phase_ = Phase::kAwaiting;
  CallCoordinator();
}

void WorkerSession::OnEvent(uint64_t call, const AwaitEvent& event, absl::Time) {
  if (call != coordinator_call_ || phase_ != Phase::kAwaiting) return;
  ForgetFailures();
  if (const auto* record = std::get_if<v1::StepRecord>(&event)) return EndStep(*record);
  OnPlanned(std::get<Planned>(event));
}

void WorkerSession::OnAwaitEnded(uint64_t call, const absl::Status& status,
                                 const std::string& holder, absl::Time now) {
  if (call != coordinator_call_ || phase_ != Phase::kAwaiting) return;
  coordinator_call_ = 0;
  // A stream that ends cleanly without the decision means that the coordinator shut down.
  OnCoordinatorFailure(status.ok() ? absl::UnavailableError(
                                         absl::StrCat("coordinator ", coordinator_, " ended step ",
                                                      share_->step, " without its decision"))
                                   : status,
                       holder, now);
}

void WorkerSession::OnCoordinatorFailure(const absl::Status& status, const std::string& holder,
                                         absl::Time now) {
  last_failure_ = status;
  const bool redirected = absl::IsFailedPrecondition(status) && !holder.empty();
  // A refused attempt joins again at the holder named in the refusal (protocol.md 2.1 rule 6).
  const bool join_again = absl::IsAborted(status);
  // The job exists, or there would be no session. A coordinator that was frozen since before the
  // registration does not know yet that it was replaced. Another coordinator, or its own next
  // heartbeat, will show it.
  const bool outdated = absl::IsNotFound(status) && coordinator_not_found_++ < kMaxNotFound;
  if (!redirected && !join_again && !outdated && !IsTransient(status)) return Fail(status);
  if (!holder.empty()) {
    coordinator_ = holder;
  } else if (!join_again) {
    rotation_ = (rotation_ + 1) % options_.coordinators.size();
    coordinator_ = options_.coordinators[rotation_];
  }
  // Pushes continue: the shards remember what they accepted, whatever coordinator holds them next.
  phase_ = Phase::kJoining;
  const int failures = coordinator_failures_++;
  // Retry the first redirect at once. Wait before later ones, because two coordinators may redirect
  // to each other, or the named one may be unreachable.
  if ((redirected || join_again) && failures == 0) return CallCoordinator();
  coordinator_retry_at_ = now + backoff_.Delay(failures);
  actions_.push_back(WakeAt{*coordinator_retry_at_});
}

void WorkerSession::OnPlanned(const Planned& planned) {
  if (planned_.has_value() && CompareRounds(planned, *planned_) <= 0) return;
  planned_ = planned;
  CancelCalls cancel;
  for (const ShardPush& push : pushes_) {
    if (push.call != 0) cancel.calls.push_back(push.call);
  }
  if (!cancel.calls.empty()) actions_.push_back(std::move(cancel));
  for (uint32_t shard = 0; shard < pushes_.size(); ++shard) {
    pushes_[shard] = ShardPush();
    OpenPush(shard);
  }
}

void WorkerSession::OpenPush(uint32_t shard) {
  ShardPush& push = pushes_[shard];
  push.retry_at.reset();
  push.call = ++last_call_;
  actions_.push_back(
      StartPush{push.call, shard, *attempt_, share_->step, planned_->ballot, planned_->round});
}

void WorkerSession::OnPushEnded(uint64_t call, uint32_t shard, const absl::Status& status,
                                absl::Time now) {
  if (idle() || shard >= pushes_.size() || pushes_[shard].call != call) return;
  ShardPush& push = pushes_[shard];
  push.call = 0;
  // FAILED_PRECONDITION: the shard is past this step, and the decision is on its way.
  push.accepted = status.ok() || absl::IsFailedPrecondition(status);
  if (push.accepted) {
    const bool all = std::all_of(pushes_.begin(), pushes_.end(),
                                 [](const ShardPush& one) { return one.accepted; });
    if (all) last_failure_ = absl::OkStatus();
    return;
  }
  last_failure_ = status;
  // A shard that crashed before the registration was decided on its disk has no job until the
  // holder sends the job again.
  const bool outdated = absl::IsNotFound(status) && push.not_found++ < kMaxPushesNotFound;
  if (!absl::IsAborted(status) && !outdated && !IsTransient(status)) {
    return Fail(absl::Status(status.code(), absl::StrCat("shard ", shard, ": ", status.message())));
  }
  push.retry_at = now + push_backoff_.Delay(push.failures++);
  actions_.push_back(WakeAt{*push.retry_at});
}

void WorkerSession::Tick(absl::Time now) {
  if (idle()) return;
  if (coordinator_retry_at_.has_value() && *coordinator_retry_at_ <= now) CallCoordinator();
  for (uint32_t shard = 0; shard < pushes_.size(); ++shard) {
    const std::optional<absl::Time>& retry_at = pushes_[shard].retry_at;
    if (retry_at.has_value() && *retry_at <= now) OpenPush(shard);
  }
}

std::vector<SessionAction> WorkerSession::TakeActions() {
  return std::exchange(actions_, std::vector<SessionAction>());
}

void WorkerSession::EndStep(absl::StatusOr<v1::StepRecord> record) {
  if (!record.ok()) spent_ = attempt_.has_value();
  StopCalls();
  phase_ = Phase::kIdle;
  actions_.push_back(StepOver{std::move(record)});
}

void WorkerSession::Fail(const absl::Status& status) {
  if (share_.has_value()) return EndStep(status);
  StopCalls();
  phase_ = Phase::kIdle;
  actions_.push_back(JoinOver{status});
}

void WorkerSession::DropAttempt() {
  attempt_.reset();
  spent_ = false;
  // On the wire, 0 means no nonce.
  do {
    process_nonce_ = nonces_();
  } while (process_nonce_ == 0);
}

void WorkerSession::StopCalls() {
  CancelCalls cancel;
  if (coordinator_call_ != 0) cancel.calls.push_back(coordinator_call_);
  coordinator_call_ = 0;
  coordinator_retry_at_.reset();
  for (ShardPush& push : pushes_) {
    if (push.call != 0) cancel.calls.push_back(push.call);
    push = ShardPush();
  }
  if (!cancel.calls.empty()) actions_.push_back(std::move(cancel));
}

}  // namespace kaon::client
