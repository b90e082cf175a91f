#include "server/journal/journal_start.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/server/journal/journal_files.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::journal {
namespace {

constexpr uint64_t kDirectory = 0x77;

class JournalStartTest : public testing::Test {
 protected:
  void ExpectRefused(uint64_t directory, absl::StatusCode code, const std::string& words) {
    const absl::Status status = ReadStart(*directory_, directory).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(status.message().find(words), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find(path_), absl::string_view::npos) << status;
  }

  const std::unique_ptr<disk::PosixDirectory> directory_ = TemporaryDirectory();
  const std::string path_ = directory_->path() + "/start";
};

TEST_F(JournalStartTest, IsTheWholeJournalWithoutTheFile) {
  const absl::StatusOr<JournalStart> start = ReadStart(*directory_, kDirectory);
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(start->sequence, 1u);
  EXPECT_EQ(start->chain, 0u);
  EXPECT_EQ(start->position, 0u);
}

TEST_F(JournalStartTest, GivesBackTheNewest) {
  ASSERT_TRUE(WriteStart(*directory_, kDirectory, {5, 6, 7}).ok());
  ASSERT_TRUE(WriteStart(*directory_, kDirectory, {15, 16, 17}).ok());
  const absl::StatusOr<JournalStart> start = ReadStart(*directory_, kDirectory);
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(start->sequence, 15u);
  EXPECT_EQ(start->chain, 16u);
  EXPECT_EQ(start->position, 17u);
  EXPECT_EQ(*directory_->List(), std::vector<std::string>{"start"});
}

TEST_F(JournalStartTest, RefusesDamageAndOtherDirectoriesNamingTheFile) {
  ASSERT_TRUE(WriteStart(*directory_, kDirectory, {5, 6, 7}).ok());
  ExpectRefused(0x78, absl::StatusCode::kDataLoss, "of directory 77 and type 8, expecting 78");
  const std::string contents = ReadFile(path_);
  for (size_t bit = 0; bit < contents.size() * 8; ++bit) {
    std::string flipped = contents;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    WriteFile(path_, flipped);
    ExpectRefused(kDirectory, absl::StatusCode::kDataLoss, "");
  }
  for (size_t size = 0; size < contents.size(); ++size) {
    WriteFile(path_, contents.substr(0, size));
    ExpectRefused(kDirectory, absl::StatusCode::kDataLoss, "");
  }
}

// Wherever the power is cut, and wherever the disk is full: this one or the one before.
TEST(JournalStartOnASimulatedDiskTest, IsOneOfTheTwoAfterAnyFault) {
  int newer = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    simulation::SimulatedDirectory directory("/disk", seed);
    ASSERT_TRUE(WriteStart(directory, kDirectory, {5, 6, 7}).ok());
    if (seed % 3 == 0) {
      directory.SetFreeBytes(seed % 512);
    } else {
      directory.FailAfter(seed % 9);
    }
    const absl::Status status = WriteStart(directory, kDirectory, {15, 16, 17});
    directory.SetHealthy();
    directory.SetUnbounded();
    if (absl::IsResourceExhausted(status)) {
      EXPECT_EQ(ReadStart(directory, kDirectory)->sequence, 5u);
    }
    directory.CutPower();
    const absl::StatusOr<JournalStart> start = ReadStart(directory, kDirectory);
    ASSERT_TRUE(start.ok()) << "seed " << seed << ": " << start.status();
    EXPECT_TRUE(start->sequence == 15 || !status.ok()) << seed;
    EXPECT_TRUE(start->sequence == 5 || start->position == 17) << seed;
    newer += start->sequence == 15;
  }
  EXPECT_GT(newer, 50);
  EXPECT_LT(newer, 450);
}

}  // namespace
}  // namespace kaon::journal
