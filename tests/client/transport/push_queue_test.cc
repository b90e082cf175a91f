#include "client/transport/push_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kaon::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kPlenty = 1 << 20;

class PushQueueTest : public ::testing::Test {
 protected:
  // A tensor of floats; the memory is the fixture's.
  TensorView Tensor(uint64_t num_elements) {
    return {memory_.data(), num_elements, DType::kFloat32};
  }

  // All chunks that can be sent now, as "parameter.micro@offset+count".
  std::vector<std::string> Send(uint64_t budget_bytes = kPlenty) {
    std::vector<std::string> sent;
    for (const std::vector<ChunkToSend>& message : SendMessages(budget_bytes)) {
      for (const ChunkToSend& chunk : message) sent.push_back(NameOf(chunk));
    }
    return sent;
  }
  // The same, the chunks of a message joined by a space.
  std::vector<std::string> SendJoined(uint64_t budget_bytes = kPlenty) {
    std::vector<std::string> sent;
    for (const std::vector<ChunkToSend>& message : SendMessages(budget_bytes)) {
      sent.emplace_back();
      for (const ChunkToSend& chunk : message) {
        sent.back() += (sent.back().empty() ? "" : " ") + NameOf(chunk);
      }
    }
    return sent;
  }

  std::vector<std::vector<ChunkToSend>> SendMessages(uint64_t budget_bytes) {
    std::vector<std::vector<ChunkToSend>> messages;
    while (true) {
      messages.push_back(queue_.Next(budget_bytes));
      if (!messages.back().empty()) continue;
      messages.pop_back();
      return messages;
    }
  }
  static std::string NameOf(const ChunkToSend& chunk) {
    EXPECT_EQ(chunk.payload.size(), chunk.num_elements * 4);
    return std::to_string(chunk.key.first) + "." + std::to_string(chunk.key.second) + "@" +
           std::to_string(chunk.offset) + "+" + std::to_string(chunk.num_elements);
  }

  std::vector<float> memory_ = std::vector<float>(1000);
  // Messages of at most 10 floats.
  PushQueue queue_{40};
};

TEST_F(PushQueueTest, SendsNothingBeforeTheStreamIsOpen) {
  queue_.Add({0, 0}, Tensor(4));
  EXPECT_THAT(Send(), IsEmpty());
  EXPECT_FALSE(queue_.all_sent());
}

TEST_F(PushQueueTest, SendsInCanonicalOrderWhateverTheOrderOfQueueing) {
  queue_.Add({7, 0}, Tensor(4));
  queue_.Add({2, 1}, Tensor(4));
  queue_.Add({2, 0}, Tensor(4));
  ASSERT_TRUE(queue_.Open(kPlenty, {}).ok());
  EXPECT_THAT(Send(), ElementsAre("2.0@0+4", "2.1@0+4", "7.0@0+4"));
  EXPECT_TRUE(queue_.all_sent());
}

TEST_F(PushQueueTest, DoesNotWaitForWhatIsNotQueuedYet) {
  ASSERT_TRUE(queue_.Open(kPlenty, {}).ok());
  queue_.Add({7, 0}, Tensor(4));
  EXPECT_THAT(Send(), ElementsAre("7.0@0+4"));
  queue_.Add({2, 0}, Tensor(4));
  EXPECT_THAT(Send(), ElementsAre("2.0@0+4"));
}

TEST_F(PushQueueTest, CutsChunksWithoutGaps) {
  queue_.Add({0, 0}, Tensor(25));
  ASSERT_TRUE(queue_.Open(kPlenty, {}).ok());
  EXPECT_THAT(Send(), ElementsAre("0.0@0+10", "0.0@10+10", "0.0@20+5"));
}

TEST_F(PushQueueTest, PutsSmallContributionsIntoOneMessageUntilItIsFull) {
  for (uint32_t id : {0, 1, 2, 3}) queue_.Add({id, 0}, Tensor(4));
  queue_.Add({3, 1}, Tensor(4));
  ASSERT_TRUE(queue_.Open(kPlenty, {}).ok());
  EXPECT_THAT(SendJoined(), ElementsAre("0.0@0+4 1.0@0+4", "2.0@0+4 3.0@0+4", "3.1@0+4"));
}

TEST_F(PushQueueTest, PutsWholeContributionsBehindTheEndOfALargeOne) {
  queue_.Add({0, 0}, Tensor(13));
  queue_.Add({1, 0}, Tensor(4));
  queue_.Add({2, 0}, Tensor(4));
  ASSERT_TRUE(queue_.Open(kPlenty, {}).ok());
  EXPECT_THAT(SendJoined(), ElementsAre("0.0@0+10", "0.0@10+3 1.0@0+4", "2.0@0+4"));
}

TEST_F(PushQueueTest, PutsNoMorePiecesIntoAMessageThanItMayHave) {
  PushQueue queue(1 << 20);
  for (uint32_t id = 0; id < 1025; ++id) queue.Add({id, 0}, Tensor(1));
  ASSERT_TRUE(queue.Open(4 << 20, {}).ok());
  EXPECT_EQ(queue.Next(kPlenty).size(), 1024u);
  EXPECT_EQ(queue.Next(kPlenty).size(), 1u);
  EXPECT_EQ(queue.in_flight_bytes(), 1025u * 4);
}

TEST_F(PushQueueTest, HoldsAMessageBackUntilThereIsCreditForAllOfIt) {
  for (uint32_t id : {0, 1, 2, 3}) queue_.Add({id, 0}, Tensor(5));
  ASSERT_TRUE(queue_.Open(79, {}).ok());
  // Half the window, as for large ones.
  EXPECT_THAT(SendJoined(), ElementsAre("0.0@0+5", "1.0@0+5", "2.0@0+5"));
  queue_.Close();
  ASSERT_TRUE(queue_.Open(80, {}).ok());
  EXPECT_THAT(SendJoined(39), IsEmpty());
  EXPECT_THAT(SendJoined(40), ElementsAre("0.0@0+5 1.0@0+5", "2.0@0+5 3.0@0+5"));
  EXPECT_TRUE(queue_.all_sent());
}

TEST_F(PushQueueTest, GoesOnBehindThePiecesThatTheShardHas) {
  for (uint32_t id : {0, 1, 2}) queue_.Add({id, 0}, Tensor(3));
  ASSERT_TRUE(queue_.Open(kPlenty, {}).ok());
  EXPECT_THAT(SendJoined(), ElementsAre("0.0@0+3 1.0@0+3 2.0@0+3"));
  queue_.Close();
  ASSERT_TRUE(queue_.Open(kPlenty, {{{0, 0}, 3}}).ok());
  EXPECT_THAT(queue_.TakeAccepted(), ElementsAre(ContributionKey(0, 0)));
  EXPECT_THAT(SendJoined(), ElementsAre("1.0@0+3 2.0@0+3"));
  queue_.AddCredit(24);
  EXPECT_THAT(queue_.TakeAccepted(), ElementsAre(ContributionKey(1, 0), ContributionKey(2, 0)));
}

TEST_F(PushQueueTest, PointsIntoTheCallersMemory) {
  queue_.Add({0, 0}, Tensor(25));
  ASSERT_TRUE(queue_.Open(kPlenty, {}).ok());
  queue_.Next(kPlenty);
  EXPECT_EQ(queue_.Next(kPlenty).at(0).payload.data(),
            reinterpret_cast<const std::byte*>(memory_.data() + 10));
}

TEST_F(PushQueueTest, NeverHasMoreInFlightThanTheCredit) {
  queue_.Add({0, 0}, Tensor(100));
  ASSERT_TRUE(queue_.Open(90, {}).ok());
  EXPECT_THAT(Send(), ElementsAre("0.0@0+10", "0.0@10+10"));
  EXPECT_EQ(queue_.in_flight_bytes(), 80u);
  queue_.AddCredit(40);
  EXPECT_THAT(Send(), ElementsAre("0.0@20+10"));
}

TEST_F(PushQueueTest, CutsSmallerChunksForASmallWindow) {
  queue_.Add({0, 0}, Tensor(10));
  ASSERT_TRUE(queue_.Open(17, {}).ok());
  EXPECT_THAT(Send(), ElementsAre("0.0@0+2", "0.0@2+2"));
}

TEST_F(PushQueueTest, WaitsForBudget) {
  queue_.Add({0, 0}, Tensor(10));
  ASSERT_TRUE(queue_.Open(kPlenty, {}).ok());
  EXPECT_THAT(Send(39), IsEmpty());
  EXPECT_THAT(Send(40), ElementsAre("0.0@0+10"));
}

// A stream that breaks while the shard's staging is full is followed by one without any credit.
TEST_F(PushQueueTest, GoesOnWithTheCreditOfWhatEarlierStreamsLeftInStaging) {
  queue_.Add({0, 0}, Tensor(30));
  ASSERT_TRUE(queue_.Open(80, {}).ok());
  EXPECT_THAT(Send(), ElementsAre("0.0@0+10", "0.0@10+10"));
  queue_.Close();
  ASSERT_TRUE(queue_.Open(0, {{{0, 0}, 20}}).ok());
  EXPECT_THAT(Send(), IsEmpty());
  queue_.AddCredit(40);
  // The chunk is cut for the whole window, not for the rest of it.
  EXPECT_THAT(Send(), ElementsAre("0.0@20+10"));
  // A chunk of the earlier stream and this one are staged. The queue cannot know which one a credit
  // is for.
  queue_.AddCredit(40);
  EXPECT_THAT(queue_.TakeAccepted(), IsEmpty());
  queue_.AddCredit(40);
  EXPECT_THAT(queue_.TakeAccepted(), ElementsAre(ContributionKey{0, 0}));
}

// A shard restarts in the middle of a step with less staging. Bytes that its previous process
// granted are not in flight.
TEST_F(PushQueueTest, TakesTheWindowOfAShardThatHasNothingInAnotherRound) {
  queue_.Add({0, 0}, Tensor(30));
  ASSERT_TRUE(queue_.Open(80, {}).ok());
  EXPECT_THAT(Send(), ElementsAre("0.0@0+10", "0.0@10+10"));
  queue_.Close();
  queue_.BeginRound();
  ASSERT_TRUE(queue_.Open(40, {}).ok());
  EXPECT_EQ(queue_.in_flight_bytes(), 0u);
  EXPECT_THAT(Send(), ElementsAre("0.0@0+5", "0.0@5+5"));
  // In the same round it is the same process.
  queue_.Close();
  ASSERT_TRUE(queue_.Open(0, {}).ok());
  EXPECT_EQ(queue_.in_flight_bytes(), 40u);
  // A shard that kept its chunks is the same process, too.
  queue_.BeginRound();
  ASSERT_TRUE(queue_.Open(20, {{{0, 0}, 10}}).ok());
  EXPECT_EQ(queue_.in_flight_bytes(), 20u);
}

TEST_F(PushQueueTest, IgnoresCreditForMoreThanIsInFlight) {
  queue_.Add({0, 0}, Tensor(100));
  ASSERT_TRUE(queue_.Open(80, {}).ok());
  queue_.AddCredit(1000);
  EXPECT_THAT(Send(), ElementsAre("0.0@0+10", "0.0@10+10"));
}

TEST_F(PushQueueTest, StartsOverFromWhatTheShardHas) {
  queue_.Add({0, 0}, Tensor(15));
  queue_.Add({1, 0}, Tensor(5));
  ASSERT_TRUE(queue_.Open(kPlenty, {}).ok());
  Send();
  queue_.Close();
  EXPECT_EQ(queue_.in_flight_bytes(), 0u);
  EXPECT_THAT(Send(), IsEmpty());
  ASSERT_TRUE(queue_.Open(kPlenty, {{{0, 0}, 12}}).ok());
  EXPECT_THAT(Send(), ElementsAre("0.0@12+3", "1.0@0+5"));
}

TEST_F(PushQueueTest, RemembersWhatTheShardHasOfContributionsQueuedLater) {
  ASSERT_TRUE(queue_.Open(kPlenty, {{{3, 1}, 4}}).ok());
  queue_.Add({3, 1}, Tensor(6));
  EXPECT_THAT(Send(), ElementsAre("3.1@4+2"));
}

TEST_F(PushQueueTest, RefusesAShardThatClaimsToHaveMoreThanThereIs) {
  queue_.Add({3, 1}, Tensor(6));
  const absl::Status status = queue_.Open(kPlenty, {{{3, 1}, 7}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("parameter 3, micro-batch 1"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("has 7 elements, there are 6"));
}

TEST_F(PushQueueTest, ReportsContributionsAsAcceptedOnceNothingIsInFlight) {
  queue_.Add({0, 0}, Tensor(5));
  queue_.Add({1, 0}, Tensor(5));
  ASSERT_TRUE(queue_.Open(kPlenty, {}).ok());
  Send();
  queue_.AddCredit(20);
  EXPECT_THAT(queue_.TakeAccepted(), IsEmpty());
  queue_.AddCredit(20);
  EXPECT_THAT(queue_.TakeAccepted(), ElementsAre(ContributionKey(0, 0), ContributionKey(1, 0)));
  EXPECT_THAT(queue_.TakeAccepted(), IsEmpty());
}

TEST_F(PushQueueTest, ReportsWhatTheShardAlreadyHasAsAccepted) {
  queue_.Add({0, 0}, Tensor(5));
  ASSERT_TRUE(queue_.Open(kPlenty, {{{0, 0}, 5}}).ok());
  EXPECT_THAT(queue_.TakeAccepted(), ElementsAre(ContributionKey(0, 0)));
  EXPECT_TRUE(queue_.all_sent());
}

TEST_F(PushQueueTest, CutsTwoByteElementsAtWholeElements) {
  queue_.Add({0, 0}, {memory_.data(), 30, DType::kBFloat16});
  ASSERT_TRUE(queue_.Open(30, {}).ok());
  EXPECT_EQ(queue_.Next(kPlenty).at(0).num_elements, 7u);
}

}  // namespace
}  // namespace kaon::client
