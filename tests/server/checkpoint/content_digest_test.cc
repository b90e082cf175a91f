#include "server/checkpoint/content_digest.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/server/checkpoint/tiny_checkpoint.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::checkpoint {
namespace {

class ContentDigestTest : public testing::Test {
 protected:
  // Writes a checkpoint whose manifest has the digests of its content.
  v1::CheckpointManifest Write(const std::string& id, uint64_t position, const TinyShards& shards) {
    v1::CheckpointManifest manifest = WriteCheckpoint(directory_, id, position, shards).value();
    const ContentDigests digests = DigestsOf(directory_, manifest).value();
    manifest.set_weights_digest(digests.weights);
    manifest.set_state_digest(digests.state);
    return manifest;
  }

  simulation::SimulatedDirectory disk_{"disk", 1};
  CheckpointDirectory directory_{disk_};
};

TEST_F(ContentDigestTest, DoesNotDependOnWhoWroteWhatWhere) {
  const v1::CheckpointManifest one = Write("one", 10, {1});
  const v1::CheckpointManifest many = Write("many", 10, {3, 32, 2});
  EXPECT_EQ(one.weights_digest(), many.weights_digest());
  EXPECT_EQ(one.state_digest(), many.state_digest());
  EXPECT_NE(one.weights_digest(), Write("later", 11, {1}).weights_digest());
}

TEST_F(ContentDigestTest, NamesBothWhereTheyDiffer) {
  const v1::CheckpointManifest good = Write("a", 10, {2});
  EXPECT_EQ(CheckDigests(directory_, good), absl::OkStatus());
  v1::CheckpointManifest bad = good;
  bad.set_weights_digest(1);
  bad.set_state_digest(2);
  const absl::Status status = CheckDigests(directory_, bad);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("weights digest 0000000000000001 and state digest "
                                  "0000000000000002, its files have "),
            absl::string_view::npos)
      << status;
  for (int change = 0; change < 4; ++change) {
    bad = good;
    if (change == 0) bad.set_weights_digest(good.weights_digest() + 1);
    if (change == 1) bad.set_state_digest(good.state_digest() + 1);
    if (change == 2) bad.set_position(good.position() + 1);
    if (change == 3) bad.mutable_parameters(1)->set_updates_applied(7);
    EXPECT_EQ(CheckDigests(directory_, bad).code(), absl::StatusCode::kDataLoss) << change;
  }
}

TEST_F(ContentDigestTest, NamesABadFile) {
  const v1::CheckpointManifest manifest = Write("a", 10, {2});
  const v1::CheckpointFile& file = manifest.files(1);
  ASSERT_TRUE(disk_.FlipBit(file.name(), 8 * file.size() - 1).ok());
  const absl::Status status = CheckDigests(directory_, manifest);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find(file.name()), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace kaon::checkpoint
