// A coordinator and one shard in one process on a loopback port, without agreement or optimizer,
// for tests of the client. Takes the pushes of one worker, decides at once, and serves the weights
// that the test sets. Owned by a test; thread-safe.
#ifndef KAON_TESTS_TESTING_FAKE_CLUSTER_H_
#define KAON_TESTS_TESTING_FAKE_CLUSTER_H_

#include <grpcpp/support/status.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kaon/v1/coordinator.pb.h"
#include "kaon/v1/shard_data.pb.h"
#include "kernels/mutex.h"

namespace kaon::testing {

class FakeCluster {
 public:
  FakeCluster();
  ~FakeCluster();

  // Address in the form "127.0.0.1:port".
  const std::string& address() const { return address_; }

  // Sets the payload bytes that the shard grants a stream. Call it before the step.
  void SetCreditWindow(uint64_t bytes);
  // Withholds credit until it is called with false.
  void HoldCredits(bool hold);
  // Withholds decisions until it is called with false.
  void HoldDecisions(bool hold);
  // The next `count` pushes, or pulls, end with `status`.
  void FailPushes(int count, const absl::Status& status);
  void FailPulls(int count, const absl::Status& status);
  // The next `count` pulls end as on a broken connection: gRPC makes the status, not a server of
  // ours.
  void LosePulls(int count, const grpc::Status& status);
  // Makes pulled payloads differ from their checksums.
  void CorruptPulls(bool corrupt);
  // Blocks pulls until it is called with false.
  void HoldPulls(bool hold);
  // Sets the outcome of the next plans.
  void SetOutcome(v1::Outcome outcome, const std::string& reason);
  // Makes every coordinator call fail with a redirect to `holder`.
  void RedirectTo(const std::string& holder);
  // Sets the value of every element that is pulled.
  void SetWeight(float weight);

  // Returns the bytes of contribution (parameter, micro-batch) of the newest step.
  std::string Contribution(uint32_t parameter_id, uint32_t micro_batch) const;
  std::vector<v1::PushFinish> finishes() const;
  uint64_t received_bytes() const;
  int num_pushes() const;
  // Blocks until so many payload bytes, or pushes, have come.
  void AwaitReceivedBytes(uint64_t bytes);
  void AwaitPushes(int count);

 private:
  class CoordinatorService;
  class ShardService;
  struct Server;

  using Key = std::pair<uint32_t, uint32_t>;

  struct State {
    uint64_t credit_window = 4 << 20;
    bool hold_credits = false;
    bool hold_decisions = false;
    bool corrupt_pulls = false;
    bool hold_pulls = false;
    int failing_pushes = 0;
    absl::Status push_failure;
    int failing_pulls = 0;
    grpc::Status pull_failure;
    v1::Outcome outcome = v1::OUTCOME_APPLY;
    std::string reason;
    std::string redirect;
    float weight = 0;
    std::optional<v1::JobDefinition> job;
    uint64_t applied_step = 0;
    bool weights_loaded = false;
    uint32_t joins = 0;
    // Step and attempt that BeginStep announced.
    std::string begun;
    bool finished = false;
    std::map<Key, std::string> contributions;
    std::vector<v1::PushFinish> finishes;
    uint64_t received_bytes = 0;
    int num_pushes = 0;
    bool stopping = false;
  };

  void Change(const std::function<void(State&)>& change);
  v1::JobDescription DescribeLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  CondVar changed_;
  State state_ ABSL_GUARDED_BY(mu_);

  std::string address_;
  std::unique_ptr<Server> server_;
};

}  // namespace kaon::testing

#endif  // KAON_TESTS_TESTING_FAKE_CLUSTER_H_
