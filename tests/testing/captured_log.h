// Captures the log messages of all threads of this process while it lives. Owned by one test.
#ifndef KAON_TESTS_TESTING_CAPTURED_LOG_H_
#define KAON_TESTS_TESTING_CAPTURED_LOG_H_

#include <glog/logging.h>

#include <string>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"

namespace kaon::testing {

class CapturedLog : public google::LogSink {
 public:
  CapturedLog() { google::AddLogSink(this); }
  ~CapturedLog() override { google::RemoveLogSink(this); }

  using google::LogSink::send;
  void send(google::LogSeverity, const char*, const char*, int, const google::LogMessageTime&,
            const char* message, size_t message_len) override {
    MutexLock lock(mu_);
    text_.append(message, message_len);
    text_.push_back('\n');
  }

  // Returns a line for each message, without severity, time and place.
  std::string text() const {
    MutexLock lock(mu_);
    return text_;
  }

 private:
  mutable Mutex mu_;
  std::string text_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::testing

#endif  // KAON_TESTS_TESTING_CAPTURED_LOG_H_
