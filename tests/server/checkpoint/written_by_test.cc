#include "server/checkpoint/written_by.h"

#include <gtest/gtest.h>

namespace kaon::checkpoint {
namespace {

TEST(WrittenByTest, SaysBuildBackendAndDevice) {
  const v1::CheckpointFile file = WrittenBy("cpu/onednn");
  EXPECT_FALSE(file.build().empty());
  EXPECT_EQ(file.backend(), "cpu/onednn");
  EXPECT_FALSE(file.device_class().empty());
}

TEST(WrittenByTest, FindsTheProcessorsName) {
  EXPECT_EQ(ProcessorModel("processor\t: 0\nmodel\t\t: 85\nmodel name\t: Xeon Gold @ 2\n"),
            "Xeon Gold @ 2");
  EXPECT_EQ(ProcessorModel("processor\t: 0\n"), "unknown");
}

}  // namespace
}  // namespace kaon::checkpoint
