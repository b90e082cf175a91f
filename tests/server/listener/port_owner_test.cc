#include "server/listener/port_owner.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "proto/descriptor.h"

namespace kaon::listener {
namespace {

using ::testing::EndsWith;

// Binds a socket to a port that the system chooses; returns the port.
int BindAny(int socket) {
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_any;
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(socket, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  return ntohs(address.sin6_port);
}

TEST(PortOwnerTest, NamesTheProcessThatListens) {
  const proto::Descriptor bound(socket(AF_INET6, SOCK_STREAM, 0));
  const int port = BindAny(bound.get());
  EXPECT_EQ(PortOwner(port), "") << "nobody listens yet";
  ASSERT_EQ(listen(bound.get(), 1), 0);
  EXPECT_EQ(PortOwner(port), "pid " + std::to_string(getpid()) + " (port_owner_test)");
}

// A process chooses its own name.
TEST(PortOwnerTest, EscapesTheName) {
  const proto::Descriptor bound(socket(AF_INET6, SOCK_STREAM, 0));
  const int port = BindAny(bound.get());
  ASSERT_EQ(listen(bound.get(), 1), 0);
  ASSERT_EQ(prctl(PR_SET_NAME, "x\033[2J"), 0);
  EXPECT_THAT(PortOwner(port), EndsWith(" (x\\x1b[2J)"));
}

}  // namespace
}  // namespace kaon::listener
