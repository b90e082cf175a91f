#include "server/coordinator/trace/trace_sender.h"

#include <glog/logging.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/transport/loopback.h"
#include "kaon/v1/trace_collector.grpc.pb.h"
#include "proto/grpc_deadline.h"
#include "proto/text.h"
#include "proto/version.h"

namespace kaon::coordinator {

namespace {

namespace otlp = opentelemetry::proto::collector::trace::v1;

constexpr absl::Duration kPatience = absl::Seconds(5);
constexpr size_t kMostUnanswered = 32;

}  // namespace

struct TraceSender::Calls {
  struct Call {
    grpc::ClientContext context;
    otlp::ExportTraceServiceRequest request;
    otlp::ExportTraceServiceResponse response;
    uint64_t num_spans = 0;
  };

  std::unique_ptr<otlp::TraceService::Stub> stub;
  Mutex mu;
  CondVar ended;
  std::set<std::shared_ptr<Call>> open ABSL_GUARDED_BY(mu);
  uint64_t sent ABSL_GUARDED_BY(mu) = 0;
  uint64_t lost ABSL_GUARDED_BY(mu) = 0;

  void End(const std::shared_ptr<Call>& call, const grpc::Status& status) {
    MutexLock lock(mu);
    open.erase(call);
    const auto refused = static_cast<uint64_t>(call->response.partial_success().rejected_spans());
    const uint64_t failed = status.ok() ? std::min(refused, call->num_spans) : call->num_spans;
    sent += call->num_spans - failed;
    lost += failed;
    if (failed > 0) {
      LOG_EVERY_T(WARNING, 60) << lost << " spans are lost: the collector says "
                               << (status.ok() ? call->response.partial_success().error_message()
                                               : status.error_message());
    }
    ended.NotifyAll();
  }
};

absl::Status TraceSender::CheckAddress(const std::string& address) {
  if (address.empty() || client::IsLoopback(address)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("traces_address is \"", proto::Excerpt(address),
                   "\", must be host:port on loopback, where a collector forwards the traces"));
}

TraceSender::TraceSender(const std::string& address, std::string name)
    : name_(std::move(name)), calls_(std::make_shared<Calls>()) {
  grpc::ChannelArguments arguments;
  // A proxy from the environment would see the traces.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  calls_->stub = otlp::TraceService::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

TraceSender::~TraceSender() {
  MutexLock lock(calls_->mu);
  for (const auto& call : calls_->open) call->context.TryCancel();
  while (!calls_->open.empty()) calls_->ended.Wait(calls_->mu);
}

void TraceSender::Send(std::vector<TraceSpan> spans) {
  const auto call = std::make_shared<Calls::Call>();
  call->num_spans = spans.size();
  call->context.set_deadline(proto::DeadlineAfter(kPatience));
  otlp::ResourceSpans& resource = *call->request.add_resource_spans();
  otlp::KeyValue& service = *resource.mutable_resource()->add_attributes();
  service.set_key("service.name");
  service.mutable_value()->set_string_value(name_);
  otlp::ScopeSpans& scope = *resource.add_scope_spans();
  scope.mutable_scope()->set_name("kaon");
  scope.mutable_scope()->set_version(proto::ThisVersion().version);
  for (TraceSpan& span : spans) *scope.add_spans() = std::move(span);
  {
    MutexLock lock(calls_->mu);
    if (calls_->open.size() >= kMostUnanswered) {
      calls_->lost += call->num_spans;
      return;
    }
    calls_->open.insert(call);
  }
  calls_->stub->async()->Export(
      &call->context, &call->request, &call->response,
      [calls = calls_, call](const grpc::Status& status) { calls->End(call, status); });
}

uint64_t TraceSender::num_sent() const {
  MutexLock lock(calls_->mu);
  return calls_->sent;
}

uint64_t TraceSender::num_lost() const {
  MutexLock lock(calls_->mu);
  return calls_->lost;
}

}  // namespace kaon::coordinator
