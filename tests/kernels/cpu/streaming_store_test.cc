#include "kernels/cpu/streaming_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace kaon::kernels {
namespace {

// Every place of both in a vector, and every number of bytes that is left over.
TEST(StreamingStoreTest, CopiesThoseBytesAndNoOthers) {
  std::vector<unsigned char> from(200);
  std::iota(from.begin(), from.end(), 1);
  for (size_t source = 0; source < 17; ++source) {
    for (size_t target = 0; target < 17; ++target) {
      for (size_t bytes = 0; bytes <= 67; ++bytes) {
        std::vector<unsigned char> expected(100, 0xee);
        std::vector<unsigned char> to = expected;
        std::copy_n(from.begin() + source, bytes, expected.begin() + target);
        StreamTo(from.data() + source, bytes, to.data() + target);
        EndStreaming();
        ASSERT_EQ(to, expected) << source << ", " << target << ", " << bytes;
      }
    }
  }
}

}  // namespace
}  // namespace kaon::kernels
