#include "server/disk/device_error.h"

#include <gtest/gtest.h>

namespace kaon::disk {
namespace {

TEST(DeviceErrorTest, IsToldFromDamage) {
  const absl::Status error = DeviceError("reading a: Input/output error");
  EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(error.message(), "reading a: Input/output error");
  EXPECT_TRUE(IsDeviceError(error));
  EXPECT_FALSE(IsDeviceError(absl::DataLossError(error.message())));
  EXPECT_FALSE(IsDeviceError(absl::OkStatus()));
  EXPECT_EQ(error.ToString(), "DATA_LOSS: reading a: Input/output error [device='failed']");
}

TEST(DeviceErrorTest, StaysOneWithAnotherMessage) {
  EXPECT_EQ(WithMessage(DeviceError("reading a"), "unit u: reading a"),
            DeviceError("unit u: reading a"));
  EXPECT_EQ(WithMessage(absl::DataLossError("a"), "b"), absl::DataLossError("b"));
}

}  // namespace
}  // namespace kaon::disk
