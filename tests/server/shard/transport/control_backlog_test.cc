#include "server/shard/transport/control_backlog.h"

#include <gtest/gtest.h>

namespace kaon::shard {
namespace {

using Fate = ControlBacklog::Fate;

v1::CoordinatorToShard Envelope(uint64_t counter = 1) {
  v1::CoordinatorToShard message;
  message.mutable_ballot()->set_counter(counter);
  message.set_num_shards(1);
  return message;
}

v1::CoordinatorToShard Heartbeat() {
  v1::CoordinatorToShard message = Envelope();
  message.mutable_heartbeat();
  return message;
}

v1::CoordinatorToShard Plan(uint64_t position, uint64_t round) {
  v1::CoordinatorToShard message = Envelope();
  message.mutable_plan()->set_position(position);
  message.mutable_plan()->set_round(round);
  return message;
}

v1::CoordinatorToShard Decision(uint64_t position) {
  v1::CoordinatorToShard message = Envelope();
  message.mutable_decision()->mutable_plan()->set_position(position);
  return message;
}

v1::CoordinatorToShard Part(const std::string& id) {
  v1::CoordinatorToShard message = Envelope();
  message.mutable_checkpoint()->set_id(id);
  return message;
}

Fate Add(ControlBacklog& backlog, v1::CoordinatorToShard message) { return backlog.Add(message); }

TEST(ControlBacklogTest, WorksOnOneMessageAtATimeInOrder) {
  ControlBacklog backlog;
  EXPECT_EQ(Add(backlog, Plan(1, 1)), Fate::kWork);
  EXPECT_EQ(Add(backlog, Decision(1)), Fate::kWaits);
  EXPECT_EQ(Add(backlog, Plan(2, 1)), Fate::kWaits);
  EXPECT_TRUE(backlog.Next()->has_decision());
  EXPECT_EQ(backlog.Next()->plan().position(), 2u);
  EXPECT_FALSE(backlog.Next().has_value());
  EXPECT_EQ(Add(backlog, Plan(2, 1)), Fate::kWork);
}

TEST(ControlBacklogTest, DropsWhatTheSenderRepeats) {
  ControlBacklog backlog;
  EXPECT_EQ(Add(backlog, Heartbeat()), Fate::kWork);
  EXPECT_EQ(Add(backlog, Heartbeat()), Fate::kDropped);
  EXPECT_FALSE(backlog.Next().has_value());
  EXPECT_EQ(Add(backlog, Decision(1)), Fate::kWork);
  EXPECT_EQ(Add(backlog, Decision(1)), Fate::kDropped);
  EXPECT_EQ(Add(backlog, Heartbeat()), Fate::kDropped);
  EXPECT_EQ(Add(backlog, Part("a")), Fate::kWaits);
  EXPECT_EQ(Add(backlog, Part("a")), Fate::kDropped);
  EXPECT_EQ(backlog.Next()->checkpoint().id(), "a");
  EXPECT_FALSE(backlog.Next().has_value());
}

TEST(ControlBacklogTest, TellsMessagesApartByWhatTheyAskFor) {
  ControlBacklog backlog;
  EXPECT_EQ(Add(backlog, Plan(1, 1)), Fate::kWork);
  EXPECT_EQ(Add(backlog, Plan(1, 2)), Fate::kWaits);
  v1::CoordinatorToShard promise = Envelope(2);
  promise.mutable_promise();
  EXPECT_EQ(Add(backlog, promise), Fate::kWaits);
  promise.mutable_ballot()->set_counter(3);
  EXPECT_EQ(Add(backlog, promise), Fate::kWaits);
  v1::CoordinatorToShard misplaced = Plan(1, 1);
  misplaced.set_shard(7);
  EXPECT_EQ(Add(backlog, misplaced), Fate::kWaits);
}

TEST(ControlBacklogTest, KeepsNoMoreThanItsLimit) {
  ControlBacklog backlog;
  EXPECT_EQ(Add(backlog, Plan(1, 1)), Fate::kWork);
  for (size_t i = 0; i < ControlBacklog::kMaxWaiting; ++i) {
    EXPECT_EQ(Add(backlog, Plan(1, 2 + i)), Fate::kWaits);
  }
  EXPECT_EQ(Add(backlog, Plan(1, 9)), Fate::kDropped);
}

}  // namespace
}  // namespace kaon::shard
