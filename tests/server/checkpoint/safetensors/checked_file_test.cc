#include "server/checkpoint/safetensors/checked_file.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>

#include "tests/server/checkpoint/safetensors/memory_file.h"

namespace kaon::checkpoint {
namespace {

constexpr size_t kSize = 3 * kFragmentBytes + 1000;

std::string MakeBytes() {
  std::string bytes(kSize, '\0');
  std::mt19937 random(7);
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

FileSums SumsOf(absl::string_view bytes) {
  FragmentSums sums;
  sums.Extend(bytes);
  return sums.Finish();
}

class CheckedFileTest : public testing::Test {
 protected:
  std::unique_ptr<CheckedFile> Open() {
    auto file = std::make_unique<MemoryFile>(&bytes_);
    memory_ = file.get();
    return std::move(CheckedFile::Create(std::move(file), sums_)).value();
  }

  const std::string written_ = MakeBytes();
  const FileSums sums_ = SumsOf(written_);
  // Content of the disk.
  std::string bytes_ = written_;
  MemoryFile* memory_ = nullptr;
};

TEST_F(CheckedFileTest, ReadsAnyRange) {
  const std::unique_ptr<CheckedFile> file = Open();
  std::mt19937 random(11);
  std::string to(kSize + 10, '\0');
  for (int i = 0; i < 200; ++i) {
    const uint64_t offset = random() % (kSize + 5);
    const size_t size = random() % (i % 2 == 0 ? 100 : kSize + 5);
    const std::string expected = offset > kSize ? "" : written_.substr(offset, size);
    const absl::StatusOr<size_t> read = file->Read(offset, size, to.data());
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ(to.substr(0, *read), expected);
  }
  EXPECT_TRUE(file->Verify().ok());
  EXPECT_EQ(*file->Size(), kSize);
}

TEST_F(CheckedFileTest, ReadsInOrderReadEachFragmentOnce) {
  const std::unique_ptr<CheckedFile> file = Open();
  char to[1000];
  for (uint64_t at = 0; at < kSize; at += sizeof(to)) {
    ASSERT_TRUE(file->Read(at, sizeof(to), to).ok());
  }
  EXPECT_EQ(memory_->reads(), 4);
}

TEST_F(CheckedFileTest, NamesTheFragmentThatChanged) {
  const std::unique_ptr<CheckedFile> file = Open();
  bytes_[kFragmentBytes + 17] ^= 0x10;
  std::string to(kSize, '\0');
  const absl::Status status = file->Read(kFragmentBytes + 500'000, 1, to.data()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("file f: fragment 1 (bytes 1048576 to 2097152) has CRC32C "),
            absl::string_view::npos)
      << status;
  EXPECT_FALSE(file->Read(0, kSize, to.data()).ok());
  EXPECT_EQ(file->Verify(), status);
  // The other fragments are as they were.
  EXPECT_TRUE(file->Read(2 * kFragmentBytes, kFragmentBytes + 1000, to.data()).ok());
}

// P8: 100 % of single bits, of swapped fragments and of cuts.
TEST_F(CheckedFileTest, FindsEveryFlipSwapAndCut) {
  const std::unique_ptr<CheckedFile> file = Open();
  std::mt19937 random(13);
  for (int i = 0; i < 60; ++i) {
    const size_t at = random() % kSize;
    const char bit = static_cast<char>(1 << random() % 8);
    bytes_[at] ^= bit;
    EXPECT_FALSE(file->Verify().ok()) << at;
    bytes_[at] ^= bit;
  }
  bytes_ = written_.substr(kFragmentBytes, kFragmentBytes) + written_.substr(0, kFragmentBytes) +
           written_.substr(2 * kFragmentBytes);
  EXPECT_FALSE(file->Verify().ok());
  bytes_ = written_.substr(0, kSize - 1);
  EXPECT_EQ(file->Verify().message(),
            "file f: fragment 3 (bytes 3145728 to 3146728) ends after 999 bytes");
}

TEST_F(CheckedFileTest, RefusesAnotherSizeAndComparesTheDigest) {
  bytes_.push_back('x');
  EXPECT_EQ(CheckedFile::Create(std::make_unique<MemoryFile>(&bytes_), sums_).status().message(),
            "file f is 3146729 bytes long, expecting 3146728");
  bytes_.pop_back();
  FileSums other = sums_;
  other.fragment_crc32c.pop_back();
  EXPECT_EQ(CheckedFile::Create(std::make_unique<MemoryFile>(&bytes_), other).status().message(),
            "file f of 3146728 bytes has checksums of 3 fragments, expecting 4");
  other = sums_;
  other.sha256[0] ^= 1;
  const absl::Status status =
      std::move(CheckedFile::Create(std::make_unique<MemoryFile>(&bytes_), other))
          .value()
          ->Verify();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("has SHA-256"), absl::string_view::npos);
}

TEST_F(CheckedFileTest, IsReadOnly) {
  const std::unique_ptr<CheckedFile> file = Open();
  EXPECT_EQ(file->Write(0, {"x"}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(file->Truncate(0).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(file->Sync().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(bytes_, written_);
}

}  // namespace
}  // namespace kaon::checkpoint
