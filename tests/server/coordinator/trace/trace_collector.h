// A collector of OpenTelemetry for tests: keeps what it gets. Thread-safe.
#ifndef KAON_TESTS_SERVER_COORDINATOR_TRACE_TRACE_COLLECTOR_H_
#define KAON_TESTS_SERVER_COORDINATOR_TRACE_TRACE_COLLECTOR_H_

#include <grpcpp/server_builder.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kaon/v1/trace_collector.grpc.pb.h"
#include "kernels/mutex.h"

namespace kaon::testing {

class TraceCollector : public opentelemetry::proto::collector::trace::v1::TraceService::Service {
 public:
  using Request = opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;
  using Response = opentelemetry::proto::collector::trace::v1::ExportTraceServiceResponse;

  TraceCollector() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~TraceCollector() override { server_->Shutdown(); }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  // Makes calls wait until Release.
  void Hold() {
    MutexLock lock(mu_);
    holds_ = true;
  }
  void Release() {
    MutexLock lock(mu_);
    holds_ = false;
    changed_.NotifyAll();
  }
  void AwaitCall() {
    MutexLock lock(mu_);
    while (requests_.empty()) changed_.Wait(mu_);
  }
  // Waits for so many spans, and returns the requests so far.
  std::vector<Request> Await(int num_spans) {
    MutexLock lock(mu_);
    while (num_spans_ < num_spans) changed_.Wait(mu_);
    return requests_;
  }

  grpc::Status Export(grpc::ServerContext*, const Request* request, Response*) override {
    MutexLock lock(mu_);
    requests_.push_back(*request);
    for (const auto& resource : request->resource_spans()) {
      for (const auto& scope : resource.scope_spans()) num_spans_ += scope.spans_size();
    }
    changed_.NotifyAll();
    while (holds_) changed_.Wait(mu_);
    return grpc::Status::OK;
  }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  Mutex mu_;
  CondVar changed_;
  bool holds_ ABSL_GUARDED_BY(mu_) = false;
  int num_spans_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Request> requests_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::testing

#endif  // KAON_TESTS_SERVER_COORDINATOR_TRACE_TRACE_COLLECTOR_H_
