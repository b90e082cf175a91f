#include "server/config/port_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace kaon::config {
namespace {

std::string Contents(const std::string& path) {
  std::stringstream contents;
  contents << std::ifstream(path).rdbuf();
  return contents.str();
}

TEST(PortFileTest, HoldsThePortAndReplacesAnOlderOne) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/port";
  ASSERT_TRUE(WritePortFile(path, 12345).ok());
  EXPECT_EQ(Contents(path), "12345\n");
  ASSERT_TRUE(WritePortFile(path, 7).ok());
  EXPECT_EQ(Contents(path), "7\n");
}

TEST(PortFileTest, NamesThePathItCannotWrite) {
  const absl::Status status = WritePortFile("/nowhere/port", 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("/nowhere/port"));
}

}  // namespace
}  // namespace kaon::config
