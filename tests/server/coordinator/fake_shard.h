// A fake shard in memory behind a real gRPC port on loopback. Makes promises, votes for every plan
// at once, and applies every decision. Owned by a test; gRPC's threads call the service.
#ifndef KAON_TESTS_SERVER_COORDINATOR_FAKE_SHARD_H_
#define KAON_TESTS_SERVER_COORDINATOR_FAKE_SHARD_H_

#include <grpcpp/server.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kaon/v1/shard_control.grpc.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "kernels/mutex.h"

namespace kaon::coordinator {

class FakeShard : public v1::ShardControl::Service {
 public:
  // Listens on `address`; port 0 = any.
  explicit FakeShard(const std::string& address = "127.0.0.1:0");
  ~FakeShard() override;

  const std::string& address() const { return address_; }
  // Returns the state that a real shard would lose with its memory.
  v1::ShardState state();
  // If false, accepts plans without a vote until it is called with true.
  void set_votes(bool votes);
  // Sets the build in its description; "test" by default. The backend is cpu and the device class
  // x86-64.
  void set_build(const std::string& build);
  // Sets why nothing can be made durable, in its description.
  void set_read_only(const std::string& reason);
  // Makes requests for a checkpoint fail. By default the shard never writes any of it.
  void FailCheckpoints(const absl::Status& status);
  void Stop();

 private:
  grpc::Status Control(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::ShardToCoordinator, v1::CoordinatorToShard>* stream) override;
  grpc::Status ReadHistory(grpc::ServerContext* context, const v1::ReadHistoryRequest* request,
                           v1::ReadHistoryResponse* response) override;
  grpc::Status DescribeShard(grpc::ServerContext* context, const v1::DescribeShardRequest* request,
                             v1::DescribeShardResponse* response) override;
  // Answers for any parameter: its id and the shard's newest step.
  grpc::Status GetParameterStats(grpc::ServerContext* context,
                                 const v1::ShardParameterRequest* request,
                                 v1::ParameterStats* response) override;
  grpc::Status GetParameterDiagnostics(grpc::ServerContext* context,
                                       const v1::ShardParameterRequest* request,
                                       v1::ParameterDiagnostics* response) override;
  grpc::Status ReadParameterHistory(grpc::ServerContext* context,
                                    const v1::ShardParameterRequest* request,
                                    v1::ParameterHistory* response) override;
  grpc::Status ReadSlice(grpc::ServerContext* context, const v1::ShardSliceRequest* request,
                         v1::TensorSlice* response) override;

  // Returns the answer to a message; an empty one is not sent.
  v1::ShardToCoordinator Answer(const v1::CoordinatorToShard& message);
  void ApplyLocked(const v1::StepRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  std::string address_;
  Mutex mu_;
  v1::Ballot promised_ ABSL_GUARDED_BY(mu_);
  std::string holder_ ABSL_GUARDED_BY(mu_);
  // Time of the last message of the promised ballot.
  absl::Time heard_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  uint32_t shard_ ABSL_GUARDED_BY(mu_) = 0;
  bool votes_ ABSL_GUARDED_BY(mu_) = true;
  std::string build_ ABSL_GUARDED_BY(mu_) = "test";
  std::string read_only_ ABSL_GUARDED_BY(mu_);
  absl::Status checkpoints_ ABSL_GUARDED_BY(mu_);
  v1::ShardState state_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::StepRecord> history_ ABSL_GUARDED_BY(mu_);

  std::unique_ptr<grpc::Server> server_;
};

}  // namespace kaon::coordinator

#endif  // KAON_TESTS_SERVER_COORDINATOR_FAKE_SHARD_H_
