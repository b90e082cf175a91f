// Looks at servers as operators do while a benchmark runs: it scrapes the metrics of each once a
// second and holds a status page open. Owned by one benchmark; it has two threads of its own.
#ifndef KAON_TESTS_BENCHMARK_WATCHER_H_
#define KAON_TESTS_BENCHMARK_WATCHER_H_

#include <glog/logging.h>
#include <sys/socket.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/mutex.h"
#include "tests/server/monitor/metrics/http_client.h"

namespace kaon::benchmark {

class Watcher {
 public:
  // `ports` serve metrics; the page of `page_port` is opened with `token`.
  Watcher(std::vector<int> ports, int page_port, const std::string& token)
      : ports_(std::move(ports)), page_(page_port) {
    CHECK(page_.connected());
    page_.Send(absl::StrCat("GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ",
                            token, "\r\n\r\n"));
    CHECK_EQ(metrics::StatusOf(page_.ReadUntil("\r\n")), 200);
    reader_ = std::thread([this] { page_.ReadUntil(""); });
    scraper_ = std::thread([this] { Scrape(); });
  }
  ~Watcher() {
    {
      MutexLock lock(mu_);
      stopping_ = true;
      wake_.NotifyAll();
    }
    shutdown(page_.socket(), SHUT_RDWR);
    scraper_.join();
    reader_.join();
  }

 private:
  void Scrape() {
    while (true) {
      for (const int port : ports_) {
        CHECK_EQ(metrics::StatusOf(metrics::Fetch(port, "/metrics")), 200);
      }
      MutexLock lock(mu_);
      if (!stopping_) wake_.WaitFor(mu_, absl::Seconds(1));
      if (stopping_) return;
    }
  }

  const std::vector<int> ports_;
  metrics::HttpConnection page_;
  Mutex mu_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread scraper_;
  std::thread reader_;
};

}  // namespace kaon::benchmark

#endif  // KAON_TESTS_BENCHMARK_WATCHER_H_
