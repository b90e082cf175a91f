#include "server/shard/complete_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace kaon::shard {
namespace {

TEST(CompleteConfigTest, RefusesSizesThatNoMachineHas) {
  for (const auto set :
       {&v1::ShardConfig::set_staging_bytes, &v1::ShardConfig::set_host_memory_bytes,
        &v1::ShardConfig::set_snapshot_journal_bytes}) {
    v1::ShardConfig config;
    config.set_data_dir("data");
    (config.*set)(uint64_t{1} << 50);
    EXPECT_TRUE(CompleteConfig(config).ok());
    (config.*set)(UINT64_MAX);
    EXPECT_THAT(std::string(CompleteConfig(config).status().message()),
                ::testing::ContainsRegex("_bytes is 18446744073709551615, must be [0-9]+ .. "
                                         "1125899906842624"));
  }
}

TEST(DefaultShmSessionsTest, TakeASixteenthOfTheMemoryAtMost) {
  EXPECT_EQ(DefaultShmSessions(0, 1024), 8u);
  EXPECT_EQ(DefaultShmSessions(uint64_t{4} << 30, 1024), 8u);
  EXPECT_EQ(DefaultShmSessions(uint64_t{1} << 30, 1024), 6u);
  EXPECT_EQ(DefaultShmSessions(uint64_t{160} << 20, 1024), 1u);
  EXPECT_EQ(DefaultShmSessions(uint64_t{159} << 20, 1024), 0u);
}

TEST(DefaultShmSessionsTest, TakeAnEighthOfTheDescriptorsAtMost) {
  EXPECT_EQ(DefaultShmSessions(0, 192), 8u);
  EXPECT_EQ(DefaultShmSessions(0, 64), 2u);
}

}  // namespace
}  // namespace kaon::shard
