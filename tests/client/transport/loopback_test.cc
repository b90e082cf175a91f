#include "client/transport/loopback.h"

#include <gtest/gtest.h>

namespace kaon::client {
namespace {

TEST(LoopbackTest, KnowsTheAddressesThatStayOnThisMachine) {
  for (const char* address :
       {"127.0.0.1:80", "127.255.0.3:0", "[::1]:50051", "localhost:1", "LocalHost:65535"}) {
    EXPECT_TRUE(IsLoopback(address)) << address;
  }
}

TEST(LoopbackTest, AnythingElseIsNot) {
  for (const char* address :
       {"0.0.0.0:80", "[::]:80", "128.0.0.1:80", "127.0.0.1.example.org:80", "localhost.evil:1",
        "127.1:80", "[::ffff:10.0.0.1]:80", ":80", "*:80", "example.org:443"}) {
    EXPECT_FALSE(IsLoopback(address)) << address;
  }
}

TEST(LoopbackTest, NeedsHostAndPort) {
  for (const char* address :
       {"", "127.0.0.1", "localhost", "::1", "127.0.0.1:", "127.0.0.1:-1", "127.0.0.1:65536",
        "dns:///localhost:80", "ipv4:127.0.0.1:80", "127.0.0.1:80,10.0.0.1:80", "[::1:80",
        " 127.0.0.1:80", "127.0.0.1 :80", "127.0.0.1: 80", "127.0.0.1:80 ", "\n127.0.0.1:80"}) {
    EXPECT_FALSE(IsLoopback(address)) << address;
  }
}

TEST(HostOfTest, DropsPortAndBrackets) {
  EXPECT_EQ(HostOf("example.org:443"), "example.org");
  EXPECT_EQ(HostOf("[2001:db8::1]:443"), "2001:db8::1");
  EXPECT_EQ(HostOf("2001:db8::1"), "");
}

}  // namespace
}  // namespace kaon::client
