#include "server/tier/file_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace kaon::tier {
namespace {

constexpr uint64_t kPiece = FileSums::kPieceBytes;

// Two pieces and a part of a third one.
std::vector<std::byte> Version() {
  std::vector<std::byte> version(2 * kPiece + 4096);
  for (size_t i = 0; i < version.size(); ++i) version[i] = static_cast<std::byte>(i * 7 >> 3);
  return version;
}

TEST(FileSumsTest, AcceptAnyRunOfPiecesThatIsUnchanged) {
  const std::vector<std::byte> version = Version();
  const FileSums sums(version);
  const absl::Span<const std::byte> all = version;
  EXPECT_TRUE(sums.Check(0, all).ok());
  EXPECT_TRUE(sums.Check(0, all.first(kPiece)).ok());
  EXPECT_TRUE(sums.Check(kPiece, all.subspan(kPiece)).ok());
  EXPECT_TRUE(sums.Check(2 * kPiece, all.subspan(2 * kPiece)).ok());
}

TEST(FileSumsTest, NameThePieceWithAnotherByte) {
  const FileSums sums(Version());
  for (const size_t at : {size_t{0}, size_t{kPiece - 1}, size_t{2 * kPiece + 4095}}) {
    std::vector<std::byte> changed = Version();
    changed[at] ^= std::byte{16};
    const absl::Status status = sums.Check(0, changed);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(status.message(),
                testing::HasSubstr("from byte " + std::to_string(at / kPiece * kPiece)));
  }
}

// A version that was never written has no sums.
TEST(FileSumsTest, RefuseBytesThatNobodySummed) {
  EXPECT_FALSE(FileSums().Check(0, Version()).ok());
}

}  // namespace
}  // namespace kaon::tier
