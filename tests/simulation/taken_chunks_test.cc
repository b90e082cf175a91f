#include "tests/simulation/taken_chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace kaon::simulation {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kShard = 1;
constexpr uint32_t kRank = 2;
constexpr uint32_t kParameter = 3;
constexpr uint64_t kElements = 8;

v1::Attempt AttemptOf(uint32_t number) {
  v1::Attempt attempt;
  attempt.mutable_ballot()->set_counter(6);
  attempt.set_number(number);
  return attempt;
}

// One parameter of 8 elements, in chunks of 4, of a rank with one micro-batch.
class TakenChunksTest : public testing::Test {
 protected:
  void Open(uint64_t received) {
    v1::PushOpened opened;
    if (received > 0) {
      v1::ReceivedChunks* chunks = opened.add_received();
      chunks->set_parameter_id(kParameter);
      chunks->set_num_elements(received);
    }
    taken_.OnOpened(kShard, kRank, opened);
  }
  void Take(uint32_t attempt, uint64_t offset) {
    v1::TensorChunk chunk;
    chunk.set_parameter_id(kParameter);
    chunk.set_offset(offset);
    chunk.set_num_elements(kElements / 2);
    taken_.OnTaken(kShard, kRank, AttemptOf(attempt), chunk);
  }
  std::string WrongFor(uint32_t attempt) const {
    v1::Member member;
    member.set_rank(kRank);
    *member.mutable_attempt() = AttemptOf(attempt);
    member.set_micro_batches(1);
    return taken_.Check(kShard, member, kParameter, kElements);
  }

  TakenChunks taken_;
};

TEST_F(TakenChunksTest, AllOfOneAttemptIsThatAttempts) {
  EXPECT_THAT(WrongFor(1), HasSubstr("0 elements, expecting 8"));
  Open(0);
  Take(1, 0);
  EXPECT_THAT(WrongFor(1), HasSubstr("4 elements, expecting 8"));
  Take(1, 4);
  EXPECT_THAT(WrongFor(1), IsEmpty());
  EXPECT_THAT(WrongFor(2), HasSubstr("elements up to 4 of attempt 6.0/1, the plan has 6.0/2"));
}

TEST_F(TakenChunksTest, WhatTheShardStillHasIsOfWhoPushedIt) {
  Open(0);
  Take(1, 0);
  Open(4);
  Take(2, 4);
  EXPECT_THAT(WrongFor(2), HasSubstr("elements up to 4 of attempt 6.0/1, the plan has 6.0/2"));
  EXPECT_THAT(WrongFor(1), HasSubstr("elements up to 8 of attempt 6.0/2, the plan has 6.0/1"));
}

TEST_F(TakenChunksTest, WhatItHasNoMoreWasCleared) {
  Open(0);
  Take(1, 0);
  Take(1, 4);
  Open(0);
  EXPECT_THAT(WrongFor(1), HasSubstr("0 elements, expecting 8"));
  Take(2, 0);
  Take(2, 4);
  EXPECT_THAT(WrongFor(2), IsEmpty());
}

TEST_F(TakenChunksTest, ARepetitionChangesNothing) {
  Open(0);
  Take(1, 0);
  Take(2, 0);
  Take(1, 4);
  EXPECT_THAT(WrongFor(1), IsEmpty());
}

TEST_F(TakenChunksTest, WhatARestartBroughtBackIsOfNoAttempt) {
  Open(8);
  EXPECT_THAT(WrongFor(1), HasSubstr("elements up to 8 of attempt 0.0/0, the plan has 6.0/1"));
}

}  // namespace
}  // namespace kaon::simulation
