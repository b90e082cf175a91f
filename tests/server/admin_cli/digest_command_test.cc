#include "server/admin_cli/digest_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/reduce/digest.h"

namespace kaon::admin_cli {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kPosition = 7;

void AddShard(uint64_t weights, uint64_t state, v1::GetStatusResponse* status) {
  v1::ShardStatus* shard = status->add_shards();
  const int index = status->shards_size() - 1;
  shard->set_shard(index);
  shard->set_address("127.0.0.1:" + std::to_string(index + 1));
  shard->set_connected(true);
  v1::DescribeShardResponse* facts = shard->mutable_description();
  facts->mutable_state()->set_timeline(1);
  facts->mutable_state()->set_applied_position(kPosition);
  facts->mutable_state()->set_applied_step(kPosition - 2);
  facts->add_parameters()->set_parameter_id(index);
  facts->set_weights_digest(weights);
  // The digest includes the position, as in a shard's description.
  facts->set_state_digest(state + kernels::FactDigest(index, kernels::kPositionSlot, kPosition));
}

v1::GetStatusResponse TwoShards() {
  v1::GetStatusResponse status;
  status.set_job("run");
  AddShard(~uint64_t{0}, 10, &status);
  AddShard(3, 32, &status);
  return status;
}

v1::GetStatusResponse Apart() {
  v1::GetStatusResponse status = TwoShards();
  status.mutable_shards(1)->mutable_description()->mutable_state()->set_applied_position(8);
  return status;
}

TEST(DigestCommandTest, AddsUpTheShardsWithoutTheirPosition) {
  const absl::StatusOr<JobDigests> digests = DigestsIn(TwoShards());
  ASSERT_TRUE(digests.ok()) << digests.status();
  EXPECT_EQ(digests->job, "run");
  EXPECT_EQ(digests->timeline, 1u);
  EXPECT_EQ(digests->position, 7u);
  EXPECT_EQ(digests->step, 5u);
  EXPECT_EQ(digests->weights, 2u);
  EXPECT_EQ(digests->state, 42u);
  ASSERT_EQ(digests->shards.size(), 2u);
  EXPECT_EQ(digests->shards[1].weights, 3u);
  EXPECT_EQ(digests->shards[1].state, 32u);
}

TEST(DigestCommandTest, NeedsEveryShard) {
  v1::GetStatusResponse status = TwoShards();
  status.mutable_shards(1)->set_connected(false);
  status.mutable_shards(1)->set_problem("connection refused");
  const absl::Status refused = DigestsIn(status).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(refused.message(), "shard 1 (127.0.0.1:2): connection refused");
}

TEST(DigestCommandTest, NamesAShardThatLostItsState) {
  v1::GetStatusResponse status = TwoShards();
  status.mutable_shards(0)->mutable_description()->mutable_state()->set_data_loss("it is gone");
  const absl::Status refused = DigestsIn(status).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(refused.message(), "shard 0 (127.0.0.1:1): it is gone");
}

TEST(DigestCommandTest, AsksAgainWhileShardsAreAtDifferentPositions) {
  int asked = 0;
  int waits = 0;
  const absl::StatusOr<JobDigests> digests =
      AskDigests([&] { return ++asked < 3 ? Apart() : TwoShards(); }, [&waits] { ++waits; });
  ASSERT_TRUE(digests.ok()) << digests.status();
  EXPECT_EQ(digests->state, 42u);
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(waits, 2);
}

TEST(DigestCommandTest, GivesUpNamingBothPositions) {
  int asked = 0;
  const absl::Status status = AskDigests(
                                  [&asked] {
                                    ++asked;
                                    return Apart();
                                  },
                                  [] {})
                                  .status();
  EXPECT_EQ(asked, kDigestAttempts);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("shard 1 (127.0.0.1:2) is at position 8, shard 0 (127.0.0.1:1) at position "
                        "7, asked 20 times"));
}

TEST(DigestCommandTest, AnErrorOfTheCallIsNotRepeated) {
  int asked = 0;
  const absl::Status status = AskDigests(
                                  [&asked]() -> absl::StatusOr<v1::GetStatusResponse> {
                                    ++asked;
                                    return absl::UnavailableError("nobody is there");
                                  },
                                  [] {})
                                  .status();
  EXPECT_EQ(status, absl::UnavailableError("nobody is there"));
  EXPECT_EQ(asked, 1);
}

TEST(DigestCommandTest, JsonHasTheDocumentedKeys) {
  const Json json = DigestsJson(*DigestsIn(TwoShards()));
  EXPECT_EQ(json.dump(),
            R"({"job":"run","timeline":1,"position":7,"step":5,)"
            R"("weights_digest":"0000000000000002","state_digest":"000000000000002a",)"
            R"("shards":[{"shard":0,"address":"127.0.0.1:1",)"
            R"("weights_digest":"ffffffffffffffff","state_digest":"000000000000000a"},)"
            R"({"shard":1,"address":"127.0.0.1:2",)"
            R"("weights_digest":"0000000000000003","state_digest":"0000000000000020"}]})");
}

TEST(DigestCommandTest, TextShowsTheSumAndEveryShard) {
  const std::string text = DigestsText(*DigestsIn(TwoShards()));
  EXPECT_THAT(text, HasSubstr("position        7\nstep            5\n"));
  EXPECT_THAT(text, HasSubstr("state digest    000000000000002a\n"));
  EXPECT_THAT(text, HasSubstr("127.0.0.1:2  0000000000000003  0000000000000020"));
}

}  // namespace
}  // namespace kaon::admin_cli
