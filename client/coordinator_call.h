// One call to the coordinators of a cluster, also across a change of coordinator. Retries with
// jittered backoff, tries the coordinators in turn and follows redirects to the holder, within one
// deadline. Logs a wait that lasts (ClientOptions::wait_log_interval). Owned by the function that
// calls Run; the tries run on the client's event loop.
#ifndef KAON_CLIENT_COORDINATOR_CALL_H_
#define KAON_CLIENT_COORDINATOR_CALL_H_

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/backoff.h"
#include "client/kaon/future.h"
#include "client/runtime.h"
#include "client/transport/coordinator_client.h"
#include "client/wait_log.h"

namespace kaon::client {

template <typename Response>
class CoordinatorCall : public std::enable_shared_from_this<CoordinatorCall<Response>> {
 public:
  using Answer = absl::StatusOr<Response>;
  // Makes one try at an address.
  using Try = std::function<std::shared_ptr<OutgoingCall>(
      const std::string& address, CoordinatorClient::Callback<Response> done)>;

  struct Options {
    std::shared_ptr<Runtime> runtime;
    // Completes "waited 10 s for ".
    std::string what;
    // Time that the call may take, retries included.
    absl::Duration deadline;
    Try make_try;
    // Codes that end the call once every coordinator may have answered with one of them.
    std::vector<absl::StatusCode> outdated = {absl::StatusCode::kNotFound};
    // They end the call only if the newest answer of each coordinator is one of them.
    bool asks_each = false;
  };

  explicit CoordinatorCall(Options options)
      : options_(std::move(options)),
        runtime_(*options_.runtime),
        address_(runtime_.options().coordinators[0]),
        backoff_(absl::Milliseconds(20), absl::Seconds(2), std::random_device()()) {}

  // Blocks until the answer or the deadline; then returns DEADLINE_EXCEEDED with the number of
  // tries and the newest error of each address. Do not call it on the loop.
  Answer Run() {
    runtime_.loop().CheckNotOnLoop("a coordinator was asked");
    const auto self = this->shared_from_this();
    const bool added = runtime_.AddOperation(
        [self] { self->End(absl::CancelledError("the client was destroyed")); }, operation_);
    if (!added) return runtime_.CheckUsable();
    runtime_.loop().Post([self] { self->MakeTry(); });
    const EventLoop::Timer timer =
        runtime_.loop().PostAt(EventLoop::Now() + options_.deadline, [self] {
          self->End(absl::DeadlineExceededError(
              absl::StrCat("waited ", absl::FormatDuration(self->options_.deadline), " for ",
                           self->options_.what, ", ", self->num_tries_,
                           self->num_tries_ == 1 ? " try" : " tries", self->Errors())));
        });
    const WaitLog log(runtime_, [self] { return self->options_.what + self->Errors(); });
    Future<Done> ended = ended_.future();
    (void)ended.Get();
    runtime_.loop().Cancel(timer);
    return *answer_;
  }

 private:
  void MakeTry() {
    if (answer_.has_value()) return;
    ++num_tries_;
    call_ = options_.make_try(address_, [self = this->shared_from_this()](
                                            const Answer& answer, const std::string& holder) {
      self->runtime_.loop().Post([self, answer, holder] { self->OnAnswer(answer, holder); });
    });
  }

  void OnAnswer(const Answer& answer, const std::string& holder) {
    if (answer_.has_value()) return;
    call_.reset();
    const absl::Status& status = answer.status();
    const bool redirected = absl::IsFailedPrecondition(status) && !holder.empty();
    if (!redirected && !IsTransient(status)) return End(answer);
    runtime_.counters()->NoteRetry(status);
    errors_[address_] = status;
    const std::vector<std::string>& coordinators = runtime_.options().coordinators;
    if (holder.empty()) {
      rotation_ = (rotation_ + 1) % coordinators.size();
      address_ = coordinators[rotation_];
    } else {
      address_ = holder;
    }
    const int failures = failures_++;
    if (redirected && failures == 0) return MakeTry();
    runtime_.loop().PostAt(EventLoop::Now() + backoff_.Delay(failures),
                           [self = this->shared_from_this()] { self->MakeTry(); });
  }

  bool IsOutdated(const absl::Status& status) const {
    return std::find(options_.outdated.begin(), options_.outdated.end(), status.code()) !=
           options_.outdated.end();
  }

  bool IsTransient(const absl::Status& status) {
    const std::vector<std::string>& coordinators = runtime_.options().coordinators;
    if (IsOutdated(status) && options_.asks_each) {
      return std::any_of(coordinators.begin(), coordinators.end(), [&](const std::string& one) {
        const auto known = errors_.find(one);
        return one != address_ && (known == errors_.end() || !IsOutdated(known->second));
      });
    }
    // A coordinator that was frozen since before the registration does not know that it was
    // replaced.
    if (IsOutdated(status)) return ++num_outdated_ < coordinators.size();
    return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
           absl::IsCancelled(status);
  }

  std::string Errors() const {
    std::string text;
    for (const auto& [address, status] : errors_) {
      absl::StrAppend(&text, "; ", address, ": ", status.ToString());
    }
    if (errors_.count(address_) == 0) absl::StrAppend(&text, "; ", address_, ": no answer yet");
    return text;
  }

  void End(Answer answer) {
    if (answer_.has_value()) return;
    answer_ = std::move(answer);
    if (call_ != nullptr) call_->Cancel();
    call_.reset();
    runtime_.RemoveOperation(operation_);
    ended_.Set(Done());
  }

  const Options options_;
  Runtime& runtime_;
  uint64_t operation_ = 0;
  Promise<Done> ended_;

  // Used on the loop. The waiting thread reads `answer_` once `ended_` is set.
  std::string address_;
  size_t rotation_ = 0;
  int failures_ = 0;
  int num_tries_ = 0;
  // Answers with an outdated code.
  size_t num_outdated_ = 0;
  Backoff backoff_;
  // The newest error of each address that was tried.
  std::map<std::string, absl::Status> errors_;
  std::shared_ptr<OutgoingCall> call_;
  std::optional<Answer> answer_;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_COORDINATOR_CALL_H_
