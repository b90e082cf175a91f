// A value that arrives later, with deadline and cancellation. Movable, one consumer; the producer
// may be any library thread. Destroying a Future does not cancel its operation. C++17, standard
// library only.
#ifndef KAON_CLIENT_KAON_FUTURE_H_
#define KAON_CLIENT_KAON_FUTURE_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "kaon/status.h"

namespace kaon {

// Result of an operation that has no value to return.
struct Done {};

template <typename T>
class Future;

// The producing end. Copies share one state. The first Set counts; later ones are ignored.
template <typename T>
class Promise {
 public:
  Promise() : state_(std::make_shared<State>()) {}

  Future<T> future() const { return Future<T>(state_); }

  // Stores the result and wakes the consumer. Returns false if a result was already stored.
  bool Set(Result<T> result) const {
    // The consumer may destroy this promise as soon as the result is stored.
    const std::shared_ptr<State> state = state_;
    {
      std::lock_guard<std::mutex> lock(state->mu);
      if (state->result.has_value()) return false;
      state->result.emplace(std::move(result));
      state->cancel = nullptr;
    }
    state->ready.notify_all();
    return true;
  }

  // Registers the function that Future::Cancel calls, at most once and on its own thread, while
  // there is no result.
  void OnCancel(std::function<void()> cancel) const {
    std::lock_guard<std::mutex> lock(state_->mu);
    if (!state_->result.has_value()) state_->cancel = std::move(cancel);
  }

 private:
  friend class Future<T>;
  struct State {
    std::mutex mu;
    std::condition_variable ready;
    std::optional<Result<T>> result;
    std::function<void()> cancel;
  };
  std::shared_ptr<State> state_;
};

template <typename T>
class Future {
 public:
  Future() = default;

  bool valid() const { return state_ != nullptr; }

  // Returns true if Get() would return at once.
  bool Ready() const {
    std::lock_guard<std::mutex> lock(state_->mu);
    return state_->result.has_value();
  }

  // Waits for the result and moves it out: call this once. It returns in the end, because every
  // operation of the library has a deadline (ClientOptions); a push has its step's.
  Result<T> Get() {
    std::unique_lock<std::mutex> lock(state_->mu);
    state_->ready.wait(lock, [this] { return state_->result.has_value(); });
    return std::move(*state_->result);
  }

  // Returns false if the result did not arrive in time; the operation continues. Accepts any
  // duration, even max(), and waits at most 100 years.
  template <typename Rep, typename Period>
  bool WaitFor(const std::chrono::duration<Rep, Period>& timeout) const {
    // Compared as doubles: longer durations overflow nanoseconds and the clock.
    constexpr std::chrono::hours kLongest(24 * 365 * 100);
    const bool is_longest = std::chrono::duration<double>(timeout) >= kLongest;
    const std::chrono::nanoseconds wait =
        is_longest ? kLongest : std::chrono::duration_cast<std::chrono::nanoseconds>(timeout);
    std::unique_lock<std::mutex> lock(state_->mu);
    return state_->ready.wait_for(lock, wait, [this] { return state_->result.has_value(); });
  }

  // Asks the operation to stop. The result becomes CANCELLED unless another one is already on its
  // way.
  void Cancel() {
    std::function<void()> cancel;
    {
      std::lock_guard<std::mutex> lock(state_->mu);
      cancel = std::move(state_->cancel);
      state_->cancel = nullptr;
    }
    if (cancel) cancel();
  }

 private:
  friend class Promise<T>;
  using State = typename Promise<T>::State;
  explicit Future(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

}  // namespace kaon

#endif  // KAON_CLIENT_KAON_FUTURE_H_
