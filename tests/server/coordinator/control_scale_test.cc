// A job of 10,000 parameters, 64 shards and 256 workers, of which only the coordinator is real.
// Measures the number and size of the messages of a step, the time of the state machine, and the
// memory of all of it.
#include <gtest/gtest.h>
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/coordinator/machine/step_machine.h"
#include "tests/server/coordinator/machine/machine_harness.h"
#include "tests/server/coordinator/machine/test_job.h"

namespace kaon::coordinator {
namespace {

constexpr int kShards = 64;
constexpr uint32_t kWorkers = 256;
constexpr int kParameters = 10000;

// Cost of one step.
struct StepCost {
  // Messages in and out.
  int from_shards = 0;
  int from_workers = 0;
  int to_shards = 0;
  int to_workers = 0;
  // Bytes of all of them.
  uint64_t bytes_in = 0;
  uint64_t bytes = 0;
  // Processor time of parsing, of the state machine and of serializing. Other processes on the
  // machine hardly change it.
  absl::Duration work;
  // Most bytes that were allocated at the end of any work, with the messages that are not sent yet.
  uint64_t most_allocated = 0;
};

absl::Duration ThreadTime() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

// Bytes that this process has allocated; 0 under sanitizers, which have their own heap.
uint64_t AllocatedBytes() {
  const struct mallinfo2 heap = mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

class ControlScale {
 public:
  ControlScale(int shards, uint32_t workers) : harness_(shards), workers_(workers) {
    v1::JobDefinition job = TestJob(workers);
    while (job.parameters_size() < kParameters) {
      AddParameter(job, absl::StrCat("layer", job.parameters_size(), ".b"), {16});
    }
    harness_.Train(job);
    ballot_ = harness_.ballot();
    votes_.resize(shards);
    for (int shard = 0; shard < shards; ++shard) {
      v1::StepPlan step;
      step.mutable_step();
      votes_[shard] = harness_.VoteFor(step, shard);
    }
  }

  // Every worker begins and awaits it, every shard votes and applies.
  StepCost Train(uint64_t step) {
    cost_ = {};
    for (uint32_t rank = 0; rank < workers_; ++rank) {
      const v1::BeginStepRequest begin = harness_.BeginRequest(rank, step);
      v1::AwaitStepRequest await;
      await.set_job(begin.job());
      await.set_rank(rank);
      *await.mutable_attempt() = begin.attempt();
      await.set_step(step);
      cost_.from_workers += 2;
      Work(begin, [&](StepMachine& machine, const v1::BeginStepRequest& request) {
        machine.Begin(++last_call_, request);
      });
      Work(await, [&](StepMachine& machine, const v1::AwaitStepRequest& request) {
        machine.Await(++last_call_, request);
      });
    }
    const std::string plan = plan_.SerializeAsString();
    for (size_t shard = 0; shard < votes_.size(); ++shard) {
      votes_[shard].set_plan(plan);
      v1::ShardToCoordinator message;
      *message.mutable_prepared() = votes_[shard];
      FromShard(shard, std::move(message));
    }
    for (size_t shard = 0; shard < votes_.size(); ++shard) {
      v1::ShardToCoordinator message;
      message.mutable_applied()->set_position(plan_.position());
      FromShard(shard, std::move(message));
    }
    return cost_;
  }

 private:
  void FromShard(size_t shard, v1::ShardToCoordinator message) {
    message.set_shard(shard);
    *message.mutable_promised() = ballot_;
    ++cost_.from_shards;
    Work(message, [&](StepMachine& machine, v1::ShardToCoordinator& parsed) {
      machine.OnShardMessage(static_cast<int>(shard), std::move(parsed), now_);
    });
  }

  // `sent` arrives as bytes, and `take` passes it to the machine.
  template <typename Message, typename Take>
  void Work(const Message& sent, const Take& take) {
    const std::string bytes = sent.SerializeAsString();
    cost_.bytes_in += bytes.size();
    const absl::Duration start = ThreadTime();
    Message parsed;
    ASSERT_TRUE(parsed.ParseFromString(bytes));
    take(harness_.machine(), parsed);
    const std::vector<CoordinatorAction> actions = harness_.machine().TakeActions();
    for (const CoordinatorAction& action : actions) Serialize(action);
    cost_.work += ThreadTime() - start;
    cost_.most_allocated = std::max(cost_.most_allocated, AllocatedBytes());
    for (const CoordinatorAction& action : actions) {
      const auto* send = std::get_if<SendToShard>(&action);
      if (send == nullptr || !send->content().has_plan() || send->body == proposal_) continue;
      proposal_ = send->body;
      plan_ = send->content().plan();
    }
  }

  void Serialize(const CoordinatorAction& action) {
    if (const auto* send = std::get_if<SendToShard>(&action)) {
      ++cost_.to_shards;
      std::string bytes = send->message.SerializeAsString();
      if (send->body) bytes += send->body->bytes;
      cost_.bytes += bytes.size();
    } else if (const auto* event = std::get_if<AwaitEvent>(&action)) {
      ++cost_.to_workers;
      cost_.bytes += std::string(event->event->bytes).size();
    } else if (const auto* begun = std::get_if<ReplyBegin>(&action)) {
      ++cost_.to_workers;
      cost_.bytes += begun->response.value().SerializeAsString().size();
    }
  }

  MachineHarness harness_;
  const uint32_t workers_;
  v1::Ballot ballot_;
  std::vector<v1::Prepared> votes_;
  v1::StepPlan plan_;
  Shared<v1::CoordinatorToShard> proposal_;
  StepCost cost_;
  CallId last_call_ = CallId{1} << 40;
  const absl::Time now_ = absl::UnixEpoch() + absl::Seconds(10);
};

void ExpectMessagesBy(int shards, uint32_t workers, const StepCost& cost) {
  // From each shard: a vote and the report that the step is applied. To each shard: a plan, a
  // decision, and at some steps the request for a part of a checkpoint.
  EXPECT_EQ(cost.from_shards, 2 * shards);
  EXPECT_GE(cost.to_shards, 2 * shards);
  EXPECT_LE(cost.to_shards, 3 * shards);
  // From each worker: Begin and the following call. To each worker: the answer to Begin, the plan,
  // the record.
  EXPECT_EQ(cost.from_workers, 2 * static_cast<int>(workers));
  EXPECT_EQ(cost.to_workers, 3 * static_cast<int>(workers));
  // The plan names every worker, and every worker gets it.
  EXPECT_LT(cost.bytes, uint64_t{100} * workers * (workers + 2 * shards));
  // A vote has the plan, and a sum of squares of every parameter of its shard.
  EXPECT_LT(cost.bytes_in, uint64_t{100} * (workers * (shards + 1) + kParameters));
}

TEST(ControlScaleTest, AStepTakesMessagesByShardsAndWorkers) {
  struct Size {
    int shards;
    uint32_t workers;
  };
  for (const Size size : {Size{8, 32}, Size{16, 256}, Size{64, 32}, Size{kShards, kWorkers}}) {
    SCOPED_TRACE(absl::StrCat(size.shards, " shards, ", size.workers, " workers"));
    ControlScale scale(size.shards, size.workers);
    for (uint64_t step = 1; step <= 3; ++step) {
      ExpectMessagesBy(size.shards, size.workers, scale.Train(step));
    }
  }
}

TEST(ControlScaleTest, TheCoordinatorsWorkForAStepTakesMilliseconds) {
  ControlScale scale(kShards, kWorkers);
  scale.Train(1);
  std::vector<absl::Duration> works;
  StepCost cost;
  for (uint64_t step = 2; step <= 12; ++step) {
    cost = scale.Train(step);
    works.push_back(cost.work);
  }
  std::sort(works.begin(), works.end());
  const absl::Duration median = works[works.size() / 2];
  std::printf("control: %d parameters, %d shards, %u workers: %d messages, %.2f MB in, %.2f out\n",
              kParameters, kShards, kWorkers,
              cost.from_shards + cost.from_workers + cost.to_shards + cost.to_workers,
              1e-6 * static_cast<double>(cost.bytes_in), 1e-6 * static_cast<double>(cost.bytes));
  std::printf("control: %.2f ms of the coordinator's work per step, %.2f to %.2f\n",
              absl::ToDoubleMilliseconds(median), absl::ToDoubleMilliseconds(works.front()),
              absl::ToDoubleMilliseconds(works.back()));
#if defined(NDEBUG)
  // On a busy machine some steps take longer, also in the time of a thread.
  EXPECT_LE(works.front(), absl::Milliseconds(5));
#endif
}

TEST(ControlScaleTest, AStepLeavesNoMemoryBehind) {
  const uint64_t before = AllocatedBytes();
  ControlScale scale(kShards, kWorkers);
  for (uint64_t step = 1; step <= 6; ++step) scale.Train(step);
  const uint64_t early = AllocatedBytes();
  uint64_t most = 0;
  for (uint64_t step = 7; step <= 36; ++step) {
    most = std::max(most, scale.Train(step).most_allocated);
  }
  const uint64_t late = AllocatedBytes();
  std::printf("control: %.2f MB after 6 steps, %.2f after 36, at most %.2f\n",
              1e-6 * static_cast<double>(early - before), 1e-6 * static_cast<double>(late - before),
              1e-6 * static_cast<double>(most - before));
  EXPECT_LE(late, early + (256 << 10));
  // The memory holds the job, and a step's votes twice: as they are sent here and as they are kept.
  // It also holds the messages of a plan or a record to every shard and worker.
  EXPECT_LE(most, before + (32 << 20));
}

}  // namespace
}  // namespace kaon::coordinator
