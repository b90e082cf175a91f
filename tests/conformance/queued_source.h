// A PushSource that sends the messages a test queues and records the shard's answers. Thread-safe.
#ifndef KAON_TESTS_CONFORMANCE_QUEUED_SOURCE_H_
#define KAON_TESTS_CONFORMANCE_QUEUED_SOURCE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "client/transport/shard_channel.h"
#include "kernels/mutex.h"

namespace kaon::client {

class QueuedSource : public PushSource {
 public:
  void Queue(PushMessage message) {
    MutexLock lock(mu_);
    messages_.push_back(std::move(message));
  }
  // Sets the source's answer to the shard's PushOpened.
  void SetOpenedStatus(const absl::Status& status) {
    MutexLock lock(mu_);
    opened_status_ = status;
  }
  absl::Status AwaitDone() {
    MutexLock lock(mu_);
    while (!done_.has_value()) changed_.Wait(mu_);
    return *done_;
  }
  v1::PushOpened AwaitOpened() {
    MutexLock lock(mu_);
    while (!opened_.has_value()) changed_.Wait(mu_);
    return *opened_;
  }
  uint64_t AwaitCredit() {
    MutexLock lock(mu_);
    while (credit_bytes_ == 0) changed_.Wait(mu_);
    return credit_bytes_;
  }

  absl::Status OnOpened(const v1::PushOpened& opened) override {
    MutexLock lock(mu_);
    opened_ = opened;
    changed_.NotifyAll();
    return opened_status_;
  }
  void OnCredit(uint64_t bytes) override {
    MutexLock lock(mu_);
    credit_bytes_ += bytes;
    changed_.NotifyAll();
  }
  PushMessage Next() override {
    MutexLock lock(mu_);
    if (messages_.empty()) return std::monostate();
    PushMessage next = std::move(messages_.front());
    messages_.pop_front();
    return next;
  }
  void OnDone(const absl::Status& status) override {
    MutexLock lock(mu_);
    EXPECT_FALSE(done_.has_value()) << "done twice";
    done_ = status;
    changed_.NotifyAll();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::deque<PushMessage> messages_ ABSL_GUARDED_BY(mu_);
  absl::Status opened_status_ ABSL_GUARDED_BY(mu_);
  std::optional<v1::PushOpened> opened_ ABSL_GUARDED_BY(mu_);
  uint64_t credit_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<absl::Status> done_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::client

#endif  // KAON_TESTS_CONFORMANCE_QUEUED_SOURCE_H_
