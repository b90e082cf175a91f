#include "server/mutation/mutation.h"

#include <gtest/gtest.h>

namespace kaon {
namespace {

TEST(MutationTest, NoneIsBuiltInUnlessAskedFor) {
  for (int number = 1; number < 100; ++number) {
    EXPECT_FALSE(Mutated(static_cast<Mutation>(number))) << number;
  }
}

}  // namespace
}  // namespace kaon
