// Attacks a coordinator with a worker's certificate: registers another definition of the job, of
// 900 routing rules, again and again by two threads.
//   register_flood ADDRESS CA CERTIFICATE KEY JOB
// Prints "begun" after the first answer. Once stdin ends, it prints how many calls were answered
// and how many were told to wait.
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/transport/channel.h"
#include "kaon/v1/coordinator.grpc.pb.h"

namespace kaon {
namespace {

constexpr int kRules = 900;
constexpr int kParameters = 200;
constexpr int kThreads = 2;

v1::RegisterJobRequest CostlyRequest(const std::string& job) {
  v1::RegisterJobRequest request;
  v1::JobDefinition& definition = *request.mutable_definition();
  definition.set_name(job);
  definition.set_world_size(1);
  v1::ParameterGroup& group = *definition.add_groups();
  group.set_name("all");
  group.set_rule(v1::RULE_SGD);
  group.set_lr(0.01);
  definition.set_matrix_group("all");
  definition.set_scalar_group("all");
  for (int i = 0; i < kParameters; ++i) {
    v1::ParameterSpec& parameter = *definition.add_parameters();
    parameter.set_name(absl::StrCat("layers.", i, ".attention.weight"));
    parameter.add_shape(16);
    parameter.set_dtype(v1::DTYPE_FLOAT32);
  }
  for (int i = 0; i < kRules; ++i) {
    v1::RoutingRule& rule = *definition.add_routing_rules();
    rule.set_name(absl::StrCat("rule-", i));
    rule.set_name_regex(absl::StrCat("([a-z0-9.]*", std::string(35, 'x'), ")|(w.*", i, "y+)$"));
    rule.set_lr_multiplier(0.5);
    rule.set_may_match_none(true);
  }
  return request;
}

int Run(char** arguments) {
  const TlsFiles tls{arguments[2], arguments[3], arguments[4]};
  const v1::RegisterJobRequest request = CostlyRequest(arguments[5]);
  const auto channel = client::CreateChannel(arguments[1], tls, proto::Role::kCoordinator);
  if (!channel.ok()) {
    std::cerr << channel.status() << "\n";
    return 1;
  }
  const auto stub = v1::Coordinator::NewStub(*channel);
  std::atomic<bool> is_over{false};
  std::atomic<int> answered{0};
  std::atomic<int> told_to_wait{0};
  const auto attack = [&] {
    while (!is_over) {
      grpc::ClientContext context;
      v1::JobDescription response;
      const grpc::Status status = stub->RegisterJob(&context, request, &response);
      const bool waits = status.error_code() == grpc::StatusCode::UNAVAILABLE;
      if (++(waits ? told_to_wait : answered) == 1 && !waits) {
        std::cout << "begun" << std::endl;
        std::cerr << "the first answer: " << status.error_message().substr(0, 200) << "\n";
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(attack);
  std::cin.get();
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  std::cout << answered << " registrations answered, " << told_to_wait << " told to wait"
            << std::endl;
  return 0;
}

}  // namespace
}  // namespace kaon

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  return kaon::Run(argv);
}
