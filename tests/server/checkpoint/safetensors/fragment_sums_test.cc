#include "server/checkpoint/safetensors/fragment_sums.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/escaping.h"
#include "proto/crc32c.h"

namespace kaon::checkpoint {
namespace {

// FIPS 180-2, appendix B.
TEST(FragmentSumsTest, IsSha256) {
  EXPECT_EQ(absl::BytesToHexString(Sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(absl::BytesToHexString(Sha256("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(FragmentSumsTest, TakesOneChecksumPerFragmentHoweverTheBytesArrive) {
  std::string file(2 * kFragmentBytes + 5, '\0');
  for (size_t i = 0; i < file.size(); ++i) file[i] = static_cast<char>(i * 7 + (i >> 12));
  for (const size_t piece :
       {size_t{1} << 12, size_t{kFragmentBytes}, size_t{999'983}, file.size()}) {
    FragmentSums sums;
    for (size_t at = 0; at < file.size(); at += piece) {
      EXPECT_EQ(sums.num_bytes(), at);
      sums.Extend(absl::string_view(file).substr(at, piece));
    }
    const FileSums found = sums.Finish();
    EXPECT_EQ(found.num_bytes, file.size());
    EXPECT_EQ(found.sha256, Sha256(file));
    ASSERT_EQ(found.fragment_crc32c.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      const std::string fragment = file.substr(i * kFragmentBytes, kFragmentBytes);
      EXPECT_EQ(found.fragment_crc32c[i], proto::Crc32c(fragment.data(), fragment.size()));
    }
  }
}

TEST(FragmentSumsTest, AFullFragmentHasNoEmptyOneAfterIt) {
  FragmentSums sums;
  EXPECT_TRUE(FragmentSums().Finish().fragment_crc32c.empty());
  sums.Extend(std::string(kFragmentBytes, 'x'));
  EXPECT_EQ(sums.Finish().fragment_crc32c.size(), 1u);
}

}  // namespace
}  // namespace kaon::checkpoint
