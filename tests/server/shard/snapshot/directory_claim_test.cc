#include "server/shard/snapshot/directory_claim.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "server/checkpoint/written_by.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::shard {
namespace {

class WrittenByFileTest : public testing::Test {
 protected:
  std::string Contents() {
    const auto file = directory_.Open(kWrittenByFile);
    if (!file.ok()) return std::string(file.status().message());
    std::string bytes((*file)->Size().value(), '\0');
    EXPECT_TRUE((*file)->Read(0, bytes.size(), bytes.data()).ok());
    return bytes;
  }

  simulation::SimulatedDirectory directory_{"/d", 1};
  const v1::CheckpointFile here_ = checkpoint::WrittenBy("cpu/onednn", "Xeon");
  const v1::CheckpointFile elsewhere_ = checkpoint::WrittenBy("cpu/amx", "Xeon");
};

TEST_F(WrittenByFileTest, IsTheOneThatWroteItAlsoAfterAPowerCut) {
  EXPECT_FALSE(IsClaimed(directory_, here_).value());
  ASSERT_TRUE(ClaimDirectory(directory_, here_).ok());
  const std::string written = Contents();
  EXPECT_TRUE(absl::StrContains(written, "backend cpu/onednn\ndevice_class ")) << written;
  directory_.CutPower();
  EXPECT_EQ(Contents(), written);
  EXPECT_TRUE(IsClaimed(directory_, here_).value());
}

TEST_F(WrittenByFileTest, RefusesAnotherAndNamesBoth) {
  ASSERT_TRUE(ClaimDirectory(directory_, here_).ok());
  const absl::Status status = IsClaimed(directory_, elsewhere_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  for (const char* words :
       {"/d/written_by says 'kaon written_by 1\\nbuild ", "backend cpu/onednn\\n",
        "backend cpu/amx\\n", "--allow-other-build takes it"}) {
    EXPECT_TRUE(absl::StrContains(status.message(), words)) << words << " is not in " << status;
  }
}

TEST_F(WrittenByFileTest, IsTheOthersOnceThatOneClaimedIt) {
  ASSERT_TRUE(ClaimDirectory(directory_, here_).ok());
  ASSERT_TRUE(ClaimDirectory(directory_, elsewhere_).ok());
  directory_.CutPower();
  EXPECT_TRUE(IsClaimed(directory_, elsewhere_).value());
  EXPECT_FALSE(IsClaimed(directory_, here_).ok());
}

TEST_F(WrittenByFileTest, StaysAsItWasOnAFullDisk) {
  ASSERT_TRUE(ClaimDirectory(directory_, here_).ok());
  directory_.SetFreeBytes(10);
  EXPECT_EQ(ClaimDirectory(directory_, elsewhere_).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(IsClaimed(directory_, here_).value());
}

TEST_F(WrittenByFileTest, NoChangedBitGoesUnnoticed) {
  ASSERT_TRUE(ClaimDirectory(directory_, here_).ok());
  const std::string written = Contents();
  for (size_t bit = 0; bit < 8 * written.size(); ++bit) {
    std::string damaged = written;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    ASSERT_TRUE(directory_.Open(kWrittenByFile).value()->Write(0, {damaged}).ok());
    EXPECT_FALSE(IsClaimed(directory_, here_).ok()) << bit;
  }
  for (const size_t size : {written.size() - 1, size_t{0}}) {
    ASSERT_TRUE(directory_.Open(kWrittenByFile).value()->Truncate(size).ok());
    EXPECT_FALSE(IsClaimed(directory_, here_).ok()) << size;
  }
}

TEST_F(WrittenByFileTest, WhatACrashLeftBehindIsNoHindrance) {
  ASSERT_TRUE(directory_.Create("written_by.tmp").ok());
  EXPECT_TRUE(ClaimDirectory(directory_, here_).ok());
  EXPECT_TRUE(absl::StrContains(Contents(), "cpu/onednn"));
}

}  // namespace
}  // namespace kaon::shard
