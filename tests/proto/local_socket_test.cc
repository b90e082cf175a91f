#include "proto/local_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

namespace kaon::proto {
namespace {

std::string UniqueName() { return "@kaon-local-socket-test-" + std::to_string(getpid()); }

Descriptor Accept(const Descriptor& listener) {
  return Descriptor(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
}

TEST(LocalSocketTest, ConnectsByAbstractNameAndKnowsThePeersUser) {
  const auto listener = ListenLocal(UniqueName());
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto connection = ConnectLocal(UniqueName());
  ASSERT_TRUE(connection.ok()) << connection.status();
  EXPECT_EQ(PeerUser(Accept(*listener)).value(), getuid());
}

TEST(LocalSocketTest, ConnectsByPath) {
  const std::string path = "/tmp/kaon-" + std::to_string(getpid()) + ".sock";
  const auto listener = ListenLocal(path);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(ConnectLocal(path).ok());
  EXPECT_EQ(ListenLocal(path).status().code(), absl::StatusCode::kFailedPrecondition);
  unlink(path.c_str());
}

TEST(LocalSocketTest, RefusesAddressesThatNoSocketHas) {
  for (const std::string& address : {std::string(), std::string("@"), std::string(108, 'x')}) {
    EXPECT_EQ(ListenLocal(address).status().code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_EQ(ConnectLocal(address).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(LocalSocketTest, SaysThatNobodyListens) {
  EXPECT_EQ(ConnectLocal("@kaon-nobody-is-here").status().code(), absl::StatusCode::kUnavailable);
}

TEST(LocalSocketTest, PassesADescriptorWithTheBytes) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Descriptor from(ends[0]);
  const Descriptor to(ends[1]);
  ASSERT_TRUE(SendLocal(from, "m", from.get()).ok());
  const auto received = ReceiveDescriptor(to, absl::Seconds(10));
  ASSERT_TRUE(received.ok()) << received.status();
  struct stat sent = {};
  struct stat found = {};
  fstat(from.get(), &sent);
  fstat(received->get(), &found);
  EXPECT_NE(received->get(), from.get());
  EXPECT_EQ(sent.st_ino, found.st_ino);
}

TEST(LocalSocketTest, SaysThatNoDescriptorCame) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  Descriptor from(ends[0]);
  const Descriptor to(ends[1]);
  EXPECT_EQ(ReceiveDescriptor(to, absl::ZeroDuration()).status().code(),
            absl::StatusCode::kUnavailable);
  ASSERT_TRUE(SendLocal(from, "m").ok());
  EXPECT_EQ(ReceiveDescriptor(to, absl::Seconds(10)).status().code(),
            absl::StatusCode::kUnavailable);
  from = Descriptor();
  EXPECT_FALSE(SendLocal(to, "m").ok());
}

TEST(LocalSocketTest, KnowsTheBoot) {
  EXPECT_EQ(BootId().size(), 36u);
  EXPECT_EQ(BootId(), BootId());
}

}  // namespace
}  // namespace kaon::proto
