// A real shard and a ShardChannel to it; the test plays the coordinator. One thread.
#ifndef KAON_TESTS_CONFORMANCE_SHARD_CHANNEL_CONFORMANCE_FIXTURE_H_
#define KAON_TESTS_CONFORMANCE_SHARD_CHANNEL_CONFORMANCE_FIXTURE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/transport/call_tracker.h"
#include "client/transport/shard_channel.h"
#include "client/transport/transfer_counters.h"
#include "kernels/mutex.h"
#include "tests/conformance/queued_source.h"
#include "tests/server/shard/transport/served_shard.h"
#include "tests/testing/fake_link.h"

namespace kaon::client {

using MakeShardChannel = std::function<std::shared_ptr<ShardChannel>(
    std::shared_ptr<grpc::Channel> connection, std::shared_ptr<CallTracker> tracker,
    std::shared_ptr<TransferCounters> counters, kernels::FakeFabric& fabric)>;

// Connects the devices of the test and of the shard. Outlives both.
struct ConnectedDevices {
  const std::shared_ptr<kernels::FakeFabric> fabric = std::make_shared<kernels::FakeFabric>();
};

// The shard has the job of tests/server/shard/agreement/plans.h, and step 1 is planned.
class ShardChannelConformance : private ConnectedDevices,
                                public shard::ServedShardTest,
                                public testing::WithParamInterface<MakeShardChannel> {
 protected:
  ShardChannelConformance() : shard::ServedShardTest(/*shm_sessions=*/2, fabric->NewLink()) {
    PlanStepOne();
    shard_ = GetParam()(channel_, tracker_, counters_, *fabric);
  }
  kernels::FakeFabric& devices() { return *fabric; }
  // Shuts down in the order of the client's Runtime.
  void TearDown() override {
    tracker_->AwaitNone();
    shard_.reset();
  }

  // Returns a chunk with all of a parameter; the fixture owns the memory.
  ChunkToSend Chunk(uint32_t parameter, const std::vector<float>& values) {
    memory_.push_back(std::make_unique<std::vector<float>>(values));
    return {{parameter, 0},
            0,
            values.size(),
            DType::kFloat32,
            absl::MakeConstSpan(reinterpret_cast<const std::byte*>(memory_.back()->data()),
                                values.size() * sizeof(float))};
  }
  LeasedChunks Leased(std::vector<ChunkToSend> chunks) { return {std::move(chunks), lease_}; }

  // Returns a source of the whole of step 1.
  std::shared_ptr<QueuedSource> WholeStep() {
    auto source = std::make_shared<QueuedSource>();
    source->Queue(Leased({Chunk(0, {1, 2, 3, 4, 5, 6})}));
    source->Queue(Leased({Chunk(1, {1, 2, 3, 4})}));
    source->Queue(v1::PushFinish());
    return source;
  }
  // Blocks until the history of step 1 has the phase, and returns it.
  v1::Phase AwaitPhase(const std::string& name) {
    v1::ReadHistoryRequest request;
    request.set_with_phases(true);
    // The shard records a phase just after it answers the worker, so this retries.
    for (int attempt = 0; attempt < 10000; ++attempt) {
      v1::ReadHistoryResponse response;
      const grpc::Status status =
          control_->ReadHistory(shard::WithDeadline().get(), request, &response);
      EXPECT_TRUE(status.ok()) << status.error_message();
      for (const v1::StepPhases& step : response.phases()) {
        if (step.step() != 1) continue;
        for (const v1::Phase& phase : step.phases()) {
          if (phase.name() == name) return phase;
        }
      }
    }
    ADD_FAILURE() << "the shard says nothing of phase " << name;
    return {};
  }

  static v1::PushOpen Open(uint32_t rank) { return OpenRequest(rank, 1).open(); }

  struct Pulled {
    absl::Status status;
    std::vector<std::vector<float>> values;
    uint64_t bytes = 0;
  };
  // Result of a pull of parameters with the given numbers of elements.
  struct PullUnderWay {
    Mutex mu;
    CondVar changed;
    std::optional<absl::Status> status ABSL_GUARDED_BY(mu);
    std::vector<std::vector<float>> values;
    std::atomic<uint64_t> bytes{0};
    std::shared_ptr<PullStream> stream;

    Pulled Await() {
      MutexLock lock(mu);
      while (!status.has_value()) changed.Wait(mu);
      // The stream holds the callbacks, which hold this object.
      stream.reset();
      return {*status, values, bytes};
    }
  };
  std::shared_ptr<PullUnderWay> StartPull(uint64_t step,
                                          const std::vector<std::pair<uint32_t, size_t>>& wanted,
                                          absl::Duration timeout = absl::InfiniteDuration()) {
    auto pull = std::make_shared<PullUnderWay>();
    PullOptions options;
    options.request = PullOf(step, {});
    for (const auto& [id, elements] : wanted) {
      options.request.add_parameter_ids(id);
      pull->values.emplace_back(elements);
    }
    for (std::vector<float>& values : pull->values) {
      options.targets.push_back({values.data(), values.size(), DType::kFloat32});
    }
    options.timeout = timeout;
    options.on_bytes = [pull](uint64_t bytes) { pull->bytes += bytes; };
    options.done = [pull](const absl::Status& status) {
      MutexLock lock(pull->mu);
      pull->status = status;
      pull->changed.NotifyAll();
    };
    pull->stream = shard_->Pull(std::move(options));
    return pull;
  }

  std::shared_ptr<CallTracker> tracker_ = std::make_shared<CallTracker>();
  std::shared_ptr<TransferCounters> counters_ = std::make_shared<TransferCounters>();
  std::shared_ptr<const void> lease_ = std::make_shared<int>();
  std::vector<std::unique_ptr<std::vector<float>>> memory_;
  std::shared_ptr<ShardChannel> shard_;
};

}  // namespace kaon::client

#endif  // KAON_TESTS_CONFORMANCE_SHARD_CHANNEL_CONFORMANCE_FIXTURE_H_
