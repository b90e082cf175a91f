// Attacks a job with a worker's certificate: takes a rank, begins the next step, follows it and
// pushes nothing. Joins anew twice a second, as another process each time.
//   step_holder ADDRESS TLS_DIR JOB RANK
// Prints "holds" once it has begun a step. Runs until it is killed.
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <iostream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/transport/channel.h"
#include "kaon/v1/coordinator.grpc.pb.h"
#include "kernels/mutex.h"

namespace kaon {
namespace {

constexpr absl::Duration kBetweenJoins = absl::Milliseconds(500);

// Takes the rank and begins the step after the newest.
grpc::Status Begin(v1::Coordinator::Stub& stub, const v1::JoinWorkerRequest& join,
                   v1::BeginStepRequest& begin) {
  v1::JoinWorkerResponse joined;
  grpc::ClientContext joining;
  const grpc::Status status = stub.JoinWorker(&joining, join, &joined);
  if (!status.ok()) return status;
  begin.set_job(join.job());
  begin.set_rank(join.rank());
  *begin.mutable_attempt() = joined.attempt();
  begin.set_process_nonce(join.process_nonce());
  begin.set_step(joined.applied_step() + 1);
  begin.set_token_weight(1);
  v1::BeginStepResponse begun;
  grpc::ClientContext beginning;
  return stub.BeginStep(&beginning, begin, &begun);
}

// Follows the step until the next join.
void Follow(v1::Coordinator::Stub& stub, const v1::BeginStepRequest& begun) {
  v1::AwaitStepRequest request;
  request.set_job(begun.job());
  request.set_rank(begun.rank());
  *request.mutable_attempt() = begun.attempt();
  request.set_step(begun.step());
  grpc::ClientContext context;
  const auto stream = stub.AwaitStep(&context, request);
  Mutex mu;
  CondVar never;
  MutexLock lock(mu);
  never.WaitFor(mu, kBetweenJoins);
  context.TryCancel();
  stream->Finish();
}

// Takes over the multiplier that a refusal names: the ranks agree on one for each step.
void Agree(const std::string& refusal, v1::BeginStepRequest& begin) {
  constexpr absl::string_view kBefore = "the ranks agreed on ";
  const size_t at = refusal.find(kBefore.data());
  if (at == std::string::npos) return;
  const std::string rest = refusal.substr(at + kBefore.size());
  double multiplier = 1;
  if (absl::SimpleAtod(rest.substr(0, rest.find(' ')), &multiplier)) {
    begin.set_learning_rate_multiplier(multiplier);
  }
}

int Run(char** arguments) {
  const std::string certificate = absl::StrCat(arguments[2], "/worker-", arguments[4]);
  const TlsFiles tls{absl::StrCat(arguments[2], "/ca.crt"), certificate + ".crt",
                     certificate + ".key"};
  v1::JoinWorkerRequest join;
  join.set_job(arguments[3]);
  uint32_t rank = 0;
  if (!absl::SimpleAtoi(arguments[4], &rank)) return 2;
  join.set_rank(rank);
  const auto channel = client::CreateChannel(arguments[1], tls, proto::Role::kCoordinator);
  if (!channel.ok()) {
    std::cerr << channel.status() << "\n";
    return 1;
  }
  const auto stub = v1::Coordinator::NewStub(*channel);
  v1::BeginStepRequest begin;
  for (uint64_t nonce = 1;; ++nonce) {
    join.set_process_nonce(nonce);
    const grpc::Status status = Begin(*stub, join, begin);
    if (!status.ok()) std::cerr << status.error_message() << std::endl;
    if (status.ok()) std::cout << "holds" << std::endl;
    Agree(status.error_message(), begin);
    // A refused join leaves the attempt before it in place.
    Follow(*stub, begin);
  }
}

}  // namespace
}  // namespace kaon

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  return kaon::Run(argv);
}
