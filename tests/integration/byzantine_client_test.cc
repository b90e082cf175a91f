// Attacks of a worker with a valid certificate and arbitrary bytes (T11). Each one is refused with
// its status code and the field's name, and changes no state. It does not disturb an honest worker:
// the step commits with the weights of the serial run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <iostream>
#include <string>
#include <vector>

#include "proto/shm_region.h"
#include "tests/integration/byzantine_behaviours.h"
#include "tests/integration/byzantine_peer.h"
#include "tests/integration/honest_worker.h"
#include "tests/simulation/model.h"
#include "tests/testing/in_process_cluster.h"
#include "tests/testing/resident_memory.h"

namespace kaon {
namespace {

constexpr int kRepetitions = 5;
// Bound on the memory that allocators and gRPC keep, also at their peak.
constexpr uint64_t kGrowthBytes = uint64_t{16} << 20;
// A session that ends while the next begins: two rings, which both ends map twice.
constexpr uint64_t kSessionBytes = 8 * proto::kShmRingBytes;

enum class Transport { kGrpc, kSharedMemory };

class ByzantineClientTest : public ::testing::TestWithParam<Transport> {};

TEST_P(ByzantineClientTest, EveryBehaviourIsRefusedByNameAndAnHonestStepStillCommits) {
  const bool shm = GetParam() == Transport::kSharedMemory;
  const std::vector<Behaviour> behaviours =
      shm ? BehavioursOverSharedMemory() : BehavioursOverGrpc();
  // Sessions of shared memory, including those of the honest worker.
  testing::InProcessCluster cluster(1, "", shm ? 8 : 0);
  const v1::JobDefinition job = simulation::TinyJob(2);
  HonestWorker honest(cluster, job);
  Future<StepRecord> decision = honest.PushStep();
  ByzantinePeer peer(cluster, job);
  const grpc::Status begun = peer.BeginHonestly();
  ASSERT_TRUE(begun.ok()) << begun.error_message();
  if (shm) peer.UseSharedMemory();
  const uint64_t digest = peer.StateDigest();
  const uint64_t before = testing::ResidentBytes();
  EXPECT_GE(behaviours.size(), 40u);
  for (const Behaviour& behaviour : behaviours) {
    SCOPED_TRACE(behaviour.name);
    const grpc::Status status = behaviour.act(peer);
    EXPECT_EQ(status.error_code(), behaviour.code) << status.error_message();
    EXPECT_THAT(status.error_message(), ::testing::HasSubstr(behaviour.names));
    EXPECT_EQ(peer.StateDigest(), digest);
  }
  malloc_trim(0);
  // Refused messages leave nothing behind, however often they are repeated (P17). The bound covers
  // servers and clients, which are one process here.
  const uint64_t after_one = testing::ResidentBytes();
  const uint64_t peak_of_one = testing::PeakResidentBytes();
  for (int i = 0; i < kRepetitions; ++i) {
    // Every round begins as the first did, so that their peaks compare.
    malloc_trim(0);
    for (const Behaviour& behaviour : behaviours) behaviour.act(peer);
  }
  const uint64_t after_all = testing::ResidentBytesOnceBelow(after_one + kGrowthBytes);
  const uint64_t peak_of_all = testing::PeakResidentBytes();
  std::cout << "RSS " << (before >> 20) << " MiB before, " << (after_one >> 20)
            << " MiB after all behaviours (peak " << (peak_of_one >> 20) << "), "
            << (after_all >> 20) << " MiB after " << kRepetitions << " times more (peak "
            << (peak_of_all >> 20) << ")" << std::endl;
  if (!testing::kSanitized) {
    EXPECT_LT(after_all, after_one + kGrowthBytes);
    // The peak is 0 if the kernel does not report it.
    if (peak_of_one != 0) {
      EXPECT_GT(peak_of_one, before);
      EXPECT_LT(peak_of_all, peak_of_one + kGrowthBytes + (shm ? kSessionBytes : 0));
    }
  }
  EXPECT_EQ(peer.StateDigest(), digest);
  const grpc::Status pushed = peer.PushHonestly();
  ASSERT_TRUE(pushed.ok()) << pushed.error_message();
  Result<StepRecord> record = decision.Get();
  ASSERT_TRUE(record.ok()) << record.status().ToString();
  EXPECT_TRUE(record->applied) << record->reason;
  EXPECT_EQ(honest.PullStep(), WeightsOfStepOne(job, *record));
  std::cout << behaviours.size() << " behaviours" << std::endl;
}

INSTANTIATE_TEST_SUITE_P(, ByzantineClientTest,
                         ::testing::Values(Transport::kGrpc, Transport::kSharedMemory),
                         [](const auto& info) {
                           return info.param == Transport::kGrpc ? "Grpc" : "SharedMemory";
                         });

}  // namespace
}  // namespace kaon
