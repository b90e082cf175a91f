// A value that arrives later, with deadline and cancellation. Movable; one consumer calls Get or
// Then. The producer may be any library thread. Destroying a Future does not cancel its operation.
// C++17, standard library only.
#ifndef KAON_CLIENT_KAON_FUTURE_H_
#define KAON_CLIENT_KAON_FUTURE_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

#include "kaon/status.h"

namespace kaon {

// Result of an operation that has no value to return.
struct Done {};

template <typename T>
class Future;

// Value type of the future that Future::Then returns for a function that returns R.
template <typename R>
struct ThenValue {
  using Type = R;
};
template <typename R>
struct ThenValue<Result<R>> {
  using Type = R;
};
template <>
struct ThenValue<void> {
  using Type = Done;
};

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
    std::function<void()> then;
    {
      std::lock_guard<std::mutex> lock(state->mu);
      if (state->result.has_value()) return false;
      state->result.emplace(std::move(result));
      state->cancel = nullptr;
      then = std::move(state->then);
      state->then = nullptr;
    }
    state->ready.notify_all();
    if (then) then();
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
    // Takes the result in place of Get.
    std::function<void()> then;
  };
  std::shared_ptr<State> state_;
};

template <typename T>
class [[nodiscard]] Future {
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

  // Calls `f` once with the Result<T>, in place of Get. Returns the future of the outcome of `f`:
  // of U if `f` returns U or Result<U>, of Done if it returns nothing. Takes this future:
  // std::move(future).Then(f).
  // `f` runs on the library thread that stores the result, or at once on this thread if there is a
  // result. It may call Push, Finish, Pull and Then. It must not wait for a future, destroy a Step
  // or the Client, or throw: the library would wait for itself. Cancel of the returned future
  // cancels this operation. The library owns `f` until it has run.
  template <typename F>
  Future<typename ThenValue<std::invoke_result_t<F&, Result<T>>>::Type> Then(F f) &&;

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

template <typename T>
template <typename F>
Future<typename ThenValue<std::invoke_result_t<F&, Result<T>>>::Type> Future<T>::Then(F f) && {
  using R = std::invoke_result_t<F&, Result<T>>;
  const Promise<typename ThenValue<R>::Type> promise;
  const std::shared_ptr<State> state = std::move(state_);
  // Weak: the operation owns the promise of `state`, which owns `promise` until there is a result.
  promise.OnCancel([weak = std::weak_ptr<State>(state)] {
    if (const std::shared_ptr<State> state = weak.lock()) Future(state).Cancel();
  });
  // A std::function must be copyable, and `f` need not be.
  const auto shared = std::make_shared<F>(std::move(f));
  // Runs once the result is stored, so a plain pointer to the state is alive.
  const auto run = [promise, shared, state = state.get()] {
    if constexpr (std::is_void_v<R>) {
      (*shared)(std::move(*state->result));
      promise.Set(Done());
    } else {
      promise.Set((*shared)(std::move(*state->result)));
    }
  };
  {
    std::lock_guard<std::mutex> lock(state->mu);
    if (!state->result.has_value()) {
      state->then = run;
      return promise.future();
    }
  }
  run();
  return promise.future();
}

}  // namespace kaon

#endif  // KAON_CLIENT_KAON_FUTURE_H_
