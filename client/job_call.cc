#include "client/job_call.h"

#include <functional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/backoff.h"
#include "client/kaon/future.h"

namespace kaon::client {
namespace {

// One call, with its retries, until its answer. All methods run on the loop, except Run.
class JobCall : public std::enable_shared_from_this<JobCall> {
 public:
  using Answer = absl::StatusOr<v1::JobDescription>;
  // Makes one try at an address.
  using Try = std::function<std::shared_ptr<OutgoingCall>(
      const std::string& address, CoordinatorClient::Callback<v1::JobDescription> done)>;

  JobCall(std::shared_ptr<Runtime> runtime, Try make_try)
      : runtime_(std::move(runtime)),
        try_(std::move(make_try)),
        address_(runtime_->options().coordinators[0]),
        deadline_(EventLoop::Now() + runtime_->call_deadline()),
        backoff_(absl::Milliseconds(20), absl::Seconds(2), std::random_device()()) {}

  Answer Run() {
    runtime_->loop().CheckNotOnLoop("a coordinator was asked");
    const bool added = runtime_->AddOperation(
        [self = shared_from_this()] {
          self->End(absl::CancelledError("the client was destroyed"));
        },
        operation_);
    if (!added) return runtime_->CheckUsable();
    runtime_->loop().Post([self = shared_from_this()] { self->MakeTry(); });
    const EventLoop::Timer timer = runtime_->loop().PostAt(deadline_, [self = shared_from_this()] {
      self->End(absl::DeadlineExceededError(
          absl::StrCat("no answer in ", absl::FormatDuration(self->runtime_->call_deadline()),
                       "; last error: ", self->last_error_.ToString())));
    });
    Future<Done> ended = ended_.future();
    (void)ended.Get();
    runtime_->loop().Cancel(timer);
    return *answer_;
  }

 private:
  void MakeTry() {
    if (answer_.has_value()) return;
    call_ = try_(
        address_, [self = shared_from_this()](const Answer& answer, const std::string& holder) {
          self->runtime_->loop().Post([self, answer, holder] { self->OnAnswer(answer, holder); });
        });
  }

  void OnAnswer(const Answer& answer, const std::string& holder) {
    if (answer_.has_value()) return;
    call_.reset();
    const absl::Status& status = answer.status();
    const bool redirected = absl::IsFailedPrecondition(status) && !holder.empty();
    const std::vector<std::string>& coordinators = runtime_->options().coordinators;
    // A coordinator that was frozen since before the registration does not know that it was
    // replaced.
    const bool outdated = absl::IsNotFound(status) && ++not_found_ < coordinators.size();
    const bool transient = outdated || absl::IsUnavailable(status) ||
                           absl::IsDeadlineExceeded(status) || absl::IsCancelled(status);
    if (!redirected && !transient) return End(answer);
    runtime_->counters()->NoteRetry(status);
    last_error_ = status;
    if (holder.empty()) {
      rotation_ = (rotation_ + 1) % coordinators.size();
      address_ = coordinators[rotation_];
    } else {
      address_ = holder;
    }
    const int failures = failures_++;
    if (redirected && failures == 0) return MakeTry();
    runtime_->loop().PostAt(EventLoop::Now() + backoff_.Delay(failures),
                            [self = shared_from_this()] { self->MakeTry(); });
  }

  void End(Answer answer) {
    if (answer_.has_value()) return;
    answer_ = std::move(answer);
    if (call_ != nullptr) call_->Cancel();
    call_.reset();
    runtime_->RemoveOperation(operation_);
    ended_.Set(Done());
  }

  const std::shared_ptr<Runtime> runtime_;
  const Try try_;
  uint64_t operation_ = 0;
  Promise<Done> ended_;

  // Used on the loop. The waiting thread reads `answer_` once `ended_` is set.
  std::string address_;
  size_t rotation_ = 0;
  int failures_ = 0;
  // Answers that the job does not exist. They count as true once every coordinator may have been
  // asked.
  size_t not_found_ = 0;
  const absl::Time deadline_;
  Backoff backoff_;
  absl::Status last_error_ = absl::UnknownError("none");
  std::shared_ptr<OutgoingCall> call_;
  std::optional<Answer> answer_;
};

}  // namespace

absl::StatusOr<v1::JobDescription> RegisterJob(const std::shared_ptr<Runtime>& runtime,
                                               const v1::JobDefinition& definition) {
  v1::RegisterJobRequest request;
  *request.mutable_definition() = definition;
  const auto call = std::make_shared<JobCall>(
      runtime, [&runtime = *runtime, request](const std::string& address, auto done) {
        return runtime.coordinators().Register(address, request, runtime.try_timeout(),
                                               std::move(done));
      });
  return call->Run();
}

absl::StatusOr<v1::JobDescription> LookUpJob(const std::shared_ptr<Runtime>& runtime,
                                             const std::string& name) {
  v1::GetJobRequest request;
  request.set_job(name);
  const auto call = std::make_shared<JobCall>(runtime, [&runtime = *runtime, request](
                                                           const std::string& address, auto done) {
    return runtime.coordinators().GetJob(address, request, runtime.try_timeout(), std::move(done));
  });
  return call->Run();
}

}  // namespace kaon::client
