#include "server/journal/identity_file.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/server/journal/journal_files.h"

namespace kaon::journal {
namespace {

constexpr DirectoryId kId = {0x00123456789abcde, 0xfedcba9876543210};

class IdentityFileTest : public testing::Test {
 protected:
  const std::unique_ptr<disk::PosixDirectory> directory_ = TemporaryDirectory();
  const std::string path_ = directory_->path() + "/identity";
};

TEST_F(IdentityFileTest, IsTheFileThatTheFormatsPageDescribes) {
  EXPECT_FALSE(ReadIdentity(*directory_)->has_value());
  ASSERT_TRUE(WriteIdentity(*directory_, kId).ok());
  EXPECT_EQ(ReadFile(path_), "kaon data 2\n00123456789abcdefedcba9876543210\n");
  EXPECT_TRUE(**ReadIdentity(*directory_) == kId);
  EXPECT_EQ(directory_->List()->size(), 1u);
}

TEST_F(IdentityFileTest, IsWrittenWhereACrashLeftHalfOfOne) {
  WriteFile(path_ + ".tmp", "kaon da");
  EXPECT_FALSE(ReadIdentity(*directory_)->has_value());
  ASSERT_TRUE(WriteIdentity(*directory_, kId).ok());
  EXPECT_TRUE(**ReadIdentity(*directory_) == kId);
}

TEST_F(IdentityFileTest, OfAnotherVersionIsRefusedNamingBoth) {
  WriteFile(path_, "kaon data 1\nsomething\n");
  const absl::Status status = ReadIdentity(*directory_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            path_ + " starts with the line 'kaon data 1', expecting 'kaon data 2'");
}

TEST_F(IdentityFileTest, ThatLostBytesIsRefused) {
  ASSERT_TRUE(WriteIdentity(*directory_, kId).ok());
  const std::string contents = ReadFile(path_);
  for (size_t size = 0; size < contents.size(); ++size) {
    WriteFile(path_, contents.substr(0, size));
    EXPECT_FALSE(ReadIdentity(*directory_).ok()) << size;
  }
  WriteFile(path_, contents + "x");
  EXPECT_EQ(ReadIdentity(*directory_).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(IdentityFileTest, EveryFlippedBitChangesTheHashOrIsRefused) {
  ASSERT_TRUE(WriteIdentity(*directory_, kId).ok());
  const std::string contents = ReadFile(path_);
  for (size_t bit = 0; bit < contents.size() * 8; ++bit) {
    std::string flipped = contents;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    WriteFile(path_, flipped);
    const auto id = ReadIdentity(*directory_);
    EXPECT_FALSE(id.ok() && (*id)->Hash() == kId.Hash()) << bit;
  }
}

}  // namespace
}  // namespace kaon::journal
