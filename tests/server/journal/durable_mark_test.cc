#include "server/journal/durable_mark.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/server/journal/journal_files.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::journal {
namespace {

constexpr uint64_t kDirectory = 0x77;

class DurableMarkTest : public testing::Test {
 protected:
  absl::StatusOr<std::optional<DurableMark>> Read(uint64_t directory = kDirectory) {
    return DurableMarkFile::Read(*directory_, directory);
  }

  const std::unique_ptr<disk::PosixDirectory> directory_ = TemporaryDirectory();
  const std::string path_ = directory_->path() + "/durable";
};

TEST_F(DurableMarkTest, GivesBackTheNewest) {
  EXPECT_FALSE(Read()->has_value());
  absl::StatusOr<DurableMarkFile> file = DurableMarkFile::Open(*directory_, kDirectory);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_FALSE(Read()->has_value());
  ASSERT_TRUE(file->Write({5, 6}).ok());
  ASSERT_TRUE(file->Write({7, 8}).ok());
  EXPECT_EQ((**Read()).sequence, 7u);
  EXPECT_EQ((**Read()).header_crc, 8u);
  EXPECT_EQ(ReadFile(path_).size(), kSectorBytes);
}

TEST_F(DurableMarkTest, IsAbsentWhereItsSectorWasNotWritten) {
  ASSERT_TRUE(DurableMarkFile::Open(*directory_, kDirectory)->Write({5, 6}).ok());
  const std::string contents = ReadFile(path_);
  WriteFile(path_, std::string(kSectorBytes, '\0'));
  EXPECT_FALSE(Read()->has_value());
  WriteFile(path_, contents.substr(0, 100));
  EXPECT_FALSE(Read()->has_value());
}

TEST(DurableMarkOfAFullDiskTest, SurvivesAPowerCutAfterAWriteThatWasCutShort) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    simulation::SimulatedDirectory directory("/disk", seed);
    directory.SetFreeBytes(seed % kSectorBytes);
    if (auto file = DurableMarkFile::Open(directory, kDirectory); file.ok()) {
      EXPECT_EQ(file->Write({5, 6}).code(), absl::StatusCode::kResourceExhausted);
    }
    directory.SetUnbounded();
    ASSERT_TRUE(directory.Sync().ok());
    absl::StatusOr<DurableMarkFile> file = DurableMarkFile::Open(directory, kDirectory);
    ASSERT_TRUE(file.ok() && file->Write({7, 8}).ok());
    directory.CutPower();
    const auto mark = DurableMarkFile::Read(directory, kDirectory);
    ASSERT_TRUE(mark.ok()) << "seed " << seed << ": " << mark.status();
  }
}

TEST_F(DurableMarkTest, IsRefusedWhenDamagedOrOfAnotherDirectory) {
  ASSERT_TRUE(DurableMarkFile::Open(*directory_, kDirectory)->Write({5, 6}).ok());
  const std::string contents = ReadFile(path_);
  for (size_t bit = 0; bit < contents.size() * 8; ++bit) {
    std::string flipped = contents;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    WriteFile(path_, flipped);
    ASSERT_EQ(Read().status().code(), absl::StatusCode::kDataLoss) << bit;
  }
  WriteFile(path_, contents + "x");
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kDataLoss);
  WriteFile(path_, contents);
  EXPECT_EQ(Read(0x78).status().message(),
            path_ + " is of directory 77 and type 7, expecting 78 as " +
                path_.substr(0, path_.rfind('/')) + "/identity has it, and 7");
}

}  // namespace
}  // namespace kaon::journal
