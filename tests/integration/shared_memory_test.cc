// Workers that reach their shards through shared memory: the same job, the same bits. Real servers
// in this process.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/integration/tiny_training.h"
#include "tests/testing/in_process_cluster.h"

namespace kaon::testing {
namespace {

ClientOptions Over(Transport transport) {
  ClientOptions options;
  options.transport = transport;
  return options;
}

// One rank that the library sees as a process of its own.
struct Rank {
  Rank(const InProcessCluster& cluster, Transport transport, const v1::JobDefinition& definition,
       uint32_t rank)
      : client(cluster.Connect(Over(transport))),
        job(client.Register(PublicJob(definition)).value()),
        worker(job.Join(rank).value()) {}

  Client client;
  Job job;
  Worker worker;
};

// Expects that all bytes passed through shared memory.
void ExpectOnlySharedMemory(const Client& client) {
  const TransferTotals totals = client.transfer_totals();
  EXPECT_EQ(totals.shm_bytes, totals.push_bytes + totals.pull_bytes);
  EXPECT_GT(totals.shm_bytes, 0u);
}

TEST(SharedMemoryTest, WorkersOfBothTransportsEndInTheWeightsOfTheSerialRun) {
  const InProcessCluster cluster(2, "", /*shm_sessions=*/2);
  const v1::JobDefinition job = simulation::TinyJob(2);
  Rank here(cluster, Transport::kShm, job, 0);
  Rank there(cluster, Transport::kGrpc, job, 1);
  LoadWeights(job, here.worker);
  simulation::SerialReplay replay = LoadedReplay(job);
  for (uint64_t step = 1; step <= 10; ++step) {
    std::thread other([&] { TrainStep(job, there.worker, step); });
    replay.Apply(RecordOf(job, TrainStep(job, here.worker, step)));
    other.join();
    EXPECT_EQ(PullAll(job, here.job, step), replay.weights());
  }
  EXPECT_EQ(PullAll(job, there.job, 10), replay.weights());
  ExpectOnlySharedMemory(here.client);
  EXPECT_EQ(there.client.transfer_totals().shm_bytes, 0u);
}

TEST(SharedMemoryTest, IsChosenWhereThereIsASessionAndLeftWhereThereIsNone) {
  const v1::JobDefinition job = simulation::TinyJob(1);
  for (const uint32_t sessions : {2, 0}) {
    SCOPED_TRACE(sessions);
    const InProcessCluster cluster(1, "", sessions);
    Rank rank(cluster, Transport::kAuto, job, 0);
    LoadWeights(job, rank.worker);
    simulation::SerialReplay replay = LoadedReplay(job);
    replay.Apply(RecordOf(job, TrainStep(job, rank.worker, 1)));
    EXPECT_EQ(PullAll(job, rank.job, 1), replay.weights());
    if (sessions > 0) {
      ExpectOnlySharedMemory(rank.client);
      EXPECT_EQ(rank.client.transfer_totals().shm_refusals, 0u);
    } else {
      EXPECT_EQ(rank.client.transfer_totals().shm_bytes, 0u);
      // The client asks once, and not again for each call.
      EXPECT_EQ(rank.client.transfer_totals().shm_refusals, 1u);
    }
  }
}

TEST(SharedMemoryTest, MoreWorkersThanSessionsTrainAllTheSame) {
  const InProcessCluster cluster(1, "", /*shm_sessions=*/1);
  const v1::JobDefinition job = simulation::TinyJob(3);
  std::vector<std::unique_ptr<Rank>> ranks;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::make_unique<Rank>(cluster, Transport::kAuto, job, rank));
  }
  LoadWeights(job, ranks[0]->worker);
  simulation::SerialReplay replay = LoadedReplay(job);
  for (uint64_t step = 1; step <= 3; ++step) {
    std::vector<std::thread> others;
    for (const uint32_t rank : {1, 2}) {
      others.emplace_back([&, rank] { TrainStep(job, ranks[rank]->worker, step); });
    }
    replay.Apply(RecordOf(job, TrainStep(job, ranks[0]->worker, step)));
    for (std::thread& other : others) other.join();
  }
  for (const auto& rank : ranks) EXPECT_EQ(PullAll(job, rank->job, 3), replay.weights());
}

TEST(SharedMemoryTest, AStepGoesOnWhenItsShardsAreStartedAgain) {
  InProcessCluster cluster(2, "", /*shm_sessions=*/2);
  const v1::JobDefinition job = simulation::TinyJob(1);
  Rank rank(cluster, Transport::kAuto, job, 0);
  LoadWeights(job, rank.worker);
  simulation::SerialReplay replay = LoadedReplay(job);
  for (uint64_t number = 1; number <= 3; ++number) {
    OpenStep step = BeginStep(job, rank.worker, number);
    step.Push(0);
    cluster.StopShard(0);
    cluster.StartShard(0);
    for (uint32_t id = 1; id < step.gradients.size(); ++id) {
      if (!step.gradients[id].empty()) step.Push(id);
    }
    Result<StepRecord> record = step.Finish().Get();
    ASSERT_TRUE(record.ok()) << record.status().ToString();
    replay.Apply(RecordOf(job, *record));
    EXPECT_EQ(PullAll(job, rank.job, number), replay.weights());
  }
  EXPECT_GT(rank.client.transfer_totals().shm_bytes, 0u);
}

}  // namespace
}  // namespace kaon::testing
