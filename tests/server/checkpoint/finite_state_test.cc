#include "server/checkpoint/finite_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "tests/server/checkpoint/tiny_checkpoint.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The last element is infinity; the elements before it are the largest finite numbers.
TEST(FiniteStateTest, KnowsInfinityOfEveryDType) {
  const std::string largest32("\xff\xff\x7f\xff", 4);
  const std::string infinity32("\x00\x00\x80\xff", 4);
  EXPECT_TRUE(AllFinite(v1::STATE_DTYPE_FLOAT32, largest32 + largest32));
  EXPECT_FALSE(AllFinite(v1::STATE_DTYPE_FLOAT32, largest32 + infinity32));
  const std::string largest16("\x7f\x7f", 2);
  const std::string infinity16("\x80\x7f", 2);
  EXPECT_TRUE(AllFinite(v1::STATE_DTYPE_BFLOAT16, largest16 + largest16));
  EXPECT_FALSE(AllFinite(v1::STATE_DTYPE_BFLOAT16, largest16 + infinity16));
  // Bytes that are no scale may have any bits; the last group may be shorter.
  const std::string group = largest16 + std::string(32, '\xff');
  EXPECT_TRUE(AllFinite(v1::STATE_DTYPE_INT8, group + group));
  EXPECT_FALSE(AllFinite(v1::STATE_DTYPE_INT8, group + infinity16 + "\x01"));
}

class NotFiniteTest : public testing::Test {
 protected:
  void Write(const std::string& id, uint64_t position, const std::string& role = "") {
    TinyShards shards;
    shards.role = role;
    shards.begin = "\xff\xff\xff\xff";
    ASSERT_TRUE(WriteCheckpoint(directory_, id, position, shards).ok());
  }

  simulation::SimulatedDirectory disk_{"disk", 1};
  CheckpointDirectory directory_{disk_};
};

TEST_F(NotFiniteTest, VerifyNamesTheTensor) {
  const std::map<std::string, std::string> first_with = {
      {"weight", "table"}, {"momentum_buffer", "h.w"}, {"exp_avg_sq", "h.b"}};
  uint64_t position = 10;
  for (const auto& [role, parameter] : first_with) {
    const std::string id = absl::StrCat("bad-", ++position);
    Write(id, position, role);
    const absl::Status status = directory_.Verify(id).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(absl::StrCat("parameter '", parameter, "' '", role,
                                             "' has values that are not finite")),
                      HasSubstr(absl::StrCat("position ", position))));
  }
}

TEST_F(NotFiniteTest, TheNewestGoodOneIsFoundAndKept) {
  Write("a", 10);
  Write("b", 11);
  Write("c", 12, "weight");
  Write("d", 13, "exp_avg");
  const FoundCheckpoint found = directory_.FindNewest("tiny").value();
  ASSERT_TRUE(found.newest.has_value());
  EXPECT_EQ(found.newest->id(), "b");
  ASSERT_EQ(found.skipped.size(), 2u);
  EXPECT_THAT(found.skipped[0].reason, HasSubstr("not finite"));
  const RetainedCheckpoints retained = directory_.Retain("tiny", 2).value();
  EXPECT_THAT(retained.kept, ElementsAre("b", "a"));
  EXPECT_TRUE(retained.removed.empty());
}

}  // namespace
}  // namespace kaon::checkpoint
