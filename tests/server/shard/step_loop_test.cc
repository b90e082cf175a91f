#include "server/shard/step_loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/steady_clock.h"
#include "server/journal/memory_journal.h"
#include "server/monitor/service_health.h"
#include "server/shard/shard_files.h"
#include "tests/server/shard/agreement/plans.h"
#include "tests/server/shard/device/shard_memory.h"

namespace kaon::shard {
namespace {

class StepLoopTest : public testing::Test {
 protected:
  StepLoopTest() : journal_(nullptr) {
    ShardCore::Options options;
    options.store = &memory_.store();
    options.backend = &memory_.backend();
    options.staging_bytes = 4 << 20;
    loop_ = std::make_unique<StepLoop>(options, ShardFiles(), counts_, health_);
    loop_->Start(journal_, nullptr, [this] { ++ends_; });
  }

  // Everything the loop sends to one stream, read by the test's thread once an event behind it is
  // answered.
  struct Inbox {
    Mutex mu;
    std::vector<v1::ShardToCoordinator> messages ABSL_GUARDED_BY(mu);
    std::vector<absl::Status> ends ABSL_GUARDED_BY(mu);
  };
  StreamId Open(const std::shared_ptr<Inbox>& inbox) {
    ControlSink sink;
    sink.send = [inbox](v1::ShardToCoordinator message) {
      MutexLock lock(inbox->mu);
      inbox->messages.push_back(std::move(message));
    };
    sink.end = [inbox](const absl::Status& status) {
      MutexLock lock(inbox->mu);
      inbox->ends.push_back(status);
    };
    return loop_->OpenStream(std::move(sink));
  }
  // True once the message is worked off.
  bool Control(StreamId stream, v1::CoordinatorToShard message, absl::Time received) {
    message.set_num_shards(1);
    auto done = std::make_shared<std::promise<void>>();
    if (!loop_->OnControl(stream, message, received, [done] { done->set_value(); })) return false;
    done->get_future().wait();
    return true;
  }
  bool Drain(StreamId stream, uint64_t ballot, bool end) {
    v1::CoordinatorToShard message;
    *message.mutable_ballot() = MakeBallot(ballot);
    message.mutable_drain()->set_attempt(7);
    message.mutable_drain()->set_end(end);
    return Control(stream, message, SteadyNow());
  }
  bool Promise(StreamId stream, absl::Time received = SteadyNow()) {
    v1::CoordinatorToShard message;
    *message.mutable_ballot() = MakeBallot(1);
    message.mutable_promise();
    return Control(stream, message, received);
  }
  // For how long the holder was silent, as a probe received at `received` is told.
  absl::Duration Silence(absl::Time received) {
    const auto inbox = std::make_shared<Inbox>();
    v1::CoordinatorToShard message;
    message.mutable_probe();
    EXPECT_TRUE(Control(Open(inbox), message, received));
    MutexLock lock(inbox->mu);
    return absl::Milliseconds(inbox->messages.at(0).probed().holder_silent_ms());
  }
  absl::StatusOr<v1::DescribeShardResponse> Describe() {
    auto answer = std::make_shared<std::promise<absl::StatusOr<v1::DescribeShardResponse>>>();
    loop_->Describe("", [answer](absl::StatusOr<v1::DescribeShardResponse> response) {
      answer->set_value(std::move(response));
    });
    return answer->get_future().get();
  }

  monitor::EventCounts counts_;
  monitor::ServiceHealth health_{"kaon.v1.ShardData"};
  ShardMemory memory_{1 << 16};
  journal::MemoryJournal journal_;
  // Step thread, until it has answered.
  int ends_ = 0;
  std::unique_ptr<StepLoop> loop_;
};

TEST_F(StepLoopTest, CarriesAnAppendThroughTheJournalToTheAnswer) {
  const auto inbox = std::make_shared<Inbox>();
  ASSERT_TRUE(Promise(Open(inbox)));
  ASSERT_TRUE(Describe().ok());
  MutexLock lock(inbox->mu);
  ASSERT_EQ(inbox->messages.size(), 1u);
  EXPECT_TRUE(inbox->messages[0].has_state());
}

TEST_F(StepLoopTest, MeasuresTheHoldersSilenceWhenTheQuestionWasReceived) {
  ASSERT_TRUE(Promise(Open(std::make_shared<Inbox>())));
  EXPECT_GT(Silence(SteadyNow() + absl::Hours(1)), absl::Minutes(59));
  EXPECT_EQ(Silence(SteadyNow() - absl::Hours(1)), absl::ZeroDuration());
}

TEST_F(StepLoopTest, DoesNotTakeALongApplyForSilenceOfTheHolder) {
  // Worked off an hour after it was received, and the holder's next message cannot be read before.
  ASSERT_TRUE(Promise(Open(std::make_shared<Inbox>()), SteadyNow() - absl::Hours(1)));
  EXPECT_LT(Silence(SteadyNow()), absl::Minutes(1));
}

// A long apply is no reason to take the shard for dead.
TEST_F(StepLoopTest, AnswersTheHolderWhileTheStepThreadIsAtWork) {
  const auto inbox = std::make_shared<Inbox>();
  const StreamId stream = Open(inbox);
  const auto heartbeats = [&] {
    MutexLock lock(inbox->mu);
    return std::count_if(inbox->messages.begin(), inbox->messages.end(), [](const auto& message) {
      return message.has_heartbeat() && message.promised().counter() == 1;
    });
  };
  loop_->AnswerWhileBusy(stream, MakeBallot(1));
  EXPECT_EQ(heartbeats(), 0) << "nothing is promised";
  ASSERT_TRUE(Promise(stream));
  ASSERT_TRUE(Describe().ok());
  ASSERT_TRUE(Describe().ok()) << "the promise is durable, and published after that event";
  std::promise<void> at_work;
  std::promise<void> over;
  loop_->Describe("", [&](const absl::StatusOr<v1::DescribeShardResponse>&) {
    at_work.set_value();
    over.get_future().wait();
  });
  at_work.get_future().wait();
  loop_->AnswerWhileBusy(stream, MakeBallot(2));
  EXPECT_EQ(heartbeats(), 0) << "another ballot is promised";
  loop_->AnswerWhileBusy(stream, MakeBallot(1));
  EXPECT_EQ(heartbeats(), 1);
  over.set_value();
  loop_->Stop();
  loop_->AnswerWhileBusy(stream, MakeBallot(1));
  EXPECT_EQ(heartbeats(), 1);
}

TEST_F(StepLoopTest, EndsTheProcessByOrderOfItsHolderAlone) {
  const auto inbox = std::make_shared<Inbox>();
  const StreamId stream = Open(inbox);
  ASSERT_TRUE(Drain(stream, 1, /*end=*/true));
  EXPECT_EQ(ends_, 0) << "nothing is promised";
  ASSERT_TRUE(Promise(stream));
  ASSERT_TRUE(Describe().ok());
  ASSERT_TRUE(Drain(stream, 1, /*end=*/false));
  EXPECT_EQ(ends_, 0);
  {
    MutexLock lock(inbox->mu);
    const v1::ShardToCoordinator& answer = inbox->messages.back();
    ASSERT_TRUE(answer.has_drain());
    EXPECT_EQ(answer.drain().attempt(), 7u);
    EXPECT_EQ(answer.promised().counter(), 1u);
    // This loop takes no snapshots.
    EXPECT_FALSE(answer.drain().ready());
    EXPECT_EQ(answer.drain().error_code(),
              static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition));
  }
  for (uint64_t other : {0, 2}) {
    ASSERT_TRUE(Drain(stream, other, /*end=*/true));
    EXPECT_EQ(ends_, 0) << other;
  }
  ASSERT_TRUE(Drain(stream, 1, /*end=*/true));
  EXPECT_EQ(ends_, 1);
}

TEST_F(StepLoopTest, SendsNothingToAClosedStream) {
  const auto inbox = std::make_shared<Inbox>();
  const StreamId stream = Open(inbox);
  loop_->CloseStream(stream);
  ASSERT_TRUE(Promise(stream));
  ASSERT_TRUE(Describe().ok());
  MutexLock lock(inbox->mu);
  EXPECT_TRUE(inbox->messages.empty());
}

TEST_F(StepLoopTest, EndsEveryStreamAndTakesNothingOnceStopped) {
  const auto inbox = std::make_shared<Inbox>();
  const StreamId stream = Open(inbox);
  loop_->Stop();
  loop_->Stop();
  EXPECT_FALSE(Promise(stream));
  EXPECT_EQ(Describe().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(loop_->publisher().CheckPull(v1::PullRequest()).code(), absl::StatusCode::kUnavailable);
  MutexLock lock(inbox->mu);
  ASSERT_EQ(inbox->ends.size(), 1u);
  EXPECT_EQ(inbox->ends[0].code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace kaon::shard
