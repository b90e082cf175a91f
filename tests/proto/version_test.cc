#include "proto/version.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace kaon::proto {
namespace {

TEST(VersionTest, IsThatOfTheFile) {
  std::string line;
  ASSERT_TRUE(std::getline(std::ifstream("VERSION"), line));
  EXPECT_EQ(ThisVersion().version, line);
  EXPECT_EQ(VersionText("kaonctl", "backend cpu"),
            "kaonctl " + line + " (commit " + ThisVersion().commit + ", " + ThisVersion().build +
                " build)\nfeatures: backend cpu");
}

}  // namespace
}  // namespace kaon::proto
