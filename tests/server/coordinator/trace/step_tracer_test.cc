// Traces of real steps: a client trains on a cluster in this process, whose coordinator sends to a
// collector.
#include "server/coordinator/trace/step_tracer.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "client/kaon/client.h"
#include "kaon/v1/coordinator.grpc.pb.h"
#include "tests/server/coordinator/trace/trace_collector.h"
#include "tests/testing/in_process_cluster.h"

namespace kaon::coordinator {
namespace {

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kSpan[] = "b7ad6b7169203331";

// Asks to begin a step as a rank that never joined.
absl::StatusCode BeginUnjoined(const testing::InProcessCluster& cluster, uint64_t step) {
  const auto stub = v1::Coordinator::NewStub(
      grpc::CreateChannel(cluster.coordinator_address(), grpc::InsecureChannelCredentials()));
  v1::BeginStepRequest request;
  request.set_job("traced");
  request.set_step(step);
  request.set_token_weight(1);
  request.set_traceparent(std::string("00-") + kTrace + "-" + kSpan + "-01");
  grpc::ClientContext context;
  v1::BeginStepResponse response;
  return static_cast<absl::StatusCode>(stub->BeginStep(&context, request, &response).error_code());
}

// Trains steps 1 .. n; the second one is a part of the trainer's span.
void Train(testing::InProcessCluster& cluster, uint64_t n) {
  Client client = cluster.Connect();
  JobDefinition definition;
  definition.name = "traced";
  definition.parameters.resize(2);
  definition.parameters[0].name = "w";
  definition.parameters[0].shape = {2, 3};
  definition.parameters[1].name = "b";
  definition.parameters[1].shape = {4};
  Job job = client.Register(definition).value();
  Worker worker = job.Join(0).value();
  std::vector<std::vector<float>> values = {{1, 2, 3, 4, 5, 6}, {1, 2, 3, 4}};
  std::vector<TensorView> views;
  std::vector<MutableTensorView> weights;
  for (std::vector<float>& tensor : values) {
    views.emplace_back(tensor.data(), tensor.size(), DType::kFloat32);
    weights.emplace_back(tensor.data(), tensor.size(), DType::kFloat32);
  }
  worker.LoadWeights(views).Get().value();
  const std::vector<std::vector<float>> gradients = {{1, 0, 1, 0, 1, 0}, {1, 1, 1, 1}};
  std::vector<TensorView> pushed;
  for (const std::vector<float>& tensor : gradients) {
    pushed.emplace_back(tensor.data(), tensor.size(), DType::kFloat32);
  }
  for (uint64_t step = 1; step <= n; ++step) {
    BeginOptions begin;
    begin.step = step;
    // A refused request changes no trace.
    if (step == 3) {
      EXPECT_NE(BeginUnjoined(cluster, step), absl::StatusCode::kOk);
    }
    if (step == 2) begin.traceparent = std::string("00-") + kTrace + "-" + kSpan + "-01";
    ASSERT_TRUE(worker.RunStep(begin, pushed, 0.5, weights).value().applied);
  }
}

int64_t StepOf(const TraceSpan& span) {
  for (const auto& attribute : span.attributes()) {
    if (attribute.key() == "kaon.step") return attribute.value().int_value();
  }
  return -1;
}

TEST(StepTracerTest, ExportsEachStepOnceAsPartOfTheTrainersTrace) {
  testing::TraceCollector collector;
  testing::InProcessCluster cluster(2, "", 0, collector.address());
  Train(cluster, 5);
  // Each step has a span, one for each shard, and at least one phase on each.
  std::map<int64_t, TraceSpan> steps;
  std::set<std::string> names;
  int shards_of_second = 0;
  for (int wanted = 1; steps.size() < 5; ++wanted) {
    steps.clear();
    shards_of_second = 0;
    for (const auto& request : collector.Await(wanted)) {
      for (const TraceSpan& span : request.resource_spans(0).scope_spans(0).spans()) {
        names.insert(span.name());
        const bool in_second = absl::BytesToHexString(span.trace_id()) == kTrace;
        if (in_second && span.name().rfind("shard", 0) == 0) ++shards_of_second;
        if (span.name() != "step") continue;
        EXPECT_TRUE(steps.emplace(StepOf(span), span).second) << "twice";
      }
    }
  }
  EXPECT_EQ(shards_of_second, 2);
  for (const auto& [step, span] : steps) {
    EXPECT_EQ(absl::BytesToHexString(span.parent_span_id()), step == 2 ? kSpan : "");
    EXPECT_EQ(absl::BytesToHexString(span.trace_id()) == kTrace, step == 2);
    EXPECT_LT(span.start_time_unix_nano(), span.end_time_unix_nano());
  }
  for (const char* name : {"shard 0", "shard 1", "receive", "apply"}) {
    EXPECT_EQ(names.count(name), 1u) << name;
  }
}

}  // namespace
}  // namespace kaon::coordinator
