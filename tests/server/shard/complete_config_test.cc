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
        &v1::ShardConfig::set_snapshot_journal_bytes, &v1::ShardConfig::set_device_memory_bytes}) {
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

v1::ShardConfig With(const std::string& backend, const std::string& device) {
  v1::ShardConfig config;
  config.set_data_dir("data");
  config.set_backend(backend);
  config.set_device(device);
  return config;
}

TEST(CompleteConfigTest, TheDeviceNamesTheBackend) {
  const auto backend = [](const std::string& backend, const std::string& device) {
    return CompleteConfig(With(backend, device))->backend();
  };
  EXPECT_EQ(backend("", ""), "cpu");
  EXPECT_EQ(backend("cuda", ""), "cuda");
  EXPECT_EQ(backend("", "cpu"), "cpu");
  EXPECT_EQ(backend("", "cuda"), "cuda");
  EXPECT_EQ(backend("cuda", "cuda:3"), "cuda");
  EXPECT_EQ(DeviceOrdinal(*CompleteConfig(With("", "cuda:3"))), 3);
  EXPECT_EQ(DeviceOrdinal(*CompleteConfig(With("", "cuda"))), 0);
  EXPECT_EQ(DeviceOrdinal(*CompleteConfig(With("cuda", ""))), 0);
}

TEST(CompleteConfigTest, RefusesADeviceThatContradictsTheBackend) {
  const absl::Status status = CompleteConfig(With("cpu", "cuda:0")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "backend is \"cpu\" and device is \"cuda:0\", must name the same backend; device is "
            "enough");
}

TEST(CompleteConfigTest, RefusesADeviceThatIsNone) {
  for (const std::string device : {":0", "cuda:", "cuda:x", "cuda:-1", "cuda:1024", "cpu:0"}) {
    const absl::Status status = CompleteConfig(With("", device)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << device;
    EXPECT_EQ(status.message(),
              "device is \"" + device +
                  "\", must be cpu, or a backend and the number of its device, such as cuda:0");
  }
}

TEST(CompleteConfigTest, TakesTheMemoryTiersThatTheDeviceHas) {
  const auto status = [](const std::string& device, const std::string& tier) {
    v1::ShardConfig config = With("", device);
    config.set_memory_tier(tier);
    return CompleteConfig(config).status();
  };
  for (const std::string tier : {"", "device", "host"}) {
    EXPECT_EQ(status("cuda:0", tier), absl::OkStatus()) << tier;
  }
  EXPECT_EQ(status("cpu", "host"), absl::OkStatus());
  EXPECT_EQ(
      status("cpu", "device"),
      absl::InvalidArgumentError("memory_tier is \"device\" and device is cpu, which has host "
                                 "memory alone; choose a device such as cuda:0"));
  EXPECT_EQ(status("cuda:0", "nvme"),
            absl::InvalidArgumentError("memory_tier is \"nvme\", must be device or host"));
}

TEST(GuardedBytesTest, AllowForADeviceWhereverItsTensorsAre) {
  v1::ShardConfig config;
  config.set_host_memory_bytes(1000);
  config.set_staging_bytes(100);
  config.set_backend("cpu");
  EXPECT_EQ(GuardedBytes(config, 30), 1100u);
  config.set_backend("cuda");
  for (const char* tier : {"device", "host"}) {
    config.set_memory_tier(tier);
    EXPECT_GE(GuardedBytes(config, 30), 1130 + (uint64_t{256} << 20));
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
