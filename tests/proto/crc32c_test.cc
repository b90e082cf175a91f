#include "proto/crc32c.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

namespace kaon::proto {
namespace {

// RFC 3720 appendix B.4, CRCs there are printed least significant byte first.
TEST(Crc32cTest, GivesTheVectorsOfRfc3720) {
  const std::vector<unsigned char> zeros(32, 0);
  const std::vector<unsigned char> ones(32, 0xff);
  std::vector<unsigned char> ascending(32);
  std::iota(ascending.begin(), ascending.end(), 0);
  const std::vector<unsigned char> descending(ascending.rbegin(), ascending.rend());
  EXPECT_EQ(Crc32c(zeros.data(), zeros.size()), 0x8a9136aau);
  EXPECT_EQ(Crc32c(ones.data(), ones.size()), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(ascending.data(), ascending.size()), 0x46dd794eu);
  EXPECT_EQ(Crc32c(descending.data(), descending.size()), 0x113fdb5cu);
}

TEST(Crc32cTest, GivesTheVectorOfAnIscsiReadCommand) {
  const unsigned char command[48] = {0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                     0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00,
                                     0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00,
                                     0x00, 0x18, 0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                     0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
  EXPECT_EQ(Crc32c(command, sizeof(command)), 0xd9963a56u);
}

TEST(Crc32cTest, OfNothingIsZero) { EXPECT_EQ(Crc32c(nullptr, 0), 0u); }

TEST(Crc32cTest, ExtendsAcrossEverySplit) {
  const std::string text = "123456789";
  ASSERT_EQ(Crc32c(text.data(), text.size()), 0xe3069283u);
  for (size_t split = 0; split <= text.size(); ++split) {
    const uint32_t first = Crc32c(text.data(), split);
    EXPECT_EQ(ExtendCrc32c(first, text.data() + split, text.size() - split), 0xe3069283u) << split;
  }
}

}  // namespace
}  // namespace kaon::proto
