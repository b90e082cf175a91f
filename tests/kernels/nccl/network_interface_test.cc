#include "kernels/nccl/network_interface.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace kaon::kernels {
namespace {

TEST(NetworkInterfaceTest, FindsAnInterfaceByItsNameAndByItsSubnet) {
  EXPECT_EQ(*InterfaceOf("lo"), "lo");
  EXPECT_EQ(*InterfaceOf("127.0.0.0/8"), "lo");
  EXPECT_EQ(*InterfaceOf("127.0.0.1/32"), "lo");
}

TEST(NetworkInterfaceTest, RefusesWhatThisMachineDoesNotHave) {
  for (const char* const network : {"kaon9", "240.1.0.0/16", ""}) {
    const absl::Status status = InterfaceOf(network).status();
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_NE(status.message().find("its interfaces: "), std::string::npos) << status;
  }
  for (const char* const network :
       {"127.0.0.0/0", "127.0.0.0/33", "127.0.0/8", "lo/8", "1.2.3.4/"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(InterfaceOf(network).status())) << network;
  }
}

TEST(NetworkInterfaceTest, LeavesAnEnvironmentThatNamesAnotherInterface) {
  unsetenv("NCCL_SOCKET_IFNAME");
  EXPECT_TRUE(UseInterface("lo").ok());
  EXPECT_STREQ(std::getenv("NCCL_SOCKET_IFNAME"), "=lo");
  EXPECT_TRUE(UseInterface("lo").ok());
  EXPECT_EQ(UseInterface("eth1"),
            absl::FailedPreconditionError(
                "NCCL_SOCKET_IFNAME is \"=lo\" in the environment, nccl names eth1"));
}

}  // namespace
}  // namespace kaon::kernels
