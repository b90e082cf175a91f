// A CoordinatorServer over two FakeShards, and blocking calls to it. Owned by one test; one thread.
#ifndef KAON_TESTS_SERVER_COORDINATOR_SERVER_FIXTURE_H_
#define KAON_TESTS_SERVER_COORDINATOR_SERVER_FIXTURE_H_

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kaon/v1/admin.grpc.pb.h"
#include "kaon/v1/coordinator.grpc.pb.h"
#include "server/coordinator/coordinator_server.h"
#include "tests/server/coordinator/fake_shard.h"

namespace kaon::coordinator {

class ServerFixture : public ::testing::Test {
 protected:
  void SetUp() override;

  // Starts another coordinator of the same shards.
  std::unique_ptr<CoordinatorServer> StartCoordinator(uint32_t takeover_ms = 100);
  // Ends the coordinator and starts another one, which holds the shards when this returns.
  void ReplaceCoordinator();
  // Points the stubs at `server`.
  void Use(const CoordinatorServer& server);
  // Polls the status until `done` accepts it.
  void WaitFor(const std::function<bool(const v1::GetStatusResponse&)>& done);
  // Registers TestJob(world_size), joins every rank with nonce 100 + rank, loads the weights.
  void Train(uint32_t world_size = 2);
  // Returns everything a caller can see of coordinator and shards, except counters.
  std::string Visible();
  // Returns the coordinator's counters by event.
  std::map<std::string, uint64_t> Counted();

  // Makes one unary call: Call(&v1::Admin::Stub::GetStatus, *admin_, request, &response).
  template <typename Stub, typename Request, typename Response>
  absl::Status Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    typename std::type_identity_t<Stub>& stub, const Request& request,
                    Response* response);
  absl::Status Register(const v1::JobDefinition& job);
  absl::Status GetJob(const std::string& job, v1::JobDescription* response);
  absl::Status Join(const v1::JoinWorkerRequest& request, v1::JoinWorkerResponse* response);
  absl::Status Begin(const v1::BeginStepRequest& request, v1::BeginStepResponse* response);
  // Reads the stream to its end.
  absl::Status Await(const v1::AwaitStepRequest& request, std::vector<v1::StepEvent>* events);
  v1::JoinWorkerRequest JoinRequest(uint32_t rank);
  v1::BeginStepRequest BeginRequest(uint32_t rank, uint64_t step);
  v1::AwaitStepRequest AwaitRequest(uint32_t rank, uint64_t step);
  v1::GetStatusResponse Status();

  // Checkpoint directory of the coordinators that start from now on.
  std::string checkpoint_dir_;
  // If set before SetUp, coordinators serve metrics and the status page.
  std::string metrics_token_file_;
  std::vector<std::unique_ptr<FakeShard>> shards_;
  std::unique_ptr<CoordinatorServer> server_;
  std::unique_ptr<v1::Coordinator::Stub> coordinator_;
  std::unique_ptr<v1::Admin::Stub> admin_;
  std::vector<v1::Attempt> attempts_;
  // `kaon-holder` of the last call; empty if the answer had none.
  std::string holder_;

 private:
  absl::Status Finished(const grpc::ClientContext& context, const grpc::Status& status);
};

template <typename Stub, typename Request, typename Response>
absl::Status ServerFixture::Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                              Response*),
                                 typename std::type_identity_t<Stub>& stub, const Request& request,
                                 Response* response) {
  grpc::ClientContext context;
  return Finished(context, (stub.*method)(&context, request, response));
}

}  // namespace kaon::coordinator

#endif  // KAON_TESTS_SERVER_COORDINATOR_SERVER_FIXTURE_H_
